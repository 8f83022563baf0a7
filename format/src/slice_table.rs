//! The slice table of an extent.

use alloc::{string::ToString as _, vec::Vec};

use crate::{
    BoxPart, Content, DType, Error, FlatPart, Slice, SliceKind,
    align::slice_align,
    bytes::{Record, RecordMut, Words, count32, element_count, index, wide},
    error::{PartFault, Table},
    slice_check::TensorShapes,
    slice_ref::{BoxPartRef, ContentRef, SliceRef, has_crc},
    spec::{self, WORD_LEN, slice as at, slice_table as head},
    tensor_table::value,
};

type SliceRecord = [u8; at::SIZE];

/// A checked slice table over its own bytes; entries are read on demand.
#[derive(Clone, Debug)]
pub struct SliceTable<D = Vec<u8>> {
    bytes: D,
}

impl SliceTable {
    /// The bytes of a table. Their number does not depend on offsets or checksums, so it is known
    /// before any data is written. A count or length beyond the limits of the format makes bytes
    /// that [`SliceTable::decode`] refuses.
    #[must_use]
    pub fn encode(slices: &[Slice]) -> Vec<u8> {
        let mut words: Vec<u8> = Vec::new();
        let mut records = Vec::with_capacity(slices.len() * at::SIZE);
        for slice in slices {
            let (content, tensor, dim, parts) = match &slice.content {
                Content::Whole { tensor } => (spec::CONTENT_WHOLE, *tensor, 0, 0),
                Content::Boxes { tensor, dim, parts } => {
                    (spec::CONTENT_BOXES, *tensor, *dim, parts.len())
                }
                Content::Flat { parts } => (spec::CONTENT_FLAT, 0, 0, parts.len()),
            };
            let len = slice.len_bytes().unwrap_or(u64::MAX);
            let crc = slice.crc32c.filter(|_| has_crc(len)).unwrap_or(0);
            let dims = u16::try_from(slice.shape.len()).unwrap_or(u16::MAX);
            let mut record = RecordMut::<{ at::SIZE }>::new();
            record
                .put::<{ at::OFFSET }, 8>(slice.offset.to_le_bytes())
                .put::<{ at::LEN }, 8>(len.to_le_bytes())
                .put::<{ at::CRC32C }, 4>(crc.to_le_bytes())
                .put::<{ at::TENSOR }, 4>(tensor.to_le_bytes())
                .put::<{ at::PART_COUNT }, 4>(count32(parts).to_le_bytes())
                .put::<{ at::FIRST_WORD }, 4>(count32(words.len() / WORD_LEN).to_le_bytes())
                .put::<{ at::DTYPE }, 2>(slice.dtype.code().to_le_bytes())
                .put::<{ at::DIMS }, 2>(dims.to_le_bytes())
                .put::<{ at::PART_DIM }, 2>(u16::try_from(dim).unwrap_or(u16::MAX).to_le_bytes())
                .put::<{ at::KIND }, 1>([slice.kind as u8])
                .put::<{ at::CONTENT }, 1>([content]);
            records.extend_from_slice(&record.0);
            put_words(&mut words, slice.shape.iter().copied());
            put_content(&mut words, &slice.content);
        }
        let mut start = RecordMut::<{ head::SIZE }>::new();
        start
            .put::<{ head::SLICE_COUNT }, 4>(count32(slices.len()).to_le_bytes())
            .put::<{ head::WORD_COUNT }, 8>(wide(words.len() / WORD_LEN).to_le_bytes());
        [&start.0[..], &records, &words].concat()
    }
}

fn put_words(words: &mut Vec<u8>, values: impl IntoIterator<Item = u64>) {
    words.extend(values.into_iter().flat_map(u64::to_le_bytes));
}

