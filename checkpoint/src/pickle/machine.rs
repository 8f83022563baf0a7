//! The machine: a stack, marks, a memo, and one step per opcode.

use std::{collections::HashMap, rc::Rc};

use super::{
    Fault, Feed, Global, Graph, Id, Input, MAX_KEPT, MAX_MEMORY, Meaning, Node,
    input::Line,
    literal::{Whole, float_from_text, raw_unicode, unquote, whole_from_bytes, whole_from_text},
    memo::Memo,
    opcode::Op,
};

/// Highest protocol there is.
const MAX_PROTOCOL: u8 = 5;

/// A pickle that was read to its STOP.
#[derive(Debug)]
pub(crate) struct Pickle {
    /// Everything in it.
    pub(crate) graph: Graph,
    /// The object.
    pub(crate) root: Id,
    /// All references to something outside, each once, in the order of the pickle.
    pub(crate) persistents: Vec<Id>,
}

/// Runs one pickle; the input stands behind its STOP afterwards. `memory` is what its values may
/// take; never more than [`MAX_MEMORY`].
pub(crate) fn run<F: Feed>(input: &mut Input<F>, memory: u64) -> Result<Pickle, Fault> {
    let mut machine = Machine {
        input,
        graph: Graph::new(memory.min(MAX_MEMORY)),
        stack: Vec::new(),
        marks: Vec::new(),
        most: 0,
        memo: Memo::default(),
        frame_end: None,
        at: 0,
        op: Op::Stop,
        names: HashMap::new(),
        persistents: Vec::new(),
        none: None,
        bools: [None; 2],
        bytes: [None; 256],
        nothing: None,
    };
    loop {
        if let Some(root) = machine.step()? {
            let Machine {
                graph, persistents, ..
            } = machine;
            return Ok(Pickle {
                graph,
                root,
                persistents,
            });
        }
    }
}

struct Machine<'a, F> {
    input: &'a mut Input<F>,
    graph: Graph,
    stack: Vec<Id>,
    /// Heights of the stack at the marks.
    marks: Vec<usize>,
    /// Greatest height of stack and marks so far, for the limit.
    most: usize,
    memo: Memo,
    frame_end: Option<u64>,
    /// Offset of the opcode.
    at: u64,
    op: Op,
    names: HashMap<String, Rc<Global>>,
    persistents: Vec<Id>,
    // Immutable values are there once.
    none: Option<Id>,
    bools: [Option<Id>; 2],
    bytes: [Option<Id>; 256],
    nothing: Option<Id>,
}

