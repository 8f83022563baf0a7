//! The bytes of a pickle, read through a small window.

use std::ops::Range;

use super::{Fault, MAX_KEPT};
use crate::Error;

/// Where the bytes come from.
pub(crate) trait Feed {
    /// Fills the front of `out` with the next bytes; 0 at the end.
    fn read(&mut self, out: &mut [u8]) -> Result<usize, Error>;

    /// Passes over the next `len` bytes unread; gives how many there were.
    fn skip(&mut self, len: u64) -> Result<u64, Error>;
}

impl Feed for &[u8] {
    fn read(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        let len = self.len().min(out.len());
        let (now, later) = self.split_at(len);
        if let Some(front) = out.get_mut(..len) {
            front.copy_from_slice(now);
        }
        *self = later;
        Ok(len)
    }

    fn skip(&mut self, len: u64) -> Result<u64, Error> {
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(self.len());
        *self = self.get(len..).unwrap_or_default();
        Ok(u64::try_from(len).unwrap_or(u64::MAX))
    }
}

/// A line without its newline.
pub(super) enum Line<'a> {
    /// Its bytes.
    Kept(&'a [u8]),
    /// Too long to be kept; its length.
    Long(u64),
    /// The input ends before its newline, at this offset.
    Cut(u64),
}

/// A reader with a window of the size of the longest string that is kept.
pub(crate) struct Input<F> {
    feed: F,
    window: Vec<u8>,
    /// Bytes of the window that are read but not taken.
    held: Range<usize>,
    /// Offset of `held.start` in the record.
    position: u64,
}

/// Window: a string that is kept, and its newline.
const WINDOW: usize = MAX_KEPT + 1;

impl<F: Feed> Input<F> {
    /// Reads from offset 0 on.
    pub(crate) fn new(feed: F) -> Self {
        Self {
            feed,
            window: Vec::new(),
            held: 0..0,
            position: 0,
        }
    }

    /// Offset of the next byte.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// One byte, if there is one.
    pub(crate) fn byte(&mut self) -> Result<Option<u8>, Fault> {
        Ok(self.take(1)?.and_then(|bytes| bytes.first().copied()))
    }

    /// A number of little-endian bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<Option<[u8; N]>, Fault> {
        Ok(self.take(N)?.and_then(|bytes| bytes.first_chunk().copied()))
    }

    /// The next `len` bytes, at most [`MAX_KEPT`]; none if the input ends before.
    pub(super) fn take(&mut self, len: usize) -> Result<Option<&[u8]>, Fault> {
        if self.held.len() < len {
            self.fill(len)?;
        }
        if self.held.len() < len {
            return Ok(None);
        }
        let start = self.held.start;
        self.advance(len);
        Ok(self.window.get(start..start + len))
    }

    /// Passes over `len` bytes; gives how many there were.
    pub(crate) fn skip(&mut self, len: u64) -> Result<u64, Fault> {
        let held = u64::try_from(self.held.len()).unwrap_or(u64::MAX);
        let now = usize::try_from(len.min(held)).unwrap_or(0);
        self.advance(now);
        let behind = if len > held {
            self.feed.skip(len - held)?
        } else {
            0
        };
        self.position = self.position.saturating_add(behind);
        Ok(len.min(held).saturating_add(behind))
    }

    /// The next line.
    pub(super) fn line(&mut self) -> Result<Line<'_>, Fault> {
        let mut seen = 0;
        loop {
            let held = self.window.get(self.held.clone()).unwrap_or_default();
            let found = held
                .get(seen..)
                .and_then(|rest| rest.iter().position(|&b| b == b'\n'));
            if let Some(at) = found {
                let start = self.held.start;
                let len = seen + at;
                self.advance(len + 1);
                let line = self.window.get(start..start + len);
                return Ok(Line::Kept(line.unwrap_or_default()));
            }
            seen = self.held.len();
            if seen > MAX_KEPT {
                return self.long_line();
            }
            self.fill(WINDOW.min(seen + (4 << 10)))?;
            if self.held.len() == seen {
                let held = u64::try_from(seen).unwrap_or(u64::MAX);
                return Ok(Line::Cut(self.position.saturating_add(held)));
            }
        }
    }

    fn long_line(&mut self) -> Result<Line<'_>, Fault> {
        let mut len = 0_u64;
        loop {
            let held = self.window.get(self.held.clone()).unwrap_or_default();
            let newline = held.iter().position(|&b| b == b'\n');
            let part = newline.unwrap_or(held.len());
            len = len.saturating_add(u64::try_from(part).unwrap_or(u64::MAX));
            self.advance(part + usize::from(newline.is_some()));
            if newline.is_some() {
                return Ok(Line::Long(len));
            }
            self.fill(1)?;
            if self.held.is_empty() {
                return Ok(Line::Cut(self.position));
            }
        }
    }

    fn advance(&mut self, len: usize) {
        self.held.start += len;
        self.position = self
            .position
            .saturating_add(u64::try_from(len).unwrap_or(u64::MAX));
    }

    /// Reads until `len` bytes are held or the input ends.
    fn fill(&mut self, len: usize) -> Result<(), Fault> {
        if self.window.is_empty() {
            self.window = vec![0; WINDOW];
        }
        self.window.copy_within(self.held.clone(), 0);
        self.held = 0..self.held.len();
        while self.held.len() < len {
            let free = self.window.get_mut(self.held.end..).unwrap_or_default();
            let read = self.feed.read(free)?;
            if read == 0 {
                break;
            }
            self.held.end += read.min(free.len());
        }
        Ok(())
    }
}