fn put_content(words: &mut Vec<u8>, content: &Content) {
    let fill = |words: &mut Vec<u8>, len: u64, value: &[u8; 16]| {
        put_words(words, [spec::PART_FILL.into(), len]);
        words.extend_from_slice(value);
    };
    match content {
        Content::Whole { .. } => {}
        Content::Boxes { parts, .. } => {
            for part in parts {
                match part {
                    BoxPart::Box { start, size } => {
                        put_words(words, [spec::PART_DATA.into()]);
                        put_words(words, start.iter().chain(size).copied());
                    }
                    BoxPart::Fill { size, value } => fill(words, *size, &value.0),
                }
            }
        }
        Content::Flat { parts } => {
            for part in parts {
                match part {
                    FlatPart::Range { tensor, start, len } => {
                        let code = u64::from(spec::PART_DATA) | u64::from(*tensor) << 32;
                        put_words(words, [code, *start, *len]);
                    }
                    FlatPart::Fill { len, value } => fill(words, *len, &value.0),
                }
            }
        }
    }
}

impl<D: AsRef<[u8]>> SliceTable<D> {
    /// Checks the table's structure: counts, ascending offsets without overlap, all within
    /// `extent_len`, tensors below `tensor_count`, shapes against parts; nothing allocated per slice.
    ///
    /// What the tensors themselves must be is [`SliceTable::check_tensors`].
    pub fn decode(
        bytes: D,
        slice_count: u32,
        extent_len: u64,
        tensor_count: u32,
    ) -> Result<Self, Error> {
        let (records, pool) = split(bytes.as_ref())?;
        if wide(records.len()) != u64::from(slice_count) {
            return Err(Error::Count {
                table: Table::Slices,
                field: "SLICE_COUNT",
                expected: slice_count.into(),
                found: wide(records.len()),
            });
        }
        let (mut end, mut word) = (0, 0);
        for (entry, record) in records.iter().enumerate() {
            let record = Record(record);
            value(
                Table::Slices,
                "FIRST_WORD",
                entry,
                word,
                record.u32::<{ at::FIRST_WORD }>().into(),
            )?;
            let slice = check_record(entry, record, pool)?;
            let rest = check_content(entry, &slice, tensor_count)?;
            word = wide(pool.len() - rest.len());
            end = check_place(entry, &slice, end, extent_len)?;
        }
        value(
            Table::Slices,
            "WORD_COUNT",
            records.len(),
            word,
            wide(pool.len()),
        )?;
        if end != extent_len {
            return Err(Error::SliceEnd {
                expected: extent_len,
                found: end,
            });
        }
        Ok(Self { bytes })
    }

    /// Checks every slice against the tensors it holds: boxes and ranges inside them, types equal,
    /// cuts of packed types at whole bytes.
    pub fn check_tensors(&self, tensors: &(impl TensorShapes + ?Sized)) -> Result<(), Error> {
        self.iter()
            .enumerate()
            .try_for_each(|(i, slice)| slice.check(wide(i), tensors))
    }

    /// Number of slices.
    pub fn len(&self) -> usize {
        self.sections().0.len()
    }

    /// True without slices.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slice of an index.
    pub fn get(&self, index: u32) -> Option<Slice> {
        self.get_ref(index).map(|slice| slice.to_slice())
    }

    /// The slice of an index, without allocating.
    pub fn get_ref(&self, entry: u32) -> Option<SliceRef<'_>> {
        let (records, pool) = self.sections();
        SliceRef::read(Record(records.get(index(entry))?), pool)
    }

    /// All slices by ascending offset, without allocating.
    pub fn iter(&self) -> impl Iterator<Item = SliceRef<'_>> {
        let (records, pool) = self.sections();
        records
            .iter()
            .map_while(move |record| SliceRef::read(Record(record), pool))
    }

    fn sections(&self) -> (&[SliceRecord], Words<'_>) {
        // Split without fault in `decode`.
        split(self.bytes.as_ref()).unwrap_or_default()
    }
}

