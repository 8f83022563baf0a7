//! Every number `docs/format.md` states, and nothing else.

/// First eight bytes of a packfile.
pub const MAGIC: [u8; 8] = *b"\x89WPACK\r\n";
/// The version this crate writes.
pub const VERSION: u32 = 1;
/// The oldest version this crate reads.
pub const OLDEST_VERSION: u32 = 1;
/// Bytes of the header.
pub const HEADER_LEN: u64 = 4096;
/// Bytes of a block: the unit of checksumming and of transfer.
pub const BLOCK_LEN: u64 = 8 << 20;
/// The least alignment of an extent, bytes.
pub const EXTENT_ALIGN_MIN: u64 = 4096;
/// Alignment of extents of a pack below [`SMALL_PACK`], bytes.
pub const EXTENT_ALIGN_SMALL: u64 = 64 << 10;
/// Alignment of extents otherwise, bytes.
pub const EXTENT_ALIGN: u64 = 2 << 20;
/// The greatest alignment of an extent, bytes.
pub const EXTENT_ALIGN_MAX: u64 = 1 << 30;
/// A pack whose extents sum to less than this many bytes uses [`EXTENT_ALIGN_SMALL`].
pub const SMALL_PACK: u64 = 64 << 20;
/// A slice of at least this many bytes starts on a multiple of it within its extent.
pub const SLICE_PAGE: u64 = 4096;
/// A smaller slice starts on a multiple of this.
pub const SLICE_ALIGN: u64 = 512;
/// Tables and embedded files start on a multiple of this many bytes.
pub const TABLE_ALIGN: u64 = 8;
/// The most dimensions of a tensor or slice.
pub const MAX_DIMS: u16 = 255;
/// No such index: a tensor without source file, the last name of a tensor.
pub const NONE: u32 = u32::MAX;
/// In a name record: the source name equals the name and is not stored again.
pub const SAME_SOURCE: u32 = u32::MAX;
/// In a tensor record: the stored shape equals the shape and is not stored again.
pub const SAME_SHAPE: u16 = u16::MAX;
/// Bytes of one entry of a table's word pool.
pub const WORD_LEN: usize = 8;
/// Content code of a slice that is all of one tensor.
pub const CONTENT_WHOLE: u8 = 0;
/// Content code of a slice of boxes.
pub const CONTENT_BOXES: u8 = 1;
/// Content code of a slice of flat ranges.
pub const CONTENT_FLAT: u8 = 2;
/// First word of a part that holds elements of a tensor: its low half.
pub const PART_DATA: u32 = 0;
/// First word of a part that holds fill: its low half.
pub const PART_FILL: u32 = 1;

/// One field of a fixed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name of its constant.
    pub name: &'static str,
    /// First byte in the record.
    pub at: usize,
    /// Bytes.
    pub len: usize,
}

