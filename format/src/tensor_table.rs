//! The tensor table of a component.

use alloc::{string::ToString as _, vec::Vec};
use core::str;

use crate::{
    DType, Error, Role, Tensor, TensorName,
    bytes::{Record, RecordMut, Words, count32, element_count, index, wide},
    error::Table,
    spec::{
        MAX_DIMS, NONE, SAME_SHAPE, SAME_SOURCE, WORD_LEN, name as nam, tensor as at,
        tensor_table as head,
    },
};

type TensorRecord = [u8; at::SIZE];
type NameRecord = [u8; nam::SIZE];

/// A checked tensor table over its own bytes; entries are read on demand.
#[derive(Clone, Debug)]
pub struct TensorTable<D = Vec<u8>> {
    bytes: D,
    max_rule: Option<u32>,
    max_source: Option<u32>,
}

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

impl<D: AsRef<[u8]>> TensorTable<D> {
    /// Checks all of the table's structure; in time proportional to its bytes, nothing allocated per
    /// tensor. (The CRC is [`crate::TableRef::check`].)
    pub fn decode(bytes: D, tensor_count: u32) -> Result<Self, Error> {
        let parts = Parts::split(bytes.as_ref())?;
        if wide(parts.tensors.len()) != u64::from(tensor_count) {
            return Err(Error::Count {
                table: Table::Tensors,
                field: "TENSOR_COUNT",
                expected: tensor_count.into(),
                found: wide(parts.tensors.len()),
            });
        }
        parts.check_names()?;
        let (max_rule, max_source) = parts.check_tensors()?;
        Ok(Self {
            bytes,
            max_rule,
            max_source,
        })
    }

    /// Checks that the description has every rule and source file that a tensor names.
    pub fn check_references(&self, description: &crate::Description) -> Result<(), Error> {
        let counts = [
            ("RULE", self.max_rule, description.plan.rules.len()),
            ("SOURCE", self.max_source, description.sources.len()),
        ];
        for (field, max, limit) in counts {
            if let Some(found) = max.filter(|max| index(*max) >= limit) {
                let at_fault = |entry: &TensorRef<'_>| {
                    let value = if field == "RULE" {
                        Some(entry.rule)
                    } else {
                        entry.source
                    };
                    value == Some(found)
                };
                let entry = self
                    .iter()
                    .position(|entry| at_fault(&entry))
                    .unwrap_or_default();
                return Err(Error::Range {
                    table: Table::Tensors,
                    field,
                    entry: wide(entry),
                    found: found.into(),
                    limit: wide(limit),
                });
            }
        }
        Ok(())
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.parts().tensors.len()
    }

    /// True without tensors.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tensor of an index below [`TensorTable::len`].
    pub fn get(&self, index: u32) -> Option<Tensor> {
        self.get_ref(index).map(|tensor| tensor.to_tensor())
    }

    /// The tensor of an index, without allocating.
    pub fn get_ref(&self, index: u32) -> Option<TensorRef<'_>> {
        self.parts().tensor(index)
    }

    /// All tensors in order, without allocating.
    pub fn iter(&self) -> impl Iterator<Item = TensorRef<'_>> {
        let parts = self.parts();
        (0..count32(parts.tensors.len())).map_while(move |index| parts.tensor(index))
    }

    /// Index of the tensor of a name, by binary search.
    pub fn find(&self, name: &str) -> Option<u32> {
        let parts = self.parts();
        let key = name.as_bytes();
        let found = parts
            .names
            .binary_search_by(|record| {
                parts
                    .text_of(record)
                    .map_or(&[][..], |(name, _)| name)
                    .cmp(key)
            })
            .ok()?;
        Some(Record(parts.names.get(found)?).u32::<{ nam::TENSOR }>())
    }

    /// All names in ascending order of their bytes, each with the index of its tensor.
    pub fn sorted_names(&self) -> impl Iterator<Item = (&str, u32)> {
        let parts = self.parts();
        parts.names.iter().map_while(move |record| {
            let (name, _) = parts.text_of(record)?;
            Some((
                str::from_utf8(name).ok()?,
                Record(record).u32::<{ nam::TENSOR }>(),
            ))
        })
    }

    fn parts(&self) -> Parts<'_> {
        // Split without fault in `decode`.
        Parts::split(self.bytes.as_ref()).unwrap_or_default()
    }
}

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
    first_name: u32,
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

/// A number of dimensions; one that does not fit becomes one that no reader accepts.
fn dims16(n: usize) -> u16 {
    u16::try_from(n).unwrap_or(u16::MAX).min(SAME_SHAPE - 1)
}

