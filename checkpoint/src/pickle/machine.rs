//! The machine: a stack, marks, a memo, and one step per opcode.

use std::{collections::HashMap, rc::Rc};

use super::{
    Fault, Feed, Global, Graph, Id, Input, MAX_KEPT, MAX_MEMORY,
    input::Line,
    literal::{Whole, whole_from_text},
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
    /// All references to something outside, each with the offset of its opcode.
    pub(crate) persistents: Vec<(Id, u64)>,
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

pub(super) struct Machine<'a, F> {
    pub(super) input: &'a mut Input<F>,
    pub(super) graph: Graph,
    pub(super) stack: Vec<Id>,
    /// Heights of the stack at the marks.
    pub(super) marks: Vec<usize>,
    /// Greatest height of stack and marks so far, for the limit.
    pub(super) most: usize,
    pub(super) memo: Memo,
    pub(super) frame_end: Option<u64>,
    /// Offset of the opcode.
    pub(super) at: u64,
    pub(super) op: Op,
    pub(super) names: HashMap<String, Rc<Global>>,
    pub(super) persistents: Vec<(Id, u64)>,
    // Immutable values are there once.
    pub(super) none: Option<Id>,
    pub(super) bools: [Option<Id>; 2],
    pub(super) bytes: [Option<Id>; 256],
    pub(super) nothing: Option<Id>,
}

impl<F: Feed> Machine<'_, F> {
    /// One opcode; the object once there is one.
    pub(super) fn step(&mut self) -> Result<Option<Id>, Fault> {
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

    // Frame of the whole.

    pub(super) fn protocol(&mut self) -> Result<(), Fault> {
        let [protocol] = self.array()?;
        if protocol > MAX_PROTOCOL {
            return Err(self.fault(&format!(
                "protocol {protocol}, the highest is {MAX_PROTOCOL}"
            )));
        }
        Ok(())
    }

    pub(super) fn frame(&mut self) -> Result<(), Fault> {
        let len = self.array().map(u64::from_le_bytes)?;
        if self.frame_end.is_some() {
            return Err(self.fault("a frame inside of a frame"));
        }
        let end = self.input.position().checked_add(len);
        self.frame_end = Some(end.ok_or_else(|| self.fault("the frame ends past 2^64"))?);
        Ok(())
    }

    pub(super) fn stop(&mut self) -> Result<Id, Fault> {
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

    pub(super) fn charge_stack(&mut self) -> Result<(), Fault> {
        let height = self.stack.len().saturating_add(self.marks.len());
        if height > self.most {
            self.most = height;
            self.graph.charge(8)?;
        }
        Ok(())
    }

    pub(super) fn push(&mut self, id: Id) -> Result<(), Fault> {
        self.stack.push(id);
        self.charge_stack()
    }

    /// Height below which no opcode may reach: the last mark.
    pub(super) fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    pub(super) fn top(&self) -> Result<Id, Fault> {
        let top = self
            .stack
            .last()
            .filter(|_| self.stack.len() > self.floor());
        top.copied().ok_or_else(|| self.fault("the stack is empty"))
    }

    pub(super) fn pop(&mut self) -> Result<Id, Fault> {
        let id = self.top()?;
        self.stack.pop();
        Ok(id)
    }

    /// POP takes the mark when nothing lies above it.
    pub(super) fn drop_top(&mut self) -> Result<(), Fault> {
        if self.stack.len() == self.floor() && self.marks.pop().is_some() {
            return Ok(());
        }
        self.pop().map(drop)
    }

    pub(super) fn pop_to_mark(&mut self) -> Result<Vec<Id>, Fault> {
        match self.marks.pop() {
            Some(height) => Ok(self.stack.split_off(height.min(self.stack.len()))),
            None => Err(self.fault("there is no mark")),
        }
    }

    pub(super) fn get(&mut self, number: u64) -> Result<(), Fault> {
        match self.memo.get(number) {
            Some(id) => self.push(id),
            None => Err(self.fault(&format!("memo {number} was never set"))),
        }
    }

    pub(super) fn put(&mut self, number: u64) -> Result<(), Fault> {
        let id = self.top()?;
        let dense = self.memo.len() == number;
        if self.memo.put(number, id) {
            self.graph.charge(if dense { 8 } else { 64 })?;
        }
        Ok(())
    }

    pub(super) fn memo_number(&mut self) -> Result<u64, Fault> {
        match self.number(whole_from_text)? {
            Some(Whole::Int(number @ 0..)) => Ok(number.unsigned_abs()),
            _ => Err(self.fault("bad memo number")),
        }
    }

    // Bytes behind the opcode.

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let have = self.input.position();
        match self.input.array()? {
            Some(bytes) => Ok(bytes),
            None => Err(self.ends(u64::try_from(N).unwrap_or(u64::MAX), have)),
        }
    }

    pub(super) fn length_i32(&mut self) -> Result<u64, Fault> {
        let len = self.array().map(i32::from_le_bytes)?;
        u64::try_from(len).map_err(|_| self.fault(&format!("negative length {len}")))
    }

    /// Bytes that are kept, or none of them if there are too many; they are passed over then.
    pub(super) fn kept(&mut self, len: u64) -> Result<Option<&[u8]>, Fault> {
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

    pub(super) fn pass(&mut self, len: u64) -> Result<(), Fault> {
        let start = self.input.position();
        let passed = self.input.skip(len)?;
        if passed < len {
            return Err(self.ends(len, start));
        }
        Ok(())
    }

    /// A line that is there: kept or long.
    pub(super) fn line(&mut self) -> Result<Line<'_>, Fault> {
        let (at, op) = (self.at, self.op);
        match self.input.line()? {
            Line::Cut(end) => Err(ends(at, op, 1, end)),
            line => Ok(line),
        }
    }

    /// A line that must be short.
    pub(super) fn kept_line(&mut self) -> Result<Vec<u8>, Fault> {
        match self.line()? {
            Line::Kept(line) => Ok(line.to_vec()),
            Line::Long(len) | Line::Cut(len) => Err(self.fault(&format!("a line of {len} bytes"))),
        }
    }

    pub(super) fn fault(&self, what: &str) -> Fault {
        fault(self.at, self.op, what)
    }

    pub(super) fn ends(&self, len: u64, have: u64) -> Fault {
        ends(self.at, self.op, len, have)
    }
}

pub(super) fn fault(at: u64, op: Op, what: &str) -> Fault {
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