fn split(bytes: &[u8]) -> Result<(&[SliceRecord], Words<'_>), Error> {
    let length = |expected| Error::Length {
        what: Table::Slices.to_string(),
        expected,
        found: wide(bytes.len()),
    };
    let (start, body) = bytes
        .split_first_chunk::<{ head::SIZE }>()
        .ok_or_else(|| length(wide(head::SIZE)))?;
    let start = Record(start);
    if start.u32::<{ head::RESERVED }>() != 0 {
        return Err(Error::ReservedBits {
            table: Table::Slices,
            field: "RESERVED",
            entry: 0,
        });
    }
    // No overflow: a 32-bit count of small records.
    let records_len = u64::from(start.u32::<{ head::SLICE_COUNT }>()) * wide(at::SIZE);
    let words_len = start
        .u64::<{ head::WORD_COUNT }>()
        .saturating_mul(wide(WORD_LEN));
    let expected = (records_len + wide(head::SIZE)).saturating_add(words_len);
    let middle = usize::try_from(records_len)
        .ok()
        .filter(|_| expected == wide(bytes.len()));
    let (records, words) = middle
        .and_then(|at| body.split_at_checked(at))
        .ok_or_else(|| length(expected))?;
    Ok((records.as_chunks().0, Words(words.as_chunks().0)))
}

/// The record's codes are known, what must be zero is, and its length is that of its shape.
fn check_record<'a>(
    i: usize,
    record: Record<'_, { at::SIZE }>,
    pool: Words<'a>,
) -> Result<SliceRef<'a>, Error> {
    let (table, entry) = (Table::Slices, wide(i));
    let code = |field, found| Error::Code {
        table,
        field,
        entry,
        found,
    };
    let range = |field, found, limit| Error::Range {
        table,
        field,
        entry,
        found,
        limit,
    };
    let dtype = record.u16::<{ at::DTYPE }>();
    let dtype = DType::from_code(dtype).ok_or_else(|| code("DTYPE", dtype.into()))?;
    let kind = record.u8::<{ at::KIND }>();
    if SliceKind::from_code(kind).is_none() {
        return Err(code("KIND", kind.into()));
    }
    let dims = record.u16::<{ at::DIMS }>();
    if dims > spec::MAX_DIMS {
        return Err(range("DIMS", dims.into(), spec::MAX_DIMS.into()));
    }
    let content = record.u8::<{ at::CONTENT }>();
    let part_dim = record.u16::<{ at::PART_DIM }>();
    let parts = record.u32::<{ at::PART_COUNT }>();
    let tensor = record.u32::<{ at::TENSOR }>();
    match content {
        spec::CONTENT_WHOLE => {
            value(table, "PART_DIM", i, 0, part_dim.into())?;
            value(table, "PART_COUNT", i, 0, parts.into())?;
        }
        spec::CONTENT_BOXES => {
            if part_dim >= dims {
                return Err(range("PART_DIM", part_dim.into(), dims.into()));
            }
        }
        spec::CONTENT_FLAT => {
            value(table, "PART_DIM", i, 0, part_dim.into())?;
            value(table, "TENSOR", i, 0, tensor.into())?;
            value(table, "DIMS", i, 1, dims.into())?;
        }
        _ => return Err(code("CONTENT", content.into())),
    }
    let slice =
        SliceRef::read(record, pool).ok_or_else(|| range("DIMS", dims.into(), wide(pool.len())))?;
    let bytes = element_count(slice.shape.iter())
        .and_then(|elements| dtype.bytes(elements))
        .ok_or(Error::Shape { table, entry })?;
    value(table, "LEN", i, bytes, slice.len)?;
    if !has_crc(bytes) {
        value(table, "CRC32C", i, 0, record.u32::<{ at::CRC32C }>().into())?;
    }
    Ok(slice)
}

