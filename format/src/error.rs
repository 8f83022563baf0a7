//! What can be wrong with the bytes of a pack.

use alloc::string::{String, ToString as _};
use core::fmt;

use crate::DType;

/// A packfile that cannot be read; every variant names what was expected and found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file does not start with the magic: it is no packfile.
    #[error("no packfile: it starts with the bytes {found:02x?}, not with the magic")]
    Magic {
        /// First bytes of the file.
        found: [u8; 8],
    },
    /// The file is of a version that this program does not read.
    #[error("the file is of format version {found}, this program reads {oldest} to {newest}")]
    Version {
        /// Version of the file.
        found: u32,
        /// Oldest version read.
        oldest: u32,
        /// Newest version read.
        newest: u32,
    },
    /// The file ends too early: an interrupted copy or download.
    #[error("the file is cut off: {found} of {expected} bytes are there")]
    Truncated {
        /// Bytes that the header states, or those of a header.
        expected: u64,
        /// Bytes of the file.
        found: u64,
    },
    /// The file goes on behind its end.
    #[error("the file goes on behind its end: it should have {expected} bytes and has {found}")]
    TrailingBytes {
        /// Bytes that the header states.
        expected: u64,
        /// Bytes of the file.
        found: u64,
    },
    /// The header does not match its own digest.
    #[error("the header is damaged: its SHA-256 does not match")]
    HeaderDigest,
    /// A field of the header that has one value in this version has another.
    #[error("header field {field} should be {expected} and is {found}")]
    Constant {
        /// The field.
        field: &'static str,
        /// Its only value.
        expected: u64,
        /// The value found.
        found: u64,
    },
    /// Bits are set that must be zero: a newer writer, or damage.
    #[error("{table} entry {entry}: field {field} has bits set that must be zero")]
    ReservedBits {
        /// Where.
        table: Table,
        /// The field.
        field: &'static str,
        /// Index of the record.
        entry: u64,
    },
    /// The alignment of extents is no power of two in the allowed range.
    #[error("extents are aligned to {found} bytes, which is no power of two from 4096 to 2^30")]
    ExtentAlign {
        /// The alignment found.
        found: u64,
    },
    /// A table's bytes are fewer or more than its reference or its counts say.
    #[error("{what} should have {expected} bytes and has {found}")]
    Length {
        /// The table.
        what: String,
        /// Bytes by the reference or the counts.
        expected: u64,
        /// Bytes found.
        found: u64,
    },
    /// A checksum does not match: the bytes are damaged.
    #[error("{what} is damaged: CRC-32C should be {expected:08x} and is {found:08x}")]
    Checksum {
        /// The table or block.
        what: String,
        /// The checksum on record.
        expected: u32,
        /// The checksum of the bytes.
        found: u32,
    },
    /// A digest does not match: the bytes are damaged or were changed.
    #[error("{what} is damaged: its SHA-256 does not match")]
    Digest {
        /// The table or block.
        what: String,
    },
    /// Two places of the file state a count differently.
    #[error("{table}: {field} should be {expected} and is {found}")]
    Count {
        /// Where.
        table: Table,
        /// The field.
        field: &'static str,
        /// The count stated elsewhere.
        expected: u64,
        /// The count found.
        found: u64,
    },
    /// A code that this version does not know.
    #[error("{table} entry {entry}: {found} is no known code of field {field}")]
    Code {
        /// Where.
        table: Table,
        /// The field.
        field: &'static str,
        /// Index of the record.
        entry: u64,
        /// The code found.
        found: u64,
    },
    /// An index or count that points beyond what there is.
    #[error("{table} entry {entry}: field {field} is {found}, the limit is {limit}")]
    Range {
        /// Where.
        table: Table,
        /// The field.
        field: &'static str,
        /// Index of the record.
        entry: u64,
        /// The value found.
        found: u64,
        /// The first value that is too great, or for lengths the greatest.
        limit: u64,
    },
    /// A field whose value follows from the others has another value.
    #[error("{table} entry {entry}: field {field} should be {expected} and is {found}")]
    Value {
        /// Where.
        table: Table,
        /// The field.
        field: &'static str,
        /// Index of the record.
        entry: u64,
        /// The only value that fits.
        expected: u64,
        /// The value found.
        found: u64,
    },
    /// A name is no valid UTF-8.
    #[error("name {entry} of the tensor table is no valid UTF-8")]
    NameUtf8 {
        /// Index of the name record.
        entry: u64,
    },
    /// Names are not in ascending order, or one stands twice.
    #[error("name {entry} of the tensor table, {name:?}, does not come after {before:?}")]
    NameOrder {
        /// Index of the name record.
        entry: u64,
        /// The name.
        name: String,
        /// The name before it.
        before: String,
    },
    /// The names of a tensor are no chain of their own.
    #[error("the names of tensor {tensor} are no chain: record {entry} does not belong there")]
    NameChain {
        /// Index of the tensor.
        tensor: u64,
        /// Index of the name record.
        entry: u64,
    },
    /// The bytes of a tensor or slice do not fit 64 bits, or are no whole number.
    #[error("{table} entry {entry}: the shape has no whole number of bytes that fits 64 bits")]
    Shape {
        /// Where.
        table: Table,
        /// Index of the record.
        entry: u64,
    },
    /// The stored shape does not hold the tensor's bytes.
    #[error("the stored shape of tensor {tensor} holds {found} bytes, not {expected}")]
    StoredShape {
        /// Index of the tensor.
        tensor: u64,
        /// Bytes of the tensor.
        expected: u64,
        /// Bytes of the stored shape.
        found: u64,
    },
    /// A slice starts on a byte that its size does not allow.
    #[error("slice {slice} of {len} bytes starts at {found}, which is no multiple of {align}")]
    SliceAlign {
        /// Index of the slice.
        slice: u64,
        /// Its bytes.
        len: u64,
        /// Its first byte.
        found: u64,
        /// Its alignment.
        align: u64,
    },
    /// A slice starts before the one before it ends.
    #[error("slice {slice} starts at {found}, before byte {expected} where the one before it ends")]
    SliceOverlap {
        /// Index of the slice.
        slice: u64,
        /// End of the slice before it.
        expected: u64,
        /// Its first byte.
        found: u64,
    },
    /// The slices of an extent do not end where the extent does.
    #[error("the slices end at byte {found} of an extent of {expected} bytes")]
    SliceEnd {
        /// Bytes of the extent.
        expected: u64,
        /// End of its last slice.
        found: u64,
    },
    /// A part does not fit its slice or its tensor.
    #[error("part {part} of slice {slice}: {fault}")]
    Part {
        /// Index of the slice.
        slice: u64,
        /// Index of the part.
        part: u64,
        /// What is wrong.
        fault: PartFault,
    },
    /// All of a tensor is stored in another shape than the tensor's.
    #[error("slice {slice} is all of tensor {tensor} but has another shape")]
    WholeShape {
        /// Index of the slice.
        slice: u64,
        /// Index of the tensor.
        tensor: u32,
    },
    /// A value slice has another type than its tensor.
    #[error("slice {slice} holds {found}, its tensor {tensor} is {expected}")]
    SliceType {
        /// Index of the slice.
        slice: u64,
        /// Index of the tensor.
        tensor: u32,
        /// Type of the tensor.
        expected: DType,
        /// Type of the slice.
        found: DType,
    },
    /// The description is no JSON of the known form.
    #[error("the description is malformed: {reason}")]
    Description {
        /// What the JSON reader says.
        reason: String,
    },
    /// The description is not written in the one canonical way.
    #[error("the description is not canonical JSON: it differs at byte {at}")]
    NotCanonical {
        /// First byte that differs.
        at: u64,
    },
    /// The description contradicts itself or the tables.
    #[error("the description does not hold together: {fault}")]
    Inconsistent {
        /// What is wrong.
        fault: DescriptionFault,
    },
    /// The owners of an extent are not written in the one canonical way, or exceed the mesh.
    #[error("extent {extent}, owner run {run}: {fault}")]
    Owners {
        /// Index of the extent.
        extent: u64,
        /// Index of the run among the extent's.
        run: u64,
        /// What is wrong.
        fault: OwnersFault,
    },
    /// Something does not lie where the rules of placement put it.
    #[error("{what} should be at byte {expected} and is at {found}")]
    Place {
        /// What.
        what: String,
        /// Its only place.
        expected: u64,
        /// The place found.
        found: u64,
    },
    /// A length or offset does not fit 64 bits.
    #[error("the place of {what} does not fit 64 bits")]
    TooLarge {
        /// What.
        what: String,
    },
}