/// The table's bytes by section.
#[derive(Clone, Copy, Debug, Default)]
struct Parts<'a> {
    tensors: &'a [TensorRecord],
    words: Words<'a>,
    names: &'a [NameRecord],
    text: &'a [u8],
}

impl<'a> Parts<'a> {
    fn split(bytes: &'a [u8]) -> Result<Self, Error> {
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
    fn text_of(&self, record: &NameRecord) -> Option<(&'a [u8], &'a [u8])> {
        let record = Record(record);
        let text = self.text.get(index(record.u32::<{ nam::TEXT }>())..)?;
        let (name, rest) = text.split_at_checked(index(record.u32::<{ nam::NAME_LEN }>()))?;
        match record.u32::<{ nam::SOURCE_LEN }>() {
            SAME_SOURCE => Some((name, name)),
            len => Some((name, rest.get(..index(len))?)),
        }
    }

    fn tensor(&self, entry: u32) -> Option<TensorRef<'a>> {
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

    /// Names are valid UTF-8, ascend strictly, and fill the text pool without gap.
    fn check_names(&self) -> Result<(), Error> {
        let utf8 = str::from_utf8(self.text);
        let valid = utf8.map_or_else(|fault| fault.valid_up_to(), str::len);
        let text = utf8.unwrap_or_default();
        let mut at = 0;
        let mut before: Option<&[u8]> = None;
        for (entry, record) in self.names.iter().enumerate() {
            let fields = Record(record);
            value(
                Table::Names,
                "TEXT",
                entry,
                wide(at),
                fields.u32::<{ nam::TEXT }>().into(),
            )?;
            let Some((name, source)) = self.text_of(record) else {
                let room = wide(self.text.len().saturating_sub(at));
                let name_len = u64::from(fields.u32::<{ nam::NAME_LEN }>());
                let (field, found, limit) = match room.checked_sub(name_len) {
                    None => ("NAME_LEN", name_len, room),
                    Some(left) => (
                        "SOURCE_LEN",
                        fields.u32::<{ nam::SOURCE_LEN }>().into(),
                        left,
                    ),
                };
                return Err(Error::Range {
                    table: Table::Names,
                    field,
                    entry: wide(entry),
                    found,
                    limit,
                });
            };
            let same = fields.u32::<{ nam::SOURCE_LEN }>() == SAME_SOURCE;
            let name_end = at + name.len();
            let end = name_end + if same { 0 } else { source.len() };
            if end > valid || !text.is_char_boundary(name_end) || !text.is_char_boundary(end) {
                return Err(Error::NameUtf8 { entry: wide(entry) });
            }
            if !same && name == source {
                let found = wide(source.len());
                return Err(value_error(
                    Table::Names,
                    "SOURCE_LEN",
                    entry,
                    SAME_SOURCE.into(),
                    found,
                ));
            }
            if let Some(before) = before.filter(|before| *before >= name) {
                let show = |bytes| str::from_utf8(bytes).unwrap_or_default().to_string();
                return Err(Error::NameOrder {
                    entry: wide(entry),
                    name: show(name),
                    before: show(before),
                });
            }
            (at, before) = (end, Some(name));
        }
        if at == self.text.len() {
            return Ok(());
        }
        let behind = wide(self.text.len() - at);
        Err(value_error(
            Table::Names,
            "text behind the last name",
            self.names.len(),
            0,
            behind,
        ))
    }

    /// Records are well-formed, fill the word pool without gap, and chain every name once. Gives the
    /// greatest rule and source file named.
    fn check_tensors(&self) -> Result<(Option<u32>, Option<u32>), Error> {
        let (mut word, mut named) = (0, 0);
        let (mut max_rule, mut max_source) = (None, None);
        for (i, record) in self.tensors.iter().enumerate() {
            let fields = Record(record);
            value(
                Table::Tensors,
                "FIRST_WORD",
                i,
                wide(word),
                fields.u32::<{ at::FIRST_WORD }>().into(),
            )?;
            let tensor = self.check_tensor(i, fields)?;
            word += tensor.shape.len();
            if fields.u16::<{ at::STORED_DIMS }>() != SAME_SHAPE {
                word += tensor.stored_shape.len();
            }
            named += self.check_chain(i, tensor.first_name)?;
            max_rule = max_rule.max(Some(tensor.rule));
            max_source = max_source.max(tensor.source);
        }
        let entries = self.tensors.len();
        value(
            Table::Tensors,
            "WORD_COUNT",
            entries,
            wide(word),
            wide(self.words.len()),
        )?;
        value(
            Table::Tensors,
            "NAME_COUNT",
            entries,
            wide(named),
            wide(self.names.len()),
        )?;
        Ok((max_rule, max_source))
    }

    fn check_tensor(
        &self,
        i: usize,
        fields: Record<'_, { at::SIZE }>,
    ) -> Result<TensorRef<'a>, Error> {
        let entry = wide(i);
        let table = Table::Tensors;
        let codes = [
            ("DTYPE", fields.u16::<{ at::DTYPE }>()),
            ("SOURCE_DTYPE", fields.u16::<{ at::SOURCE_DTYPE }>()),
        ];
        for (field, code) in codes {
            if DType::from_code(code).is_none() {
                return Err(Error::Code {
                    table,
                    field,
                    entry,
                    found: code.into(),
                });
            }
        }
        let role = fields.u8::<{ at::ROLE }>();
        if Role::from_code(role).is_none() {
            return Err(Error::Code {
                table,
                field: "ROLE",
                entry,
                found: role.into(),
            });
        }
        if fields.array::<{ at::RESERVED }, 7>() != [0; 7] {
            return Err(Error::ReservedBits {
                table,
                field: "RESERVED",
                entry,
            });
        }
        let dims = fields.u16::<{ at::DIMS }>();
        let stored = fields.u16::<{ at::STORED_DIMS }>();
        for (field, dims) in [("DIMS", dims), ("STORED_DIMS", stored)] {
            if dims > MAX_DIMS && !(field == "STORED_DIMS" && dims == SAME_SHAPE) {
                let (found, limit) = (dims.into(), MAX_DIMS.into());
                return Err(Error::Range {
                    table,
                    field,
                    entry,
                    found,
                    limit,
                });
            }
        }
        let tensor = u32::try_from(i)
            .ok()
            .and_then(|i| self.tensor(i))
            .ok_or_else(|| {
                let (found, limit) = (dims.into(), wide(self.words.len()));
                Error::Range {
                    table,
                    field: "DIMS",
                    entry,
                    found,
                    limit,
                }
            })?;
        let bytes = element_count(tensor.shape.iter())
            .and_then(|elements| tensor.dtype.bytes(elements))
            .ok_or(Error::Shape { table, entry })?;
        self.check_stored_shape(entry, stored, &tensor, bytes)?;
        Ok(tensor)
    }

