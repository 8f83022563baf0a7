//! Slices into bytes.

use alloc::vec::Vec;

use crate::{
    BoxPart, Content, FlatPart, Slice, SliceTable,
    bytes::{RecordMut, count32, wide},
    slice_ref::has_crc,
    spec::{self, WORD_LEN, slice as at, slice_table as head},
};

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
