//! Tensors read from their table without allocating.

use alloc::string::ToString as _;
use core::str;

use crate::{
    DType, Error, Role, Tensor, TensorName,
    bytes::{Record, Words, element_count, index, wide},
    error::Table,
    spec::{
        NONE, SAME_SHAPE, SAME_SOURCE, WORD_LEN, name as nam, tensor as at, tensor_table as head,
    },
};

type TensorRecord = [u8; at::SIZE];
type NameRecord = [u8; nam::SIZE];

/// A tensor in its table, read without allocating.
#[derive(Clone, Copy, Debug)]
pub struct TensorRef<'a> {
    /// Element type in the pack.
    pub dtype: DType,
    /// Element type in the checkpoint.
    pub source_dtype: DType,
    /// Parameter or buffer.
    pub role: Role,
    /// Index into the resolved plan's rules.
    pub rule: u32,
    /// Index into the description's source files.
    pub source: Option<u32>,
    /// Logical elements per dimension.
    pub shape: Words<'a>,
    /// Shape as a program sees it whose elements are whole bytes.
    pub stored_shape: Words<'a>,
    pub(super) first_name: u32,
    parts: Parts<'a>,
}

impl<'a> TensorRef<'a> {
    /// Its names, the first one first; further ones are ties.
    pub fn names(&self) -> impl Iterator<Item = NameRef<'a>> + use<'a> {
        let (parts, mut next) = (self.parts, self.first_name);
        // The chain was followed to its end by `decode`; the bound is for bytes that changed since.
        (0..parts.names.len()).map_while(move |_| {
            let record = parts.names.get(index(next))?;
            next = Record(record).u32::<{ nam::NEXT }>();
            let (name, source) = parts.text_of(record)?;
            Some(NameRef {
                name: str::from_utf8(name).ok()?,
                source: str::from_utf8(source).ok()?,
            })
        })
    }

    /// Its first name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.names().next().map_or("", |name| name.name)
    }

    /// Number of its elements.
    #[must_use]
    pub fn elements(&self) -> u64 {
        // `decode` refused shapes whose product overflows.
        element_count(self.shape.iter()).unwrap_or(0)
    }

    /// Number of its bytes, whole.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.dtype.bytes(self.elements()).unwrap_or(0)
    }

    /// The tensor, owned.
    #[must_use]
    pub fn to_tensor(&self) -> Tensor {
        let name = |name: NameRef<'_>| TensorName {
            name: name.name.to_string(),
            source: name.source.to_string(),
        };
        Tensor {
            names: self.names().map(name).collect(),
            dtype: self.dtype,
            source_dtype: self.source_dtype,
            shape: self.shape.to_vec(),
            stored_shape: self.stored_shape.to_vec(),
            role: self.role,
            rule: self.rule,
            source: self.source,
        }
    }
}

/// A name of a tensor and what it was called in the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameRef<'a> {
    /// In the pack.
    pub name: &'a str,
    /// In the checkpoint.
    pub source: &'a str,
}

/// The table's bytes by section.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parts<'a> {
    pub(super) tensors: &'a [TensorRecord],
    pub(super) words: Words<'a>,
    pub(super) names: &'a [NameRecord],
    pub(super) text: &'a [u8],
}

impl<'a> Parts<'a> {
    pub(super) fn split(bytes: &'a [u8]) -> Result<Self, Error> {
        let length = |expected: u64| Error::Length {
            what: Table::Tensors.to_string(),
            expected,
            found: wide(bytes.len()),
        };
        let (start, body) = bytes
            .split_first_chunk::<{ head::SIZE }>()
            .ok_or_else(|| length(wide(head::SIZE)))?;
        let start = Record(start);
        let counts = [
            (u64::from(start.u32::<{ head::TENSOR_COUNT }>()), at::SIZE),
            (start.u64::<{ head::WORD_COUNT }>(), WORD_LEN),
            (u64::from(start.u32::<{ head::NAME_COUNT }>()), nam::SIZE),
        ];
        let mut rest = body;
        let mut section = |(count, size): (u64, usize)| {
            let len = count
                .checked_mul(wide(size))
                .and_then(|len| usize::try_from(len).ok())?;
            let (section, tail) = rest.split_at_checked(len)?;
            rest = tail;
            Some(section)
        };
        let [Some(tensors), Some(words), Some(names)] = counts.map(&mut section) else {
            let records: u64 = counts.iter().fold(wide(head::SIZE), |sum, (count, size)| {
                sum.saturating_add(count.saturating_mul(wide(*size)))
            });
            return Err(length(records));
        };
        Ok(Self {
            tensors: tensors.as_chunks().0,
            words: Words(words.as_chunks().0),
            names: names.as_chunks().0,
            text: rest,
        })
    }

    /// A name and its source name.
    pub(super) fn text_of(&self, record: &NameRecord) -> Option<(&'a [u8], &'a [u8])> {
        let record = Record(record);
        let text = self.text.get(index(record.u32::<{ nam::TEXT }>())..)?;
        let (name, rest) = text.split_at_checked(index(record.u32::<{ nam::NAME_LEN }>()))?;
        match record.u32::<{ nam::SOURCE_LEN }>() {
            SAME_SOURCE => Some((name, name)),
            len => Some((name, rest.get(..index(len))?)),
        }
    }

    #[inline]
    pub(crate) fn tensor(&self, entry: u32) -> Option<TensorRef<'a>> {
        let record = Record(self.tensors.get(index(entry))?);
        let mut words = Words(
            self.words
                .0
                .get(index(record.u32::<{ at::FIRST_WORD }>())..)?,
        );
        let shape = words.take(record.u16::<{ at::DIMS }>().into())?;
        let stored_shape = match record.u16::<{ at::STORED_DIMS }>() {
            SAME_SHAPE => shape,
            dims => words.take(dims.into())?,
        };
        Some(TensorRef {
            dtype: DType::from_code(record.u16::<{ at::DTYPE }>())?,
            source_dtype: DType::from_code(record.u16::<{ at::SOURCE_DTYPE }>())?,
            role: Role::from_code(record.u8::<{ at::ROLE }>())?,
            rule: record.u32::<{ at::RULE }>(),
            source: Some(record.u32::<{ at::SOURCE }>()).filter(|source| *source != NONE),
            shape,
            stored_shape,
            first_name: record.u32::<{ at::FIRST_NAME }>(),
            parts: *self,
        })
    }
}