macro_rules! record {
    ($(#[$doc:meta])* $module:ident = $size:literal { $($(#[$field_doc:meta])* $name:ident = $at:literal, $len:literal;)* }) => {
        $(#[$doc])*
        pub mod $module {
            use super::Field;

            /// Bytes of the record.
            pub const SIZE: usize = $size;
            $($(#[$field_doc])* pub const $name: usize = $at;)*
            /// Every field; together they cover the record.
            pub const FIELDS: &[Field] =
                &[$(Field { name: stringify!($name), at: $at, len: $len }),*];
        }
    };
}

record! {
    /// The header.
    header = 4096 {
        /// [`super::MAGIC`].
        MAGIC = 0, 8;
        /// Version of the format.
        VERSION = 8, 4;
        /// Bytes of the header.
        HEADER_LEN = 12, 4;
        /// Flags that a reader refuses when set.
        RESERVED_FLAGS = 16, 8;
        /// Flags that a reader ignores.
        UNUSED_FLAGS = 24, 8;
        /// Exact length of the file.
        FILE_LEN = 32, 8;
        /// Bytes of the index, which starts behind the header.
        INDEX_LEN = 40, 8;
        /// Alignment of extents.
        EXTENT_ALIGN = 48, 8;
        /// Bytes of a block.
        BLOCK_LEN = 56, 8;
        /// Alignment of slices of a page or more.
        SLICE_PAGE = 64, 4;
        /// Alignment of smaller slices.
        SLICE_ALIGN = 68, 4;
        /// First byte of the root.
        ROOT_OFFSET = 72, 8;
        /// Bytes of the root.
        ROOT_LEN = 80, 8;
        /// SHA-256 of the root: the identity of the pack.
        ROOT_SHA256 = 88, 32;
        /// CRC-32C of the root.
        ROOT_CRC32C = 120, 4;
        /// Zero.
        RESERVED = 124, 3940;
        /// SHA-256 of all bytes before.
        SHA256 = 4064, 32;
    }
}

record! {
    /// A reference to a table.
    table_ref = 52 {
        /// First byte in the file.
        OFFSET = 0, 8;
        /// Bytes.
        LEN = 8, 8;
        /// SHA-256.
        SHA256 = 16, 32;
        /// CRC-32C.
        CRC32C = 48, 4;
    }
}

record! {
    /// The start of the root.
    root = 24 {
        /// Bytes of the description.
        DESCRIPTION_LEN = 0, 8;
        /// Number of component records.
        COMPONENT_COUNT = 8, 4;
        /// Number of extent records.
        EXTENT_COUNT = 12, 4;
        /// Number of owner runs.
        RUN_COUNT = 16, 4;
        /// Zero.
        RESERVED = 20, 4;
    }
}

record! {
    /// A component record.
    component = 64 {
        /// Reference to the tensor table.
        TENSOR_TABLE = 0, 52;
        /// Number of tensors.
        TENSOR_COUNT = 52, 4;
        /// Zero.
        RESERVED = 56, 8;
    }
}

record! {
    /// An extent record.
    extent = 136 {
        /// First byte in the file.
        OFFSET = 0, 8;
        /// Bytes without the padding behind.
        LEN = 8, 8;
        /// Index of the component.
        COMPONENT = 16, 4;
        /// Number of slices.
        SLICE_COUNT = 20, 4;
        /// Number of owner runs; 0 for all ranks of any world size.
        RUN_COUNT = 24, 4;
        /// Flags that a reader refuses when set.
        RESERVED_FLAGS = 28, 2;
        /// Flags that a reader ignores.
        UNUSED_FLAGS = 30, 2;
        /// Reference to the slice table.
        SLICE_TABLE = 32, 52;
        /// Reference to the block table.
        BLOCK_TABLE = 84, 52;
    }
}

record! {
    /// A run of owners.
    run = 12 {
        /// The lowest rank.
        FIRST = 0, 4;
        /// Number of ranks.
        COUNT = 4, 4;
        /// Distance between two ranks.
        STEP = 8, 4;
    }
}

record! {
    /// The start of a tensor table.
    tensor_table = 16 {
        /// Number of tensor records.
        TENSOR_COUNT = 0, 4;
        /// Number of name records.
        NAME_COUNT = 4, 4;
        /// Number of words in the pool.
        WORD_COUNT = 8, 8;
    }
}

record! {
    /// A tensor record.
    tensor = 32 {
        /// Index of the record of its first name.
        FIRST_NAME = 0, 4;
        /// Index of its first word.
        FIRST_WORD = 4, 4;
        /// Element type.
        DTYPE = 8, 2;
        /// Element type in the checkpoint.
        SOURCE_DTYPE = 10, 2;
        /// Number of dimensions.
        DIMS = 12, 2;
        /// Number of dimensions of the stored shape, or [`super::SAME_SHAPE`].
        STORED_DIMS = 14, 2;
        /// Index of the rule.
        RULE = 16, 4;
        /// Index of the source file, or [`super::NONE`].
        SOURCE = 20, 4;
        /// Parameter or buffer.
        ROLE = 24, 1;
        /// Zero.
        RESERVED = 25, 7;
    }
}

record! {
    /// A name record.
    name = 20 {
        /// First byte of the name in the text pool.
        TEXT = 0, 4;
        /// Bytes of the name.
        NAME_LEN = 4, 4;
        /// Bytes of the source name behind it, or [`super::SAME_SOURCE`].
        SOURCE_LEN = 8, 4;
        /// Index of the tensor.
        TENSOR = 12, 4;
        /// Index of the record of the tensor's next name, or [`super::NONE`].
        NEXT = 16, 4;
    }
}

record! {
    /// The start of a slice table.
    slice_table = 16 {
        /// Number of slice records.
        SLICE_COUNT = 0, 4;
        /// Zero.
        RESERVED = 4, 4;
        /// Number of words in the pool.
        WORD_COUNT = 8, 8;
    }
}

record! {
    /// A slice record.
    slice = 40 {
        /// First byte in the extent.
        OFFSET = 0, 8;
        /// Bytes.
        LEN = 8, 8;
        /// CRC-32C of a slice smaller than a block, else 0.
        CRC32C = 16, 4;
        /// Index of the tensor; 0 for flat content.
        TENSOR = 20, 4;
        /// Number of parts; 0 for whole content.
        PART_COUNT = 24, 4;
        /// Index of its first word.
        FIRST_WORD = 28, 4;
        /// Element type.
        DTYPE = 32, 2;
        /// Number of dimensions.
        DIMS = 34, 2;
        /// Dimension of the parts; 0 except for boxes.
        PART_DIM = 36, 2;
        /// Value or master copy.
        KIND = 38, 1;
        /// Whole, boxes or flat.
        CONTENT = 39, 1;
    }
}

record! {
    /// A row of a block table.
    block = 36 {
        /// CRC-32C.
        CRC32C = 0, 4;
        /// SHA-256.
        SHA256 = 4, 32;
    }
}

/// Every record: name, bytes, fields.
pub const RECORDS: &[(&str, usize, &[Field])] = &[
    ("header", header::SIZE, header::FIELDS),
    ("table_ref", table_ref::SIZE, table_ref::FIELDS),
    ("root", root::SIZE, root::FIELDS),
    ("component", component::SIZE, component::FIELDS),
    ("extent", extent::SIZE, extent::FIELDS),
    ("run", run::SIZE, run::FIELDS),
    ("tensor_table", tensor_table::SIZE, tensor_table::FIELDS),
    ("tensor", tensor::SIZE, tensor::FIELDS),
    ("name", name::SIZE, name::FIELDS),
    ("slice_table", slice_table::SIZE, slice_table::FIELDS),
    ("slice", slice::SIZE, slice::FIELDS),
    ("block", block::SIZE, block::FIELDS),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of version 1 exist: none of these may ever change.
    #[test]
    fn frozen_since_v1() {
        assert_eq!(MAGIC, [0x89, 0x57, 0x50, 0x41, 0x43, 0x4b, 0x0d, 0x0a]);
        assert_eq!(OLDEST_VERSION, 1);
        assert_eq!((HEADER_LEN, TABLE_ALIGN, WORD_LEN), (4096, 8, 8));
        assert_eq!(BLOCK_LEN, 8_388_608);
        assert_eq!((EXTENT_ALIGN_MIN, EXTENT_ALIGN_MAX), (4096, 1_073_741_824));
        assert_eq!((SLICE_PAGE, SLICE_ALIGN), (4096, 512));
        assert_eq!(MAX_DIMS, 255);
        assert_eq!(
            (NONE, SAME_SOURCE, SAME_SHAPE),
            (0xffff_ffff, 0xffff_ffff, 0xffff)
        );
        assert_eq!((CONTENT_WHOLE, CONTENT_BOXES, CONTENT_FLAT), (0, 1, 2));
        assert_eq!((PART_DATA, PART_FILL), (0, 1));
    }

    /// As above, for the records: name, bytes, and where each field starts.
    #[test]
    fn records_frozen_since_v1() {
        let frozen: [(&str, usize, &[usize]); 12] = [
            (
                "header",
                4096,
                &[
                    0, 8, 12, 16, 24, 32, 40, 48, 56, 64, 68, 72, 80, 88, 120, 124, 4064,
                ],
            ),
            ("table_ref", 52, &[0, 8, 16, 48]),
            ("root", 24, &[0, 8, 12, 16, 20]),
            ("component", 64, &[0, 52, 56]),
            ("extent", 136, &[0, 8, 16, 20, 24, 28, 30, 32, 84]),
            ("run", 12, &[0, 4, 8]),
            ("tensor_table", 16, &[0, 4, 8]),
            ("tensor", 32, &[0, 4, 8, 10, 12, 14, 16, 20, 24, 25]),
            ("name", 20, &[0, 4, 8, 12, 16]),
            ("slice_table", 16, &[0, 4, 8]),
            ("slice", 40, &[0, 8, 16, 20, 24, 28, 32, 34, 36, 38, 39]),
            ("block", 36, &[0, 4]),
        ];
        assert_eq!(RECORDS.len(), frozen.len());
        for ((name, size, fields), (frozen_name, frozen_size, starts)) in RECORDS.iter().zip(frozen)
        {
            assert_eq!((*name, *size), (frozen_name, frozen_size));
            assert!(
                fields
                    .iter()
                    .map(|field| field.at)
                    .eq(starts.iter().copied()),
                "{name}"
            );
        }
    }

    #[test]
    fn fields_cover_their_record() {
        for (name, size, fields) in RECORDS {
            let mut end = 0;
            for field in *fields {
                assert_eq!(field.at, end, "{name}.{}", field.name);
                end += field.len;
            }
            assert_eq!(end, *size, "{name}");
        }
    }
}
