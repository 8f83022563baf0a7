//! Tensors into bytes.

use alloc::vec::Vec;

use crate::{
    Tensor, TensorName, TensorTable,
    bytes::{RecordMut, count32, index, wide},
    spec::{
        NONE, SAME_SHAPE, SAME_SOURCE, WORD_LEN, name as nam, tensor as at, tensor_table as head,
    },
};

impl TensorTable {
    /// The bytes of a table. A count or length beyond the limits of the format makes bytes that
    /// [`TensorTable::decode`] refuses.
    #[must_use]
    pub fn encode(tensors: &[Tensor]) -> Vec<u8> {
        let mut names: Vec<(&TensorName, u32, usize)> = Vec::new();
        for (tensor, entry) in (0_u32..).zip(tensors) {
            names.extend(
                entry
                    .names
                    .iter()
                    .enumerate()
                    .map(|(place, name)| (name, tensor, place)),
            );
        }
        names.sort_by(|a, b| a.0.name.cmp(&b.0.name));
        let mut chains: Vec<Vec<u32>> = tensors
            .iter()
            .map(|entry| [NONE].repeat(entry.names.len()))
            .collect();
        for (record, (_, tensor, place)) in (0_u32..).zip(&names) {
            if let Some(link) = chains
                .get_mut(index(*tensor))
                .and_then(|chain| chain.get_mut(*place))
            {
                *link = record;
            }
        }

        let mut words = Vec::new();
        let mut records = Vec::with_capacity(tensors.len() * at::SIZE);
        for (entry, chain) in tensors.iter().zip(&chains) {
            let mut record = RecordMut::<{ at::SIZE }>::new();
            let stored = if entry.stored_shape == entry.shape {
                SAME_SHAPE
            } else {
                dims16(entry.stored_shape.len())
            };
            record
                .put::<{ at::FIRST_NAME }, 4>(chain.first().unwrap_or(&NONE).to_le_bytes())
                .put::<{ at::FIRST_WORD }, 4>(count32(words.len() / WORD_LEN).to_le_bytes())
                .put::<{ at::DTYPE }, 2>(entry.dtype.code().to_le_bytes())
                .put::<{ at::SOURCE_DTYPE }, 2>(entry.source_dtype.code().to_le_bytes())
                .put::<{ at::DIMS }, 2>(dims16(entry.shape.len()).to_le_bytes())
                .put::<{ at::STORED_DIMS }, 2>(stored.to_le_bytes())
                .put::<{ at::RULE }, 4>(entry.rule.to_le_bytes())
                .put::<{ at::SOURCE }, 4>(entry.source.unwrap_or(NONE).to_le_bytes())
                .put::<{ at::ROLE }, 1>([entry.role as u8]);
            records.extend_from_slice(&record.0);
            words.extend(entry.shape.iter().flat_map(|dim| dim.to_le_bytes()));
            if stored != SAME_SHAPE {
                words.extend(entry.stored_shape.iter().flat_map(|dim| dim.to_le_bytes()));
            }
        }

        let mut text = Vec::new();
        let mut name_records = Vec::with_capacity(names.len() * nam::SIZE);
        for (name, tensor, place) in &names {
            let same = name.name == name.source;
            let next = chains
                .get(index(*tensor))
                .and_then(|chain| chain.get(place + 1));
            let source_len = if same {
                SAME_SOURCE
            } else {
                count32(name.source.len())
            };
            let mut record = RecordMut::<{ nam::SIZE }>::new();
            record
                .put::<{ nam::TEXT }, 4>(count32(text.len()).to_le_bytes())
                .put::<{ nam::NAME_LEN }, 4>(count32(name.name.len()).to_le_bytes())
                .put::<{ nam::SOURCE_LEN }, 4>(source_len.to_le_bytes())
                .put::<{ nam::TENSOR }, 4>(tensor.to_le_bytes())
                .put::<{ nam::NEXT }, 4>(next.unwrap_or(&NONE).to_le_bytes());
            name_records.extend_from_slice(&record.0);
            text.extend_from_slice(name.name.as_bytes());
            if !same {
                text.extend_from_slice(name.source.as_bytes());
            }
        }

        let mut start = RecordMut::<{ head::SIZE }>::new();
        start
            .put::<{ head::TENSOR_COUNT }, 4>(count32(tensors.len()).to_le_bytes())
            .put::<{ head::NAME_COUNT }, 4>(count32(names.len()).to_le_bytes())
            .put::<{ head::WORD_COUNT }, 8>(wide(words.len() / WORD_LEN).to_le_bytes());
        [&start.0[..], &records, &words, &name_records, &text].concat()
    }
}

/// A number of dimensions; one that does not fit becomes one that no reader accepts.
fn dims16(n: usize) -> u16 {
    u16::try_from(n).unwrap_or(u16::MAX).min(SAME_SHAPE - 1)
}
