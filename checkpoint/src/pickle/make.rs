//! Making nodes, and the count of what they take.

use std::rc::Rc;

use super::{
    Fault, Global, MAX_DEPTH, MAX_KEPT,
    graph::{Cell, EMPTY, Graph, Id, Object, PIECE, Tag, index},
};

/// What a node of each kind takes, for the limit: with what growing vectors leave unused.
const CELL_COST: u64 = 16;
const LINK_COST: u64 = 8;
const VEC_COST: u64 = 48;
const OBJECT_COST: u64 = 48;
const MORE_COST: u64 = 96;

impl Graph {
    /// Counts memory before it is taken.
    pub(crate) fn charge(&mut self, bytes: u64) -> Result<(), Fault> {
        self.used = self.used.saturating_add(bytes);
        if self.used > self.limit {
            return Err(Fault::Limit {
                what: "memory in bytes for the objects",
                found: self.used,
                limit: self.limit,
            });
        }
        Ok(())
    }

    fn push(&mut self, tag: Tag, depth: u16, a: u32, b: u32) -> Result<Id, Fault> {
        self.charge(CELL_COST)?;
        if self.len().is_multiple_of(PIECE) {
            self.pieces.push(Vec::with_capacity(PIECE));
        }
        let id = Id(self.len);
        self.len = self.len.checked_add(1).ok_or(TOO_MANY)?;
        if let Some(piece) = self.pieces.last_mut() {
            piece.push(Cell { tag, depth, a, b });
        }
        Ok(id)
    }

    pub(super) fn none(&mut self) -> Result<Id, Fault> {
        self.push(Tag::None, 0, 0, 0)
    }

    pub(super) fn bool(&mut self, value: bool) -> Result<Id, Fault> {
        self.push(Tag::Bool, 0, value.into(), 0)
    }

    pub(super) fn int(&mut self, value: i64) -> Result<Id, Fault> {
        let (a, b) = split(value);
        self.push(Tag::Int, 0, a, b)
    }

    pub(super) fn wide(&mut self, value: i128) -> Result<Id, Fault> {
        self.charge(2 * 16)?;
        let at = number(self.wides.len())?;
        self.wides.push(value);
        self.push(Tag::Wide, 0, at, 0)
    }

    pub(super) fn huge(&mut self) -> Result<Id, Fault> {
        self.push(Tag::Huge, 0, 0, 0)
    }

    pub(super) fn float(&mut self) -> Result<Id, Fault> {
        self.push(Tag::Float, 0, 0, 0)
    }

    pub(super) fn text(&mut self, value: &str) -> Result<Id, Fault> {
        if value.len() > MAX_KEPT {
            return self.long_text();
        }
        let start = number(self.text.len())?;
        let end = number(self.text.len().saturating_add(value.len()))?;
        self.charge(u64::from(end - start).saturating_mul(2))?;
        self.text.push_str(value);
        self.push(Tag::Text, 0, start, end)
    }

    pub(super) fn long_text(&mut self) -> Result<Id, Fault> {
        self.push(Tag::LongText, 0, 0, 0)
    }

    pub(super) fn bytes(&mut self, value: &[u8]) -> Result<Id, Fault> {
        if value.len() > MAX_KEPT {
            return self.long_bytes();
        }
        let start = number(self.bytes.len())?;
        let end = number(self.bytes.len().saturating_add(value.len()))?;
        self.charge(u64::from(end - start).saturating_mul(2))?;
        self.bytes.extend_from_slice(value);
        self.push(Tag::Bytes, 0, start, end)
    }

    pub(super) fn long_bytes(&mut self) -> Result<Id, Fault> {
        self.push(Tag::LongBytes, 0, 0, 0)
    }

    pub(super) fn byte_array(&mut self) -> Result<Id, Fault> {
        self.push(Tag::ByteArray, 0, 0, 0)
    }

    pub(super) fn global(&mut self, global: &Rc<Global>) -> Result<Id, Fault> {
        let at = match global.number.get() {
            Some(at) => at,
            None => {
                let at = number(self.globals.len())?;
                global.number.set(Some(at));
                self.globals.push(Rc::clone(global));
                at
            }
        };
        self.push(Tag::Global, 0, at, 0)
    }

    pub(super) fn tuple(&mut self, values: &[Id]) -> Result<Id, Fault> {
        self.sealed(Tag::Tuple, values)
    }

    pub(super) fn frozen_set(&mut self, values: &[Id]) -> Result<Id, Fault> {
        self.sealed(Tag::FrozenSet, values)
    }

    fn sealed(&mut self, tag: Tag, values: &[Id]) -> Result<Id, Fault> {
        let depth = values.iter().map(|&id| self.depth(id)).max().unwrap_or(0);
        let depth = deeper(depth)?;
        self.charge(count(values.len()).saturating_mul(LINK_COST))?;
        let start = number(self.tuples.len())?;
        let end = number(self.tuples.len().saturating_add(values.len()))?;
        self.tuples.extend_from_slice(values);
        self.push(tag, depth, start, end)
    }

    pub(super) fn list(&mut self) -> Result<Id, Fault> {
        self.push(Tag::List, 1, EMPTY, 0)
    }

    pub(super) fn set(&mut self) -> Result<Id, Fault> {
        self.push(Tag::Set, 1, EMPTY, 0)
    }