    /// The stored shape of a packed sub-byte type counts bytes; every other type has but one shape.
    fn check_stored_shape(
        &self,
        entry: u64,
        stored: u16,
        tensor: &TensorRef<'_>,
        bytes: u64,
    ) -> Result<(), Error> {
        let same = stored == SAME_SHAPE;
        if tensor.dtype.bits().is_multiple_of(8) {
            return if same {
                Ok(())
            } else {
                let (expected, found) = (SAME_SHAPE.into(), stored.into());
                Err(Error::Value {
                    table: Table::Tensors,
                    field: "STORED_DIMS",
                    entry,
                    expected,
                    found,
                })
            };
        }
        let found = element_count(tensor.stored_shape.iter()).ok_or(Error::Shape {
            table: Table::Tensors,
            entry,
        })?;
        if found != bytes {
            return Err(Error::StoredShape {
                tensor: entry,
                expected: bytes,
                found,
            });
        }
        if !same && tensor.stored_shape.0 == tensor.shape.0 {
            let (expected, found) = (SAME_SHAPE.into(), stored.into());
            return Err(Error::Value {
                table: Table::Tensors,
                field: "STORED_DIMS",
                entry,
                expected,
                found,
            });
        }
        Ok(())
    }

    /// Follows the names of a tensor and counts them.
    fn check_chain(&self, tensor: usize, first: u32) -> Result<usize, Error> {
        let (mut count, mut next) = (0, first);
        while count == 0 || next != NONE {
            // A record belongs to one tensor, so a chain longer than all names has a loop.
            let record = self
                .names
                .get(index(next))
                .filter(|_| count < self.names.len());
            let own =
                record.filter(|record| index(Record(record).u32::<{ nam::TENSOR }>()) == tensor);
            let Some(own) = own else {
                return Err(Error::NameChain {
                    tensor: wide(tensor),
                    entry: next.into(),
                });
            };
            next = Record(own).u32::<{ nam::NEXT }>();
            count += 1;
        }
        Ok(count)
    }
}

pub(crate) fn value(
    table: Table,
    field: &'static str,
    entry: usize,
    expected: u64,
    found: u64,
) -> Result<(), Error> {
    if expected == found {
        Ok(())
    } else {
        Err(value_error(table, field, entry, expected, found))
    }
}

fn value_error(
    table: Table,
    field: &'static str,
    entry: usize,
    expected: u64,
    found: u64,
) -> Error {
    Error::Value {
        table,
        field,
        entry: wide(entry),
        expected,
        found,
    }
}