/// A table of the file, as messages name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Table {
    /// The header.
    Header,
    /// The root's own fields.
    Root,
    /// Component records of the root.
    Components,
    /// Extent records of the root.
    Extents,
    /// Tensor records.
    Tensors,
    /// Name records.
    Names,
    /// Slice records.
    Slices,
    /// Rows of a block table.
    Blocks,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Header => "header",
            Self::Root => "root",
            Self::Components => "component table",
            Self::Extents => "extent table",
            Self::Tensors => "tensor table",
            Self::Names => "name table",
            Self::Slices => "slice table",
            Self::Blocks => "block table",
        })
    }
}

/// What is wrong with a part of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartFault {
    /// The table ends within the part.
    #[error("the table ends within it")]
    Missing,
    /// The first word is no known code.
    #[error("word {0:#x} is no known part")]
    Code(u64),
    /// The tensor does not exist.
    #[error("there is no tensor {0}")]
    Tensor(u32),
    /// A box does not have the slice's size in a dimension other than the part dimension.
    #[error("its size in dimension {dim} is {found}, the slice's is {expected}")]
    Cross {
        /// The dimension.
        dim: u64,
        /// Size of the slice.
        expected: u64,
        /// Size of the box.
        found: u64,
    },
    /// The parts do not add up to the slice.
    #[error("the parts add up to {found} along the part dimension, the slice has {expected}")]
    Sum {
        /// Size of the slice.
        expected: u64,
        /// Sum of the parts.
        found: u64,
    },
    /// The sum of the parts, or the end of one, does not fit 64 bits.
    #[error("its end does not fit 64 bits")]
    Overflow,
    /// A fill value has bits beyond the element.
    #[error("the fill value has bits beyond an element")]
    Fill,
    /// The part ends behind the tensor, or has another number of dimensions.
    #[error("it is not inside tensor {0}")]
    Outside(u32),
    /// The cut of a packed sub-byte type is not whole bytes.
    #[error("the cut is not at whole bytes")]
    SubByte,
}