impl<F: Feed> Machine<'_, F> {
    /// One opcode; the object once there is one.
    fn step(&mut self) -> Result<Option<Id>, Fault> {
        self.at = self.input.position();
        if self.frame_end == Some(self.at) {
            self.frame_end = None;
        }
        let Some(byte) = self.input.byte()? else {
            let (at, have) = (self.at, self.at);
            let what = "the pickle ends without STOP".to_owned();
            return Err(Fault::Ends {
                at,
                what,
                need: at + 1,
                have,
            });
        };
        let Some(op) = Op::from_byte(byte) else {
            let what = format!("{byte:#04x} is no opcode");
            return Err(Fault::Malformed { at: self.at, what });
        };
        self.op = op;
        if op == Op::Stop {
            return self.stop().map(Some);
        }
        self.execute()?;
        match self.frame_end {
            Some(end) if self.input.position() > end => Err(self.fault(&format!(
                "the opcode reaches over the end of its frame at {end}"
            ))),
            _ => Ok(None),
        }
    }

    fn execute(&mut self) -> Result<(), Fault> {
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
                let values = self.to_mark()?;
                let id = self.graph.tuple(&values)?;
                self.push(id)
            }
            Op::EmptyList => {
                let id = self.graph.list()?;
                self.push(id)
            }
            Op::List => {
                let values = self.to_mark()?;
                let id = self.graph.list()?;
                self.graph.extend(id, &values)?;
                self.push(id)
            }
            Op::EmptyDict => {
                let id = self.graph.dict()?;
                self.push(id)
            }
            Op::Dict => {
                let pairs = self.to_mark()?;
                let id = self.graph.dict()?;
                self.set_items(id, &pairs)?;
                self.push(id)
            }
            Op::EmptySet => {
                let id = self.graph.set()?;
                self.push(id)
            }
            Op::FrozenSet => {
                let values = self.to_mark()?;
                let id = self.graph.frozen_set(&values)?;
                self.push(id)
            }
            Op::Append => {
                let value = self.pop()?;
                let target = self.top()?;
                self.append(target, &[value])
            }
            Op::Appends => {
                let values = self.to_mark()?;
                let target = self.top()?;
                self.append(target, &values)
            }
            Op::AddItems => {
                let values = self.to_mark()?;
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
                let pairs = self.to_mark()?;
                let target = self.top()?;
                self.set_items(target, &pairs)
            }

            Op::Mark => {
                self.marks.push(self.stack.len());
                self.charge_stack()
            }
            Op::Pop => self.drop_top(),
            Op::PopMark => self.to_mark().map(drop),
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
                let args = self.to_mark()?;
                let args = self.graph.tuple(&args)?;
                self.call(class, args, None)
            }
            Op::Obj => {
                let values = self.to_mark()?;
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

    // Frame of the whole.

    fn protocol(&mut self) -> Result<(), Fault> {
        let [protocol] = self.array()?;
        if protocol > MAX_PROTOCOL {
            return Err(self.fault(&format!(
                "protocol {protocol}, the highest is {MAX_PROTOCOL}"
            )));
        }
        Ok(())
    }

    fn frame(&mut self) -> Result<(), Fault> {
        let len = self.array().map(u64::from_le_bytes)?;
        if self.frame_end.is_some() {
            return Err(self.fault("a frame inside of a frame"));
        }
        let end = self.input.position().checked_add(len);
        self.frame_end = Some(end.ok_or_else(|| self.fault("the frame ends past 2^64"))?);
        Ok(())
    }

    fn stop(&mut self) -> Result<Id, Fault> {
        if let Some(end) = self.frame_end.filter(|&end| end != self.input.position()) {
            return Err(self.fault(&format!("the frame goes on to byte {end}")));
        }
        if !self.marks.is_empty() {
            return Err(self.fault(&format!("{} marks are still open", self.marks.len())));
        }
        let root = self.pop()?;
        if !self.stack.is_empty() {
            return Err(self.fault(&format!("{} values are left over", self.stack.len())));
        }
        Ok(root)
    }

    // Stack, marks, memo.

    fn charge_stack(&mut self) -> Result<(), Fault> {
        let height = self.stack.len().saturating_add(self.marks.len());
        if height > self.most {
            self.most = height;
            self.graph.charge(8)?;
        }
        Ok(())
    }

    fn push(&mut self, id: Id) -> Result<(), Fault> {
        self.stack.push(id);
        self.charge_stack()
    }

    /// Height below which no opcode may reach: the last mark.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn top(&self) -> Result<Id, Fault> {
        let top = self
            .stack
            .last()
            .filter(|_| self.stack.len() > self.floor());
        top.copied().ok_or_else(|| self.fault("the stack is empty"))
    }

    fn pop(&mut self) -> Result<Id, Fault> {
        let id = self.top()?;
        self.stack.pop();
        Ok(id)
    }

    /// POP takes the mark when nothing lies above it.
    fn drop_top(&mut self) -> Result<(), Fault> {
        if self.stack.len() == self.floor() && self.marks.pop().is_some() {
            return Ok(());
        }
        self.pop().map(drop)
    }

    fn to_mark(&mut self) -> Result<Vec<Id>, Fault> {
        match self.marks.pop() {
            Some(height) => Ok(self.stack.split_off(height.min(self.stack.len()))),
            None => Err(self.fault("there is no mark")),
        }
    }

    fn get(&mut self, number: u64) -> Result<(), Fault> {
        match self.memo.get(number) {
            Some(id) => self.push(id),
            None => Err(self.fault(&format!("memo {number} was never set"))),
        }
    }

    fn put(&mut self, number: u64) -> Result<(), Fault> {
        let id = self.top()?;
        let dense = self.memo.len() == number;
        if self.memo.put(number, id) {
            self.graph.charge(if dense { 8 } else { 64 })?;
        }
        Ok(())
    }

    fn memo_number(&mut self) -> Result<u64, Fault> {
        match self.number(whole_from_text)? {
            Some(Whole::Int(number @ 0..)) => Ok(number.unsigned_abs()),
            _ => Err(self.fault("bad memo number")),
        }
    }

    // Values.

    fn bool(&mut self, value: bool) -> Result<(), Fault> {
        let at = usize::from(value);
        let id = match self.bools.get(at).copied().flatten() {
            Some(id) => id,
            None => self.graph.bool(value)?,
        };
        if let Some(slot) = self.bools.get_mut(at) {
            *slot = Some(id);
        }
        self.push(id)
    }

    fn int(&mut self, value: i64) -> Result<(), Fault> {
        let slot = usize::try_from(value)
            .ok()
            .filter(|&at| at < self.bytes.len());
        let known = slot.and_then(|at| self.bytes.get(at).copied().flatten());
        let id = match known {
            Some(id) => id,
            None => self.graph.int(value)?,
        };
        if let Some(slot) = slot.and_then(|at| self.bytes.get_mut(at)) {
            *slot = Some(id);
        }
        self.push(id)
    }

    fn whole(&mut self, whole: Whole) -> Result<(), Fault> {
        let id = match whole {
            Whole::Int(value) => return self.int(value),
            Whole::Wide(value) => self.graph.wide(value)?,
            Whole::Huge => self.graph.huge()?,
        };
        self.push(id)
    }

    fn long(&mut self, len: u64) -> Result<(), Fault> {
        let whole = match self.kept(len)? {
            Some(bytes) => whole_from_bytes(bytes),
            None => Whole::Huge,
        };
        self.whole(whole)
    }

    /// `00` and `01` are the booleans of protocol 0 and 1.
    fn text_int(&mut self) -> Result<(), Fault> {
        let line = self.kept_line()?;
        match line.as_slice() {
            b"00" => self.bool(false),
            b"01" => self.bool(true),
            line => match whole_from_text(line) {
                Some(whole) => self.whole(whole),
                None => Err(self.fault("not a number")),
            },
        }
    }

    /// A line that is a number; none if it is too long to keep.
    fn number<T>(&mut self, parse: fn(&[u8]) -> Option<T>) -> Result<Option<T>, Fault> {
        let parsed = match self.line()? {
            Line::Kept(line) => parse(line),
            Line::Long(_) => return Ok(None),
        };
        parsed.map(Some).ok_or_else(|| self.fault("not a number"))
    }

    fn text_string(&mut self) -> Result<(), Fault> {
        let bytes = match self.line()? {
            Line::Kept(line) => unquote(line),
            Line::Long(_) => {
                let id = self.graph.long_text()?;
                return self.push(id);
            }
        };
        let bytes = bytes.ok_or_else(|| self.fault("bad quotes or escapes"))?;
        self.push_old_string(&bytes)
    }

    fn text_unicode(&mut self) -> Result<(), Fault> {
        let text = match self.line()? {
            Line::Kept(line) => raw_unicode(line),
            Line::Long(_) => {
                let id = self.graph.long_text()?;
                return self.push(id);
            }
        };
        let text = text.ok_or_else(|| self.fault("bad escape"))?;
        let id = self.graph.text(&text)?;
        self.push(id)
    }

    /// A `str` of Python 2: text where it can be read as such.
    fn old_string(&mut self, len: u64) -> Result<(), Fault> {
        match self.kept(len)?.map(<[u8]>::to_vec) {
            Some(bytes) => self.push_old_string(&bytes),
            None => {
                let id = self.graph.long_text()?;
                self.push(id)
            }
        }
    }

    fn push_old_string(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let id = match std::str::from_utf8(bytes) {
            Ok(text) => self.graph.text(text)?,
            Err(_) => self.graph.bytes(bytes)?,
        };
        self.push(id)
    }

    fn text(&mut self, len: u64) -> Result<(), Fault> {
        if usize::try_from(len).is_ok_and(|len| len <= MAX_KEPT) {
            let (at, op) = (self.at, self.op);
            let bytes = self.kept(len)?.unwrap_or_default().to_vec();
            let text = std::str::from_utf8(&bytes).map_err(|_| fault(at, op, "not UTF-8"))?;
            let id = self.graph.text(text)?;
            return self.push(id);
        }
        self.check_utf8(len)?;
        let id = self.graph.long_text()?;
        self.push(id)
    }

    /// Checks a long text piece by piece.
    fn check_utf8(&mut self, len: u64) -> Result<(), Fault> {
        let mut left = len;
        let mut carry = Vec::new();
        while left > 0 {
            let now = usize::try_from(left).unwrap_or(MAX_KEPT).min(MAX_KEPT / 2);
            let (at, op) = (self.at, self.op);
            let have = self.input.position();
            let Some(bytes) = self.input.take(now)? else {
                return Err(self.ends(left, have));
            };
            carry.extend_from_slice(bytes);
            left -= u64::try_from(now).unwrap_or(left);
            let rest = match std::str::from_utf8(&carry) {
                Ok(_) => carry.len(),
                Err(error) if error.error_len().is_none() && left > 0 => error.valid_up_to(),
                Err(_) => return Err(fault(at, op, "not UTF-8")),
            };
            carry.drain(..rest);
        }
        Ok(())
    }

    fn binary(&mut self, len: u64) -> Result<(), Fault> {
        let bytes = self.kept(len)?.map(<[u8]>::to_vec);
        let id = match bytes {
            Some(bytes) => self.graph.bytes(&bytes)?,
            None => self.graph.long_bytes()?,
        };
        self.push(id)
    }

    fn tuple<const N: usize>(&mut self) -> Result<(), Fault> {
        let height = self.stack.len();
        let start = height.checked_sub(N).filter(|&start| start >= self.floor());
        let Some(start) = start else {
            return Err(self.fault("the stack holds too few values"));
        };
        let id = self
            .graph
            .tuple(self.stack.get(start..).unwrap_or_default())?;
        self.stack.truncate(start);
        self.push(id)
    }

    // Containers are changed only if they are of the kind that the opcode is for.

    fn append(&mut self, target: Id, values: &[Id]) -> Result<(), Fault> {
        let fits = match self.graph.node(target) {
            Node::List(_) => true,
            Node::Object(object) => self.meaning(object.callee).takes_values(),
            _ => false,
        };
        if !fits {
            return Err(self.fault("the target is not a list"));
        }
        self.graph.extend(target, values)
    }

    fn add(&mut self, target: Id, values: &[Id]) -> Result<(), Fault> {
        let fits = match self.graph.node(target) {
            Node::Set(_) => true,
            Node::Object(object) => self.meaning(object.callee).takes_members(),
            _ => false,
        };
        if !fits {
            return Err(self.fault("the target is not a set"));
        }
        self.graph.extend(target, values)
    }

    fn set_items(&mut self, target: Id, pairs: &[Id]) -> Result<(), Fault> {
        let fits = match self.graph.node(target) {
            Node::Dict(_) => true,
            Node::Object(object) => self.meaning(object.callee).takes_items(),
            _ => false,
        };
        if !fits {
            return Err(self.fault("the target is not a dict"));
        }
        if !pairs.len().is_multiple_of(2) {
            return Err(self.fault("a key without a value"));
        }
        self.graph.insert(target, pairs)
    }

    fn build(&mut self) -> Result<(), Fault> {
        let state = self.pop()?;
        let target = self.top()?;
        if !matches!(self.graph.node(target), Node::Object(_)) {
            return Err(self.fault("the target takes no state"));
        }
        self.graph.build(target, state)
    }

    // Names and calls.

    /// What a callee means; the result of a call and an outer object mean nothing known.
    fn meaning(&self, callee: Id) -> Meaning {
        match self.graph.node(callee) {
            Node::Global(global) => global.meaning,
            _ => Meaning::Unknown,
        }
    }

    fn named_global(&mut self) -> Result<Id, Fault> {
        let module = self.kept_line()?;
        let name = self.kept_line()?;
        match (String::from_utf8(module), String::from_utf8(name)) {
            (Ok(module), Ok(name)) => self.global(module, name),
            _ => Err(self.fault("the name is not UTF-8")),
        }
    }

    fn stack_global(&mut self) -> Result<(), Fault> {
        let name = self.pop()?;
        let module = self.pop()?;
        let (Node::Text(module), Node::Text(name)) =
            (self.graph.node(module), self.graph.node(name))
        else {
            return Err(self.fault("module and name are not texts"));
        };
        let (module, name) = (module.to_owned(), name.to_owned());
        let id = self.global(module, name)?;
        self.push(id)
    }

    fn global(&mut self, module: String, name: String) -> Result<Id, Fault> {
        let key = format!("{module}\n{name}");
        if let Some(global) = self.names.get(&key) {
            let global = Rc::clone(global);
            return self.graph.global(&global);
        }
        let path = format!("{module}.{name}");
        let Some(global) = Global::new(module, name) else {
            // A sharded tensor names `getattr`: say the more useful thing.
            let sharded = self
                .graph
                .globals()
                .find(|g| g.meaning == Meaning::Partitioned);
            return Err(match sharded {
                Some(class) => Fault::Partitioned {
                    class: class.path(),
                },
                None => Fault::Unsafe {
                    at: self.at,
                    global: path,
                },
            });
        };
        self.graph
            .charge(256 + u64::try_from(3 * key.len()).unwrap_or(u64::MAX))?;
        let global = Rc::new(global);
        self.names.insert(key, Rc::clone(&global));
        self.graph.global(&global)
    }

    fn call(&mut self, callee: Id, args: Id, kwargs: Option<Id>) -> Result<(), Fault> {
        let callable = match self.graph.node(callee) {
            Node::Global(global) => global.meaning.is_callable(),
            Node::Object(_) | Node::Persistent(_) => true,
            _ => false,
        };
        if !callable {
            return Err(self.fault("what is called is no class or function"));
        }
        if !matches!(self.graph.node(args), Node::Tuple(_)) {
            return Err(self.fault("the arguments are no tuple"));
        }
        let id = self.graph.object(callee, args, kwargs)?;
        self.push(id)
    }

    fn persistent(&mut self, id: Id) -> Result<(), Fault> {
        let id = self.graph.persistent(id)?;
        self.graph.charge(8)?;
        self.persistents.push(id);
        self.push(id)
    }

    // Bytes behind the opcode.

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let have = self.input.position();
        match self.input.array()? {
            Some(bytes) => Ok(bytes),
            None => Err(self.ends(u64::try_from(N).unwrap_or(u64::MAX), have)),
        }
    }

    fn length_i32(&mut self) -> Result<u64, Fault> {
        let len = self.array().map(i32::from_le_bytes)?;
        u64::try_from(len).map_err(|_| self.fault(&format!("negative length {len}")))
    }

    /// Bytes that are kept, or none of them if there are too many; they are passed over then.
    fn kept(&mut self, len: u64) -> Result<Option<&[u8]>, Fault> {
        let Some(now) = usize::try_from(len).ok().filter(|&len| len <= MAX_KEPT) else {
            self.pass(len)?;
            return Ok(None);
        };
        let (at, op, have) = (self.at, self.op, self.input.position());
        match self.input.take(now)? {
            Some(bytes) => Ok(Some(bytes)),
            None => Err(ends(at, op, len, have)),
        }
    }

    fn pass(&mut self, len: u64) -> Result<(), Fault> {
        let start = self.input.position();
        let passed = self.input.skip(len)?;
        if passed < len {
            return Err(self.ends(len, start));
        }
        Ok(())
    }

    fn line(&mut self) -> Result<Line<'_>, Fault> {
        let (at, op, have) = (self.at, self.op, self.input.position());
        match self.input.line()? {
            Some(line) => Ok(line),
            None => Err(ends(at, op, 1, have)),
        }
    }

    /// A line that must be short.
    fn kept_line(&mut self) -> Result<Vec<u8>, Fault> {
        match self.line()? {
            Line::Kept(line) => Ok(line.to_vec()),
            Line::Long(len) => Err(self.fault(&format!("a line of {len} bytes"))),
        }
    }

    fn fault(&self, what: &str) -> Fault {
        fault(self.at, self.op, what)
    }

    fn ends(&self, len: u64, have: u64) -> Fault {
        ends(self.at, self.op, len, have)
    }
}

fn fault(at: u64, op: Op, what: &str) -> Fault {
    Fault::Malformed {
        at,
        what: format!("{}: {what}", op.name()),
    }
}

/// `len` bytes had to follow from offset `from` on.
fn ends(at: u64, op: Op, len: u64, from: u64) -> Fault {
    let need = from.saturating_add(len);
    let what = format!("{}: its data reach to byte {need}, past the end", op.name());
    Fault::Ends {
        at,
        what,
        need,
        have: from,
    }
}