/// The parts are well-formed and make up the slice's shape; gives the words behind them.
fn check_content<'a>(
    i: usize,
    slice: &SliceRef<'a>,
    tensor_count: u32,
) -> Result<Words<'a>, Error> {
    let entry = wide(i);
    let tensor_known = |tensor: u32| {
        if tensor < tensor_count {
            return Ok(());
        }
        let (found, limit) = (tensor.into(), tensor_count.into());
        Err(Error::Range {
            table: Table::Slices,
            field: "TENSOR",
            entry,
            found,
            limit,
        })
    };
    match slice.content {
        ContentRef::Whole { tensor } => {
            tensor_known(tensor)?;
            Ok(slice.behind_shape)
        }
        ContentRef::Boxes {
            tensor,
            dim,
            mut parts,
        } => {
            tensor_known(tensor)?;
            let (mut sum, mut part) = (0_u64, 0);
            let along = slice.shape.get(index(dim)).unwrap_or(0);
            while let Some(next) = parts.try_next() {
                let fail = |fault| Error::Part {
                    slice: entry,
                    part,
                    fault,
                };
                let size = check_box(next.map_err(fail)?, slice, dim).map_err(fail)?;
                sum = sum
                    .checked_add(size)
                    .ok_or_else(|| fail(PartFault::Overflow))?;
                part += 1;
            }
            check_sum(entry, part, along, sum)?;
            Ok(parts.rest())
        }
        ContentRef::Flat { mut parts } => {
            let (mut sum, mut part) = (0_u64, 0);
            let along = slice.shape.get(0).unwrap_or(0);
            while let Some(next) = parts.try_next() {
                let fail = |fault| Error::Part {
                    slice: entry,
                    part,
                    fault,
                };
                let size = match next.map_err(fail)? {
                    FlatPart::Range { tensor, .. } if tensor >= tensor_count => {
                        return Err(fail(PartFault::Tensor(tensor)));
                    }
                    FlatPart::Range { start, len, .. } => {
                        start
                            .checked_add(len)
                            .ok_or_else(|| fail(PartFault::Overflow))?;
                        len
                    }
                    FlatPart::Fill { len, value } => {
                        if !value.fits(slice.dtype) {
                            return Err(fail(PartFault::Fill));
                        }
                        len
                    }
                };
                sum = sum
                    .checked_add(size)
                    .ok_or_else(|| fail(PartFault::Overflow))?;
                part += 1;
            }
            check_sum(entry, part, along, sum)?;
            Ok(parts.rest())
        }
    }
}

/// A box is as wide as the slice but along `dim`; gives its size there.
fn check_box(part: BoxPartRef<'_>, slice: &SliceRef<'_>, dim: u32) -> Result<u64, PartFault> {
    match part {
        BoxPartRef::Box { start, size } => {
            let mut along = 0;
            for (((start, found), expected), i) in start
                .iter()
                .zip(size.iter())
                .zip(slice.shape.iter())
                .zip(0_u32..)
            {
                start.checked_add(found).ok_or(PartFault::Overflow)?;
                if i == dim {
                    along = found;
                } else if found != expected {
                    return Err(PartFault::Cross {
                        dim: i.into(),
                        expected,
                        found,
                    });
                }
            }
            Ok(along)
        }
        BoxPartRef::Fill { value, .. } if !value.fits(slice.dtype) => Err(PartFault::Fill),
        BoxPartRef::Fill { size, .. } => Ok(size),
    }
}

fn check_sum(slice: u64, part: u64, expected: u64, found: u64) -> Result<(), Error> {
    if expected == found {
        return Ok(());
    }
    let fault = PartFault::Sum { expected, found };
    Err(Error::Part {
        slice,
        part: part.saturating_sub(1),
        fault,
    })
}

/// The slice is aligned, behind the one before it and inside the extent; gives its end.
fn check_place(i: usize, slice: &SliceRef<'_>, before: u64, extent_len: u64) -> Result<u64, Error> {
    let (entry, found, len) = (wide(i), slice.offset, slice.len);
    let align = slice_align(len);
    if found % align != 0 {
        return Err(Error::SliceAlign {
            slice: entry,
            len,
            found,
            align,
        });
    }
    if found < before {
        return Err(Error::SliceOverlap {
            slice: entry,
            expected: before,
            found,
        });
    }
    found
        .checked_add(len)
        .filter(|end| *end <= extent_len)
        .ok_or(Error::Range {
            table: Table::Slices,
            field: "OFFSET",
            entry,
            found,
            limit: extent_len.saturating_sub(len),
        })
}