    pub(super) fn dict(&mut self) -> Result<Id, Fault> {
        self.push(Tag::Dict, 1, EMPTY, 0)
    }

    pub(super) fn persistent(&mut self, id: Id) -> Result<Id, Fault> {
        let depth = deeper(self.depth(id))?;
        self.push(Tag::Persistent, depth, id.0, 0)
    }

    pub(super) fn object(
        &mut self,
        callee: Id,
        args: Id,
        kwargs: Option<Id>,
        at: u64,
    ) -> Result<Id, Fault> {
        let depth = deeper(self.depth(args).max(self.depth(callee)))?;
        self.charge(OBJECT_COST)?;
        let mut object = Object {
            callee,
            args,
            at,
            more: None,
        };
        if kwargs.is_some() {
            self.charge(MORE_COST)?;
            object.more().kwargs = kwargs;
        }
        let index = number(self.objects.len())?;
        self.objects.push(object);
        self.push(Tag::Object, depth, index, 0)
    }

    /// Adds values to a list, set or object. The target must be one.
    pub(super) fn extend(&mut self, target: Id, values: &[Id]) -> Result<(), Fault> {
        self.deepen(target, values.iter().copied())?;
        self.charge(count(values.len()).saturating_mul(LINK_COST))?;
        let Some(cell) = self.cell(target) else {
            return Ok(());
        };
        if let Tag::Object = cell.tag {
            self.charge_more(cell.a)?;
            if let Some(object) = self.objects.get_mut(index(cell.a)) {
                object.more().list.extend_from_slice(values);
            }
            return Ok(());
        }
        let at = if cell.a == EMPTY && !values.is_empty() {
            self.charge(VEC_COST)?;
            let at = number(self.lists.len())?;
            self.lists.push(Vec::new());
            self.point(target, at);
            at
        } else {
            cell.a
        };
        if let Some(list) = self.lists.get_mut(index(at)) {
            list.extend_from_slice(values);
        }
        Ok(())
    }

    /// Sets pairs of a dict or object. The target must be one.
    pub(super) fn insert(&mut self, target: Id, pairs: &[Id]) -> Result<(), Fault> {
        self.deepen(target, pairs.iter().copied())?;
        self.charge(count(pairs.len()).saturating_mul(LINK_COST))?;
        let pairs = pairs.chunks_exact(2).filter_map(|pair| match *pair {
            [key, value] => Some((key, value)),
            _ => None,
        });
        let Some(cell) = self.cell(target) else {
            return Ok(());
        };
        if let Tag::Object = cell.tag {
            self.charge_more(cell.a)?;
            if let Some(object) = self.objects.get_mut(index(cell.a)) {
                object.more().items.extend(pairs);
            }
            return Ok(());
        }
        let mut pairs = pairs.peekable();
        let at = if cell.a == EMPTY && pairs.peek().is_some() {
            self.charge(VEC_COST)?;
            let at = number(self.dicts.len())?;
            self.dicts.push(Vec::new());
            self.point(target, at);
            at
        } else {
            cell.a
        };
        if let Some(dict) = self.dicts.get_mut(index(at)) {
            dict.extend(pairs);
        }
        Ok(())
    }

    /// Gives an object a state. The target must be one.
    pub(super) fn build(&mut self, target: Id, state: Id) -> Result<(), Fault> {
        self.deepen(target, [state].into_iter())?;
        let Some(cell) = self.cell(target) else {
            return Ok(());
        };
        self.charge(LINK_COST)?;
        self.charge_more(cell.a)?;
        if let Some(object) = self.objects.get_mut(index(cell.a)) {
            object.more().states.push(state);
        }
        Ok(())
    }

    fn charge_more(&mut self, object: u32) -> Result<(), Fault> {
        let fresh = self
            .objects
            .get(index(object))
            .is_some_and(|object| object.more.is_none());
        if fresh {
            self.charge(MORE_COST)
        } else {
            Ok(())
        }
    }

    fn point(&mut self, target: Id, at: u32) {
        if let Some(cell) = self.cell_mut(target) {
            cell.a = at;
        }
    }

    fn deepen(&mut self, target: Id, values: impl Iterator<Item = Id>) -> Result<(), Fault> {
        let Some(depth) = values
            .filter(|&id| id != target)
            .map(|id| self.depth(id))
            .max()
        else {
            return Ok(());
        };
        let depth = deeper(depth)?;
        if let Some(cell) = self.cell_mut(target) {
            cell.depth = cell.depth.max(depth);
        }
        Ok(())
    }
}

const TOO_MANY: Fault = Fault::Limit {
    what: "number of objects",
    found: 1 << 32,
    limit: u32::MAX as u64,
};

fn deeper(depth: u16) -> Result<u16, Fault> {
    if depth >= MAX_DEPTH {
        let limit = u64::from(MAX_DEPTH);
        return Err(Fault::Limit {
            what: "nesting depth",
            found: limit + 1,
            limit,
        });
    }
    Ok(depth + 1)
}

fn number(len: usize) -> Result<u32, Fault> {
    u32::try_from(len)
        .ok()
        .filter(|&at| at != EMPTY)
        .ok_or(TOO_MANY)
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

fn split(value: i64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    (
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, g, h]),
    )
}
