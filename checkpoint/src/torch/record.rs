//! The bytes of one record of an archive, or of one storage of a stream.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt as _,
    sync::{Arc, Mutex, PoisonError},
};

use flate2::{Crc, read::DeflateDecoder};

use super::coverage::Coverage;
use crate::{Error, file::SourceReader, pickle::Feed};

/// Bytes of a storage.
#[derive(Debug)]
pub(super) struct Storage {
    file: Arc<SourceReader>,
    /// Name for messages, e.g. `data/0`.
    what: String,
    len: u64,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// They lie in the file as they are.
    Stored {
        offset: u64,
        coverage: Option<Coverage>,
    },
    /// They lie there compressed.
    Deflated {
        packed: Packed,
        spool: Arc<Spool>,
        place: Mutex<Option<u64>>,
    },
}

/// Where a compressed record lies and what it should become.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packed {
    /// Offset of the compressed bytes.
    pub(super) offset: u64,
    /// Their number.
    pub(super) packed_len: u64,
    /// Bytes it expands to.
    pub(super) len: u64,
    /// Their CRC-32, if the archive states one.
    pub(super) crc: Option<u32>,
}

/// Decompressed records of one archive: a file without a name, made when the first is read.
#[derive(Debug, Default)]
pub(super) struct Spool {
    inner: Mutex<Option<(Arc<File>, u64)>>,
}

impl Storage {
    /// Bytes that lie in the file as they are. The file is known to hold them.
    pub(super) fn stored(
        file: Arc<SourceReader>,
        what: String,
        offset: u64,
        len: u64,
        crc: Option<u32>,
    ) -> Self {
        let coverage = crc.map(|crc| Coverage::new(len, crc));
        Self {
            file,
            what,
            len,
            kind: Kind::Stored { offset, coverage },
        }
    }

    /// Bytes that are decompressed when the first of them is read.
    pub(super) fn deflated(
        file: Arc<SourceReader>,
        what: String,
        packed: Packed,
        spool: Arc<Spool>,
    ) -> Self {
        let kind = Kind::Deflated {
            packed,
            spool,
            place: Mutex::new(None),
        };
        Self {
            file,
            what,
            len: packed.len,
            kind,
        }
    }

    pub(super) fn file(&self) -> &SourceReader {
        &self.file
    }

    pub(super) fn what(&self) -> &str {
        &self.what
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Where it lies in the file as it is.
    pub(super) fn place(&self) -> Option<u64> {
        match self.kind {
            Kind::Stored { offset, .. } => Some(offset),
            Kind::Deflated { .. } => None,
        }
    }

    /// Fills `out` from `offset` on.
    pub(super) fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let wanted = u64::try_from(out.len()).unwrap_or(u64::MAX);
        if offset.checked_add(wanted).is_none_or(|end| end > self.len) {
            return Err(Error::OutOfBounds {
                path: self.file.path().to_owned(),
                tensor: self.what.clone(),
                what: format!("{wanted} bytes at {offset} of {}", self.len),
            });
        }
        match &self.kind {
            Kind::Stored {
                offset: start,
                coverage,
            } => {
                self.file
                    .read_exact_at(start.saturating_add(offset), out, &self.what)?;
                match coverage {
                    Some(coverage) => coverage.saw(offset, out).map_err(|mismatch| {
                        crc_error(&self.file, &self.what, mismatch.expected, mismatch.found)
                    }),
                    None => Ok(()),
                }
            }
            Kind::Deflated {
                packed,
                spool,
                place,
            } => {
                let (file, start) = self.unpacked(packed, spool, place)?;
                file.read_exact_at(out, start.saturating_add(offset))
                    .map_err(|e| self.io(e))
            }
        }
    }

    /// Asks for a range to be brought into memory soon.
    pub(super) fn will_need(&self, offset: u64, len: u64) {
        if let Kind::Stored { offset: start, .. } = self.kind {
            let len = len.min(self.len.saturating_sub(offset));
            self.file.will_need(start.saturating_add(offset), len);
        }
    }

    fn unpacked(
        &self,
        packed: &Packed,
        spool: &Spool,
        place: &Mutex<Option<u64>>,
    ) -> Result<(Arc<File>, u64), Error> {
        // One thread unpacks a record, others wait for it.
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, start) = match *place {
            Some(start) => return Ok((spool.file().map_err(|e| self.io(e))?, start)),
            None => spool.reserve(packed.len).map_err(|e| self.io(e))?,
        };
        let mut at = start;
        let mut feed = Inflate::new(Arc::clone(&self.file), self.what.clone(), *packed);
        let mut buffer = vec![0; 256 << 10];
        loop {
            let read = feed.read(&mut buffer)?;
            let Some(part) = buffer.get(..read).filter(|part| !part.is_empty()) else {
                break;
            };
            file.write_all_at(part, at).map_err(|e| self.io(e))?;
            at = at.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        }
        *place = Some(start);
        Ok((file, start))
    }

    fn io(&self, source: io::Error) -> Error {
        let what = format!("{} in the temporary folder: {source}", self.what);
        let source = io::Error::new(source.kind(), what);
        Error::Io {
            path: self.file.path().to_owned(),
            source,
        }
    }
}

