//! The slice table of an extent.

mod check;
mod encode;

use alloc::{string::ToString as _, vec::Vec};

use crate::{
    Error, Slice, TensorTable,
    bytes::{Record, Words, index, wide},
    check::value,
    error::Table,
    slice_ref::SliceRef,
    spec::{WORD_LEN, slice as at, slice_table as head},
};

type SliceRecord = [u8; at::SIZE];

/// A checked slice table over its own bytes; entries are read on demand.
#[derive(Clone, Debug)]
pub struct SliceTable<D = Vec<u8>> {
    bytes: D,
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
            let slice = check::record(entry, record, pool)?;
            let rest = check::content(entry, &slice, tensor_count)?;
            word = wide(pool.len() - rest.len());
            end = check::place(entry, &slice, end, extent_len)?;
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
    pub fn check_tensors<E: AsRef<[u8]>>(&self, tensors: &TensorTable<E>) -> Result<(), Error> {
        let tensors = tensors.parts();
        self.iter()
            .enumerate()
            .try_for_each(|(i, slice)| slice.check(wide(i), &tensors))
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
