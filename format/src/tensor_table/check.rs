//! The structure of a tensor table.

use alloc::string::ToString as _;
use core::str;

use super::entry::{Parts, TensorRef};
use crate::{
    DType, Error, Role,
    bytes::{Record, element_count, index, wide},
    check::{value, value_error},
    error::Table,
    spec::{MAX_DIMS, NONE, SAME_SHAPE, SAME_SOURCE, name as nam, tensor as at},
};

impl Parts<'_> {
    /// Names are valid UTF-8, ascend strictly, and fill the text pool without gap.
    pub(super) fn check_names(&self) -> Result<(), Error> {
        let utf8 = str::from_utf8(self.text);
        let valid = utf8.map_or_else(|fault| fault.valid_up_to(), str::len);
        let text = self
            .text
            .get(..valid)
            .and_then(|text| str::from_utf8(text).ok());
        let text = text.unwrap_or_default();
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
    pub(super) fn check_tensors(&self) -> Result<(Option<u32>, Option<u32>), Error> {
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
    ) -> Result<TensorRef<'_>, Error> {
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
        let elements = element_count(tensor.shape.iter());
        let Some(bytes) = elements.and_then(|elements| tensor.dtype.bytes(elements)) else {
            return Err(Error::Shape { table, entry });
        };
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
        let Some(found) = element_count(tensor.stored_shape.iter()) else {
            return Err(Error::Shape {
                table: Table::Tensors,
                entry,
            });
        };
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