impl Spool {
    fn file(&self) -> io::Result<Arc<File>> {
        self.reserve(0).map(|(file, _)| file)
    }

    /// A range of its own for one record.
    fn reserve(&self, len: u64) -> io::Result<(Arc<File>, u64)> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, end) = match inner.take() {
            Some(inner) => inner,
            None => (Arc::new(tempfile::tempfile()?), 0),
        };
        let next = end.checked_add(len).ok_or(io::ErrorKind::FileTooLarge)?;
        *inner = Some((Arc::clone(&file), next));
        Ok((file, end))
    }
}

fn crc_error(file: &SourceReader, what: &str, expected: u32, found: u32) -> Error {
    Error::Corrupt {
        path: file.path().to_owned(),
        what: format!("CRC-32 mismatch in {what}: {expected:08x} expected, {found:08x} found"),
    }
}

/// A range of a file as a stream.
#[derive(Debug)]
pub(super) struct Stream {
    file: Arc<SourceReader>,
    what: String,
    at: u64,
    end: u64,
}

impl Stream {
    /// Reads `at..end`, which the file is known to hold.
    pub(super) fn new(file: Arc<SourceReader>, what: String, at: u64, end: u64) -> Self {
        Self {
            file,
            what,
            at,
            end,
        }
    }
}

impl Feed for Stream {
    fn read(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let len = left.min(out.len());
        if let Some(out) = out.get_mut(..len) {
            self.file.read_exact_at(self.at, out, &self.what)?;
        }
        self.at = self
            .at
            .saturating_add(u64::try_from(len).unwrap_or(u64::MAX));
        Ok(len)
    }

    fn skip(&mut self, len: u64) -> Result<u64, Error> {
        let len = len.min(self.end.saturating_sub(self.at));
        self.at = self.at.saturating_add(len);
        Ok(len)
    }
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        Feed::read(self, out).map_err(io::Error::other)
    }
}

/// A compressed record as a stream of its content. At its end, length and CRC-32 are checked.
pub(super) struct Inflate {
    file: Arc<SourceReader>,
    what: String,
    packed: Packed,
    decoder: DeflateDecoder<Stream>,
    crc: Crc,
    seen: u64,
}

impl Inflate {
    /// From its first byte on.
    pub(super) fn new(file: Arc<SourceReader>, what: String, packed: Packed) -> Self {
        let end = packed.offset.saturating_add(packed.packed_len);
        let stream = Stream::new(Arc::clone(&file), what.clone(), packed.offset, end);
        let decoder = DeflateDecoder::new(stream);
        Self {
            file,
            what,
            packed,
            decoder,
            crc: Crc::new(),
            seen: 0,
        }
    }

    fn corrupt(&self, what: &str) -> Error {
        let what = format!("{}: {what}", self.what);
        Error::Corrupt {
            path: self.file.path().to_owned(),
            what,
        }
    }

    fn finish(&self) -> Result<usize, Error> {
        if self.seen != self.packed.len {
            return Err(Error::SizeMismatch {
                path: self.file.path().to_owned(),
                what: format!("decompressed {}", self.what),
                expected: self.packed.len,
                found: self.seen,
            });
        }
        match self.packed.crc.filter(|&crc| crc != self.crc.sum()) {
            Some(crc) => Err(crc_error(&self.file, &self.what, crc, self.crc.sum())),
            None => Ok(0),
        }
    }
}

impl Feed for Inflate {
    fn read(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        if out.is_empty() {
            return Ok(0);
        }
        let read = match self.decoder.read(out) {
            Ok(0) => return self.finish(),
            Ok(read) => read,
            Err(error) => {
                return Err(match error.downcast::<Error>() {
                    Ok(error) => error,
                    Err(error) => self.corrupt(&format!("bad compressed data: {error}")),
                });
            }
        };
        self.crc.update(out.get(..read).unwrap_or_default());
        self.seen = self
            .seen
            .saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        if self.seen > self.packed.len {
            let limit = self.packed.len;
            return Err(self.corrupt(&format!("it expands to more than the {limit} bytes stated")));
        }
        Ok(read)
    }

    fn skip(&mut self, len: u64) -> Result<u64, Error> {
        let mut left = len;
        let mut buffer = [0; 4096];
        while left > 0 {
            let now = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            let read = self.read(buffer.get_mut(..now).unwrap_or_default())?;
            if read == 0 {
                break;
            }
            left = left.saturating_sub(u64::try_from(read).unwrap_or(u64::MAX));
        }
        Ok(len - left)
    }
}

impl Feed for Box<dyn Feed> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        self.as_mut().read(out)
    }

    fn skip(&mut self, len: u64) -> Result<u64, Error> {
        self.as_mut().skip(len)
    }
}
