//! Bytes that lie apart, brought together.

use std::ops::ControlFlow;

use wpack_format::DType;

use super::{
    Piece, Reslice, ResliceEntry,
    table::Finder,
    widen::{widen, width},
};
use crate::{ByteSource, Error};

/// Pieces shorter than this are read together with what lies between them.
const SMALL: u64 = 64 << 10;
/// Elements that are cast at a time.
const CAST: usize = 64 << 10;
/// Bytes read at a time for small pieces.
const WINDOW: usize = 1 << 20;

impl Reslice {
    /// Reads a slice into memory of its length, wherever its bytes are.
    pub fn read(
        &self,
        source: &(impl ByteSource + ?Sized),
        entry: &ResliceEntry,
        into: &mut [u8],
    ) -> Result<(), Error> {
        if into.len() as u64 != entry.len {
            return Err(Error::WrongMemory {
                expected: 1,
                found: 1,
            });
        }
        if let Some(offset) = entry.file_offset() {
            return source.read_exact_at(offset, into);
        }
        let mut window = Window {
            source,
            bytes: Vec::new(),
            at: 0,
        };
        let mut rest = into;
        let mut outcome = Ok(());
        let visited = self.visit(&mut Finder::default(), entry, &mut |piece| {
            let len = match piece {
                Piece::Bytes { len, .. } | Piece::Fill { len, .. } => len,
                Piece::Cast { len, from, .. } => {
                    let width = width(from).map_or(1, |width| width as u64);
                    (len / width).saturating_mul(4)
                }
            };
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            let Some((now, later)) = std::mem::take(&mut rest).split_at_mut_checked(len) else {
                outcome = Err(Error::WrongMemory {
                    expected: 1,
                    found: 1,
                });
                return ControlFlow::Break(());
            };
            rest = later;
            outcome = match piece {
                Piece::Bytes { at, .. } => window.read(at, now),
                Piece::Cast { at, from, .. } => window.cast(at, from, now),
                Piece::Fill { value, .. } => {
                    fill(now, &value, entry.dtype().bits());
                    Ok(())
                }
            };
            if outcome.is_ok() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        outcome?;
        visited.map_err(|tensor| self.not_stored(entry, tensor, self.convert()))
    }
}

/// Repeats one element; for sub-byte types, whose fill is zero, its first byte.
fn fill(into: &mut [u8], value: &[u8; 16], bits: u32) {
    let width = usize::try_from(bits / 8).unwrap_or(1).max(1);
    for element in into.chunks_mut(width) {
        for (to, from) in element.iter_mut().zip(value) {
            *to = *from;
        }
    }
}

/// A stretch of the source, kept for the small pieces that follow.
struct Window<'s, S: ?Sized> {
    source: &'s S,
    bytes: Vec<u8>,
    at: u64,
}

impl<S: ByteSource + ?Sized> Window<'_, S> {
    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        if into.len() as u64 >= SMALL {
            return self.source.read_exact_at(at, into);
        }
        if self.of(at, into.len()).is_none() {
            let left = self.source.len().saturating_sub(at);
            let len = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(WINDOW)
                .max(into.len());
            self.bytes.resize(len, 0);
            self.source.read_exact_at(at, &mut self.bytes)?;
            self.at = at;
        }
        if let Some(bytes) = self.of(at, into.len()) {
            into.copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Reads elements of another type.
    fn cast(&mut self, at: u64, from: DType, into: &mut [u8]) -> Result<(), Error> {
        let Some(width) = width(from) else {
            return Ok(());
        };
        let mut elements = vec![0; (into.len() / 4).min(CAST) * width];
        let mut at = at;
        for into in into.chunks_mut(CAST * 4) {
            let elements = elements.get_mut(..into.len() / 4 * width);
            let elements = elements.unwrap_or_default();
            self.read(at, elements)?;
            widen(from, elements, into);
            at = at.saturating_add(elements.len() as u64);
        }
        Ok(())
    }

    fn of(&self, at: u64, len: usize) -> Option<&[u8]> {
        let from = usize::try_from(at.checked_sub(self.at)?).ok()?;
        self.bytes.get(from..from.checked_add(len)?)
    }
}
