//! What each opcode does to the stack.

use super::{
    Fault, Feed,
    literal::{Whole, float_from_text, whole_from_text},
    machine::Machine,
    opcode::Op,
};

impl<F: Feed> Machine<'_, F> {
    pub(super) fn execute(&mut self) -> Result<(), Fault> {
        match self.op {
            Op::Proto => self.protocol(),
            Op::Frame => self.frame(),
            Op::Stop => Ok(()),

            Op::None => {
                let id = match self.none {
                    Some(id) => id,
                    None => self.graph.none()?,
                };
                self.none = Some(id);
                self.push(id)
            }
            Op::NewTrue => self.bool(true),
            Op::NewFalse => self.bool(false),
            Op::BinInt1 => {
                let [byte] = self.array()?;
                self.int(byte.into())
            }
            Op::BinInt2 => {
                let bytes = self.array()?;
                self.int(u16::from_le_bytes(bytes).into())
            }
            Op::BinInt => {
                let bytes = self.array()?;
                self.int(i32::from_le_bytes(bytes).into())
            }
            Op::Long1 => {
                let [len] = self.array()?;
                self.long(len.into())
            }
            Op::Long4 => {
                let len = self.length_i32()?;
                self.long(len)
            }
            Op::Int => self.text_int(),
            Op::Long => {
                let whole = self.number(whole_from_text)?.unwrap_or(Whole::Huge);
                self.whole(whole)
            }
            Op::Float => {
                self.number(float_from_text)?;
                let id = self.graph.float()?;
                self.push(id)
            }
            Op::BinFloat => {
                self.array::<8>()?;
                let id = self.graph.float()?;
                self.push(id)
            }

            Op::String => self.text_string(),
            Op::Unicode => self.text_unicode(),
            Op::ShortBinString => {
                let [len] = self.array()?;
                self.old_string(len.into())
            }
            Op::BinString => {
                let len = self.length_i32()?;
                self.old_string(len)
            }
            Op::ShortBinUnicode => {
                let [len] = self.array()?;
                self.text(len.into())
            }
            Op::BinUnicode => {
                let len = self.array().map(u32::from_le_bytes)?;
                self.text(len.into())
            }
            Op::BinUnicode8 => {
                let len = self.array().map(u64::from_le_bytes)?;
                self.text(len)
            }
            Op::ShortBinBytes => {
                let [len] = self.array()?;
                self.binary(len.into())
            }
            Op::BinBytes => {
                let len = self.array().map(u32::from_le_bytes)?;
                self.binary(len.into())
            }
            Op::BinBytes8 => {
                let len = self.array().map(u64::from_le_bytes)?;
                self.binary(len)
            }
            Op::ByteArray8 => {
                let len = self.array().map(u64::from_le_bytes)?;
                self.pass(len)?;
                let id = self.graph.byte_array()?;
                self.push(id)
            }

            Op::EmptyTuple => {
                let id = match self.nothing {
                    Some(id) => id,
                    None => self.graph.tuple(&[])?,
                };
                self.nothing = Some(id);
                self.push(id)
            }
            Op::Tuple1 => self.tuple::<1>(),
            Op::Tuple2 => self.tuple::<2>(),
            Op::Tuple3 => self.tuple::<3>(),
            Op::Tuple => {
                let values = self.pop_to_mark()?;
                let id = self.graph.tuple(&values)?;
                self.push(id)
            }
            Op::EmptyList => {
                let id = self.graph.list()?;
                self.push(id)
            }
            Op::List => {
                let values = self.pop_to_mark()?;
                let id = self.graph.list()?;
                self.graph.extend(id, &values)?;
                self.push(id)
            }
            Op::EmptyDict => {
                let id = self.graph.dict()?;
                self.push(id)
            }
            Op::Dict => {
                let pairs = self.pop_to_mark()?;
                let id = self.graph.dict()?;
                self.set_items(id, &pairs)?;
                self.push(id)
            }
            Op::EmptySet => {
                let id = self.graph.set()?;
                self.push(id)
            }
            Op::FrozenSet => {
                let values = self.pop_to_mark()?;
                let id = self.graph.frozen_set(&values)?;
                self.push(id)
            }
            Op::Append => {
                let value = self.pop()?;
                let target = self.top()?;
                self.append(target, &[value])
            }
            Op::Appends => {
                let values = self.pop_to_mark()?;
                let target = self.top()?;
                self.append(target, &values)
            }
            Op::AddItems => {
                let values = self.pop_to_mark()?;
                let target = self.top()?;
                self.add(target, &values)
            }
            Op::SetItem => {
                let value = self.pop()?;
                let key = self.pop()?;
                let target = self.top()?;
                self.set_items(target, &[key, value])
            }
            Op::SetItems => {
                let pairs = self.pop_to_mark()?;
                let target = self.top()?;
                self.set_items(target, &pairs)
            }

            Op::Mark => {
                self.marks.push(self.stack.len());
                self.charge_stack()
            }
            Op::Pop => self.drop_top(),
            Op::PopMark => self.pop_to_mark().map(drop),
            Op::Dup => {
                let id = self.top()?;
                self.push(id)
            }

            Op::BinGet => {
                let [number] = self.array()?;
                self.get(number.into())
            }
            Op::LongBinGet => {
                let number = self.array().map(u32::from_le_bytes)?;
                self.get(number.into())
            }
            Op::Get => {
                let number = self.memo_number()?;
                self.get(number)
            }
            Op::BinPut => {
                let [number] = self.array()?;
                self.put(number.into())
            }
            Op::LongBinPut => {
                let number = self.array().map(u32::from_le_bytes)?;
                self.put(number.into())
            }
            Op::Put => {
                let number = self.memo_number()?;
                self.put(number)
            }
            Op::Memoize => self.put(self.memo.len()),

            Op::Global => {
                let id = self.named_global()?;
                self.push(id)
            }
            Op::StackGlobal => self.stack_global(),
            Op::Reduce => {
                let args = self.pop()?;
                let callee = self.pop()?;
                self.call(callee, args, None)
            }
            Op::NewObj => {
                let args = self.pop()?;
                let class = self.pop()?;
                self.call(class, args, None)
            }
            Op::NewObjEx => {
                let kwargs = self.pop()?;
                let args = self.pop()?;
                let class = self.pop()?;
                self.call(class, args, Some(kwargs))
            }
            Op::Inst => {
                let class = self.named_global()?;
                let args = self.pop_to_mark()?;
                let args = self.graph.tuple(&args)?;
                self.call(class, args, None)
            }
            Op::Obj => {
                let values = self.pop_to_mark()?;
                let Some((&class, args)) = values.split_first() else {
                    return Err(self.fault("no class behind the mark"));
                };
                let args = self.graph.tuple(args)?;
                self.call(class, args, None)
            }
            Op::Build => self.build(),

            Op::BinPersId => {
                let id = self.pop()?;
                self.persistent(id)
            }
            Op::PersId => {
                let line = self.kept_line()?;
                let text = String::from_utf8(line).map_err(|_| self.fault("id is not UTF-8"))?;
                let id = self.graph.text(&text)?;
                self.persistent(id)
            }

            Op::Ext1 | Op::Ext2 | Op::Ext4 => {
                Err(self.fault("the extension registry of another program is not known"))
            }
            Op::NextBuffer | Op::ReadOnlyBuffer => {
                Err(self.fault("there is no buffer beside the pickle"))
            }
        }
    }
}
