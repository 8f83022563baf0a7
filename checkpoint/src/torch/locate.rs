//! Finding the archive at the end of a file.

use std::io;

use rawzip::{ErrorKind, ReaderAt, ZipArchive, ZipLocator};

use crate::{Error, file::SourceReader};

/// Bytes at the end that may hold the end record.
const END_SEARCH: u64 = 1 << 20;
/// Sizes of the zip64 end record and of its locator.
const END64: u64 = 56;
const LOCATOR64: u64 = 20;

/// The file from some byte on.
pub(super) struct Window<'a> {
    file: &'a SourceReader,
    base: u64,
}

pub(super) type Zip<'a> = ZipArchive<Window<'a>>;

impl ReaderAt for Window<'_> {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let Some(at) = offset.checked_add(self.base) else {
            return Ok(0);
        };
        let left = usize::try_from(self.file.size().saturating_sub(at)).unwrap_or(usize::MAX);
        let len = left.min(out.len());
        if let Some(out) = out.get_mut(..len).filter(|out| !out.is_empty()) {
            let read = self.file.read_exact_at(at, out, "zip directory");
            read.map_err(io::Error::other)?;
        }
        Ok(len)
    }
}

/// Finds the archive at the end of the file. The second value is where its offsets count from:
/// not from 0 when bytes were put before it, another archive for example.
pub(super) fn locate<'a>(
    file: &'a SourceReader,
    buffer: &mut [u8],
) -> Result<(Zip<'a>, u64), Error> {
    let find = |base: u64, buffer: &mut [u8]| {
        let end = file.size().saturating_sub(base);
        ZipLocator::new()
            .max_search_space(END_SEARCH)
            .locate_in_reader(Window { file, base }, buffer, end)
            .map_err(|(_, error)| locate_error(file, error))
    };
    let zip = match find(0, buffer) {
        Ok(zip) => zip,
        // With bytes before the archive, its zip64 locator points to something else.
        Err(error) => {
            return match end_record(file).and_then(|end| shift64(file, end)) {
                Some(Ok(base @ 1..)) => Ok((find(base, buffer)?, base)),
                _ => Err(error),
            };
        }
    };
    let end = zip.eocd_offset();
    match shift64(file, end).or_else(|| shift32(file, end)) {
        None => Ok((zip, 0)),
        Some(base) => {
            let base = base.map_err(|missing| Error::Corrupt {
                path: file.path().to_owned(),
                what: format!(
                    "{missing} bytes are missing: the central directory is not where the end \
                     record says"
                ),
            })?;
            if base == 0 {
                Ok((zip, 0))
            } else {
                Ok((find(base, buffer)?, base))
            }
        }
    }
}

/// Where the last end record begins whose comment ends within the file.
fn end_record(file: &SourceReader) -> Option<u64> {
    const RECORD: usize = 22;
    let start = file.size().saturating_sub(END_SEARCH);
    let mut tail = vec![0; usize::try_from(file.size() - start).ok()?];
    file.read_exact_at(start, &mut tail, "zip end record")
        .ok()?;
    let at = tail
        .windows(RECORD)
        .rposition(|record| record.starts_with(b"PK\x05\x06"))?;
    let comment = u16::from_le_bytes(*tail.get(at + 20..)?.first_chunk()?);
    (at + RECORD + usize::from(comment) <= tail.len()).then_some(start + at as u64)
}

/// How far the zip64 end record lies behind where its locator says it does; an error if it lies
/// before. None if there is none in its usual place.
fn shift64(file: &SourceReader, end: u64) -> Option<Result<u64, u64>> {
    let locator = end.checked_sub(LOCATOR64)?;
    let at = locator.checked_sub(END64)?;
    let mut bytes = [0; 76];
    file.read_exact_at(at, &mut bytes, "zip64 end record")
        .ok()?;
    if bytes.get(..4)? != b"PK\x06\x06" || bytes.get(56..60)? != b"PK\x06\x07" {
        return None;
    }
    let stated = u64::from_le_bytes(*bytes.get(64..72)?.first_chunk()?);
    Some(distance(stated, at))
}

/// The same for the central directory, which ends where the end record begins.
fn shift32(file: &SourceReader, end: u64) -> Option<Result<u64, u64>> {
    let mut record = [0; 22];
    file.read_exact_at(end, &mut record, "zip end record")
        .ok()?;
    let len = u32::from_le_bytes(*record.get(12..16)?.first_chunk()?);
    let stated = u32::from_le_bytes(*record.get(16..20)?.first_chunk()?);
    let at = end.checked_sub(len.into())?;
    let mut magic = [0; 4];
    file.read_exact_at(at, &mut magic, "zip directory").ok()?;
    (len > 0 && magic == *b"PK\x01\x02").then(|| distance(stated.into(), at))
}

fn distance(stated: u64, at: u64) -> Result<u64, u64> {
    at.checked_sub(stated)
        .ok_or_else(|| stated.saturating_sub(at))
}

fn locate_error(file: &SourceReader, error: rawzip::Error) -> Error {
    let path = file.path().to_owned();
    match error.into_kind() {
        ErrorKind::MissingEndOfCentralDirectory => Error::Truncated {
            path,
            what: "the zip archive has no central directory: its end record".to_owned(),
            need: file.size().saturating_add(22),
            have: file.size(),
        },
        ErrorKind::IO(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
            match error.downcast::<Error>() {
                Ok(error) => error,
                Err(source) => Error::Io { path, source },
            }
        }
        kind => Error::Corrupt {
            path,
            what: format!("end of the zip archive: {kind}"),
        },
    }
}

/// Whether another archive ends before `first`.
pub(super) fn stands_before(file: &SourceReader, first: u64, buffer: &mut [u8]) -> bool {
    ZipLocator::new()
        .max_search_space(END_SEARCH)
        .locate_in_reader(Window { file, base: 0 }, buffer, first)
        .is_ok()
}
