//! Numbers, texts and bytes from what stands behind their opcodes.

use super::{
    Fault, Feed, MAX_KEPT,
    input::Line,
    literal::{Whole, raw_unicode, unquote, whole_from_bytes, whole_from_text},
    machine::{Machine, fault},
};

impl<F: Feed> Machine<'_, F> {
    pub(super) fn bool(&mut self, value: bool) -> Result<(), Fault> {
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

    pub(super) fn int(&mut self, value: i64) -> Result<(), Fault> {
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

    pub(super) fn whole(&mut self, whole: Whole) -> Result<(), Fault> {
        let id = match whole {
            Whole::Int(value) => return self.int(value),
            Whole::Wide(value) => self.graph.wide(value)?,
            Whole::Huge => self.graph.huge()?,
        };
        self.push(id)
    }

    pub(super) fn long(&mut self, len: u64) -> Result<(), Fault> {
        let whole = match self.kept(len)? {
            Some(bytes) => whole_from_bytes(bytes),
            None => Whole::Huge,
        };
        self.whole(whole)
    }

    /// `00` and `01` are the booleans of protocol 0 and 1.
    pub(super) fn text_int(&mut self) -> Result<(), Fault> {
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
    pub(super) fn number<T>(&mut self, parse: fn(&[u8]) -> Option<T>) -> Result<Option<T>, Fault> {
        let parsed = match self.line()? {
            Line::Kept(line) => parse(line),
            Line::Long(_) | Line::Cut(_) => return Ok(None),
        };
        parsed.map(Some).ok_or_else(|| self.fault("not a number"))
    }

    pub(super) fn text_string(&mut self) -> Result<(), Fault> {
        let bytes = match self.line()? {
            Line::Kept(line) => unquote(line),
            Line::Long(_) | Line::Cut(_) => {
                let id = self.graph.long_text()?;
                return self.push(id);
            }
        };
        let bytes = bytes.ok_or_else(|| self.fault("bad quotes or escapes"))?;
        self.push_old_string(&bytes)
    }

    pub(super) fn text_unicode(&mut self) -> Result<(), Fault> {
        let text = match self.line()? {
            Line::Kept(line) => raw_unicode(line),
            Line::Long(_) | Line::Cut(_) => {
                let id = self.graph.long_text()?;
                return self.push(id);
            }
        };
        let text = text.ok_or_else(|| self.fault("bad escape"))?;
        let id = self.graph.text(&text)?;
        self.push(id)
    }

    /// A `str` of Python 2: text where it can be read as such.
    pub(super) fn old_string(&mut self, len: u64) -> Result<(), Fault> {
        match self.kept(len)?.map(<[u8]>::to_vec) {
            Some(bytes) => self.push_old_string(&bytes),
            None => {
                let id = self.graph.long_text()?;
                self.push(id)
            }
        }
    }

    pub(super) fn push_old_string(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let id = match std::str::from_utf8(bytes) {
            Ok(text) => self.graph.text(text)?,
            Err(_) => self.graph.bytes(bytes)?,
        };
        self.push(id)
    }

    pub(super) fn text(&mut self, len: u64) -> Result<(), Fault> {
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
    pub(super) fn check_utf8(&mut self, len: u64) -> Result<(), Fault> {
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

    pub(super) fn binary(&mut self, len: u64) -> Result<(), Fault> {
        let bytes = self.kept(len)?.map(<[u8]>::to_vec);
        let id = match bytes {
            Some(bytes) => self.graph.bytes(&bytes)?,
            None => self.graph.long_bytes()?,
        };
        self.push(id)
    }

    pub(super) fn tuple<const N: usize>(&mut self) -> Result<(), Fault> {
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
}