/// What does not hold together in a description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptionFault {
    /// A name that must be there is empty.
    #[error("{0} has no name")]
    Unnamed(&'static str),
    /// A name stands twice.
    #[error("{what} {name:?} stands twice")]
    Duplicate {
        /// What it names.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A mesh without axes, with an empty axis, or of too many ranks.
    #[error("the mesh has no ranks, or more than 2^32 - 1")]
    Mesh,
    /// A component that does not exist is named.
    #[error("{what} names component {name:?}, which does not exist")]
    Component {
        /// Who names it.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A path is absolute, climbs, or is no plain path.
    #[error("{0:?} is no relative path inside a folder")]
    Path(String),
    /// A digest is not 64 lower-case hexadecimal digits.
    #[error("{0:?} is no SHA-256 in lower-case hexadecimal")]
    Sha256(String),
}

/// What is wrong with owner runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OwnersFault {
    /// More runs are claimed than the root has.
    #[error("the root has no such run")]
    Missing,
    /// A run of no ranks, or with a step of 0, or of one rank with a step other than 1.
    #[error("count and step do not make a run")]
    Empty,
    /// The run does not come after the one before it.
    #[error("it does not come after the run before it")]
    Order,
    /// The same ranks have a shorter form.
    #[error("the same ranks have a shorter form")]
    NotCanonical,
    /// A rank that the mesh does not have.
    #[error("rank {rank} is not in a mesh of {ranks}")]
    Rank {
        /// The rank.
        rank: u64,
        /// Ranks of the mesh.
        ranks: u64,
    },
    /// Ranks are named although the pack has no mesh.
    #[error("ranks are named in a pack without mesh")]
    NoMesh,
}

impl Error {
    /// A stable name of the kind of error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Magic { .. } => "not-a-packfile",
            Self::Version { .. } => "unsupported-version",
            Self::Truncated { .. } => "truncated",
            Self::TrailingBytes { .. } => "trailing-bytes",
            Self::HeaderDigest | Self::Checksum { .. } | Self::Digest { .. } => "damaged",
            Self::ReservedBits { .. } => "reserved-bits",
            _ => "malformed-pack",
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Magic { .. } => {
                "make a pack from a checkpoint with `wpack convert CHECKPOINT -o OUT.wpack`"
            }
            Self::Version { found, newest, .. } if found > newest => {
                "install a newer wpack, or make the pack again with this one: `wpack convert`"
            }
            Self::Version { .. } => {
                "make the pack again from its checkpoint with `wpack convert`, or use the older wpack"
            }
            Self::Truncated { .. } | Self::TrailingBytes { .. } => {
                "copy the file again and compare its length"
            }
            Self::HeaderDigest | Self::Checksum { .. } | Self::Digest { .. } => {
                "copy the file again, or make it again with `wpack convert`; `wpack verify` lists all damage"
            }
            Self::ReservedBits { .. } => {
                "a newer wpack may have written this; install it, or make the pack again with `wpack convert`"
            }
            _ => "the writer was faulty or the file was edited; make it again with `wpack convert`",
        };
        Some(hint.to_string())
    }
}
