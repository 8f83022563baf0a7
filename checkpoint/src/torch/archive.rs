//! The directory of a zip archive, checked as a whole before anything in it is used.
//!
//! PyTorch's own writer (`caffe2/serialize/inline_container.cc` of 2.11) leaves sizes and CRC-32 of
//! the local headers zero and always adds zip64 records, so sizes come from the central directory
//! and the place of the data from the local header. Everything that both state must agree, no name
//! may stand twice, and no two records may share a byte: readers differ in what they make of such
//! files.

use std::{collections::HashMap, sync::Arc};

use rawzip::ErrorKind;

use super::locate::{Zip, locate, stands_before};
use super::record::{Inflate, Packed, Spool, Storage, Stream};
use crate::{Error, Warning, file::SourceReader, pickle::Feed};

/// Room for one entry of the directory: three fields of 64 KiB and what stands before them.
const ENTRY_BUFFER: usize = 256 << 10;
/// DEFLATE cannot do better than this.
const MAX_RATIO: u64 = 1032;
/// Flags that say where sizes stand and how names are encoded, and how hard was compressed.
const HARMLESS_FLAGS: u16 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 11;

/// A record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    method: u16,
    encrypted: bool,
    packed: Packed,
}

/// An archive whose directory is sound.
#[derive(Debug)]
pub(super) struct Archive {
    file: Arc<SourceReader>,
    entries: HashMap<String, Entry>,
    /// Names in the order of the directory, `/` between their parts.
    names: Vec<String>,
    spool: Arc<Spool>,
    warnings: Vec<Warning>,
}

impl Archive {
    /// Reads directory and local headers.
    pub(super) fn open(file: Arc<SourceReader>) -> Result<Self, Error> {
        let corrupt = |what: String| Error::Corrupt {
            path: file.path().to_owned(),
            what,
        };
        let mut buffer = vec![0; ENTRY_BUFFER];
        let (zip, base) = locate(&file, &mut buffer)?;
        let mut warnings = Vec::new();
        let end = zip.end_offset().saturating_add(base);
        if end < file.size() {
            warnings.push(Warning {
                code: "trailing-bytes",
                message: format!("{} bytes after the end of the archive", file.size() - end),
            });
        }

        let mut listed = Vec::new();
        let mut backslashes = false;
        let mut iterator = zip.entries(&mut buffer);
        loop {
            let next = iterator.next_entry().map_err(|error| {
                corrupt(format!(
                    "central directory, entry {}: {error}",
                    listed.len()
                ))
            })?;
            let Some(record) = next else { break };
            let raw = record.file_path().as_ref().to_vec();
            backslashes |= raw.contains(&b'\\');
            listed.push(Listed {
                raw,
                wayfinder: record.wayfinder(),
                header: record.local_header_offset(),
                method: record.compression_method().as_u16(),
                flags: record.flags().bits(),
                encrypted: record.flags().is_encrypted() || record.flags().has_strong_encryption(),
                crc: record.crc32(),
                directory: record.is_dir(),
            });
        }
        let hint = zip.entries_hint();
        if u64::try_from(listed.len()) != Ok(hint) && hint != u64::from(u16::MAX) {
            let found = listed.len();
            return Err(corrupt(format!(
                "central directory: {hint} entries stated, {found} there"
            )));
        }
        if backslashes {
            warnings.push(Warning {
                code: "backslash-record-names",
                message: "record names have `\\` where zip has `/`".to_owned(),
            });
        }
        // An archive that was written without checksums says 0 everywhere.
        let crc = listed.iter().any(|entry| entry.crc != 0);
        let data = listed
            .iter()
            .any(|entry| entry.wayfinder.uncompressed_size_hint() > 0);
        if !crc && data {
            warnings.push(Warning {
                code: "crc-not-computed",
                message: "the archive was written without checksums: damage cannot be seen"
                    .to_owned(),
            });
        }

        let mut archive = Self {
            entries: HashMap::with_capacity(listed.len()),
            names: Vec::with_capacity(listed.len()),
            spool: Arc::default(),
            warnings,
            file: Arc::clone(&file),
        };
        let mut spans = Vec::with_capacity(listed.len());
        for entry in listed {
            archive.add(&zip, base, entry, crc, &mut spans, &mut buffer)?;
        }
        archive.check_overlaps(spans, zip.directory_offset().saturating_add(base))?;
        archive.check_front(&zip, base, &mut buffer)?;
        Ok(archive)
    }

    fn add(
        &mut self,
        zip: &Zip<'_>,
        base: u64,
        listed: Listed,
        crc: bool,
        spans: &mut Vec<(u64, u64, usize)>,
        buffer: &mut [u8],
    ) -> Result<(), Error> {
        let name = String::from_utf8_lossy(&listed.raw).replace('\\', "/");
        let corrupt = |what: &str| Error::Corrupt {
            path: self.file.path().to_owned(),
            what: format!("record {}: {what}", crate::error::Name(&name)),
        };
        let entry = zip
            .get_entry(listed.wayfinder)
            .map_err(|error| match error.kind() {
                ErrorKind::IO(_) | ErrorKind::Eof | ErrorKind::InvalidSignature { .. } => {
                    corrupt("its local header is not where the central directory says")
                }
                _ => corrupt(&error.to_string()),
            })?;
        let local = entry
            .local_header(buffer)
            .map_err(|_| corrupt("its local header is not where the central directory says"))?;
        if local.file_path().as_ref() != listed.raw.as_slice() {
            return Err(corrupt("local and central names differ"));
        }
        if (local.flags().bits() ^ listed.flags) & !HARMLESS_FLAGS != 0 {
            return Err(corrupt("local and central flags differ"));
        }
        if local.compression_method().as_u16() != listed.method {
            return Err(corrupt("local and central compression methods differ"));
        }
        let size = listed.wayfinder.uncompressed_size_hint();
        let packed = listed.wayfinder.compressed_size_hint();
        let (local_size, local_packed) =
            (local.uncompressed_size_hint(), local.compressed_size_hint());
        // Zero where the data descriptor behind the data has them.
        let agree = |local: u64, central: u64| local == central || local == 0;
        if !agree(local_size, size) || !agree(local_packed, packed) {
            return Err(corrupt("local and central sizes differ"));
        }
        match listed.method {
            0 if size != packed => {
                let what = format!("stored, but {packed} bytes stand for {size}");
                return Err(corrupt(&what));
            }
            8 if size / MAX_RATIO > packed => {
                let what = format!("{packed} compressed bytes cannot stand for {size}");
                return Err(corrupt(&what));
            }
            _ => {}
        }
        let (start, end) = entry.compressed_data_range();
        let (start, end) = (start.saturating_add(base), end.saturating_add(base));
        self.file.check(start, end.saturating_sub(start), &name)?;
        spans.push((listed.header.saturating_add(base), end, self.names.len()));

        let entry = Entry {
            method: listed.method,
            encrypted: listed.encrypted,
            packed: Packed {
                offset: start,
                packed_len: packed,
                len: size,
                crc: crc.then_some(listed.crc),
            },
        };
        self.names.push(name.clone());
        if listed.directory || name.ends_with('/') {
            return Ok(());
        }
        // PyTorch looks names up in any case.
        if self
            .entries
            .insert(name.to_ascii_lowercase(), entry)
            .is_some()
        {
            return Err(Error::AmbiguousArchive {
                path: self.file.path().to_owned(),
                what: format!("duplicate record {}", crate::error::Name(&name)),
            });
        }
        Ok(())
    }

    fn check_overlaps(
        &self,
        mut spans: Vec<(u64, u64, usize)>,
        directory: u64,
    ) -> Result<(), Error> {
        spans.sort_unstable();
        let corrupt = |what: String| Error::Corrupt {
            path: self.file.path().to_owned(),
            what,
        };
        let name = |at: usize| self.names.get(at).map_or("", String::as_str);
        for pair in spans.windows(2) {
            let [(_, end, a), (start, _, b)] = pair else {
                continue;
            };
            if start < end {
                let (a, b) = (crate::error::Name(name(*a)), crate::error::Name(name(*b)));
                return Err(corrupt(format!("records {a} and {b} overlap")));
            }
        }
        match spans.last() {
            Some(&(_, end, at)) if end > directory => {
                let record = crate::error::Name(name(at));
                Err(corrupt(format!(
                    "record {record} reaches into the central directory"
                )))
            }
            _ => Ok(()),
        }
    }

    /// What stands before the first record: another archive is a sign of a distributed checkpoint.
    fn check_front(&mut self, zip: &Zip<'_>, base: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let mut first = zip.directory_offset().saturating_add(base);
        for entry in self.entries.values() {
            first = first.min(entry.packed.offset);
        }
        // The first record's header lies before its data.
        let mut magic = [0; 4];
        self.file.read_exact_at(0, &mut magic, "the first bytes")?;
        let at_front = magic == *b"PK\x03\x04" && base == 0;
        let before = stands_before(&self.file, first, buffer);
        if before {
            return Err(Error::UnsupportedFormat {
                path: self.file.path().to_owned(),
                what: "several zip archives concatenated, as in the .distcp files of a \
                       distributed checkpoint"
                    .to_owned(),
                remedy: Some(super::DCP_REMEDY.to_owned()),
            });
        }
        if !at_front {
            self.warnings.push(Warning {
                code: "prepended-data",
                message: "the archive does not begin at the first byte of the file".to_owned(),
            });
        }
        Ok(())
    }

    pub(super) fn file(&self) -> &Arc<SourceReader> {
        &self.file
    }

    /// Names in the order of the directory.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    pub(super) fn take_warnings(&mut self) -> Vec<Warning> {
        std::mem::take(&mut self.warnings)
    }

    /// A record by name, in any case.
    pub(super) fn entry(&self, name: &str) -> Option<Entry> {
        self.entries.get(&name.to_ascii_lowercase()).copied()
    }

    /// Whether any of the records is compressed.
    pub(super) fn compressed(&self) -> bool {
        self.entries.values().any(|entry| entry.method != 0)
    }

    /// A record as a stream.
    pub(super) fn stream(&self, name: &str, entry: Entry) -> Result<Box<dyn Feed>, Error> {
        self.readable(name, entry)?;
        let Packed {
            offset, packed_len, ..
        } = entry.packed;
        let file = Arc::clone(&self.file);
        Ok(if entry.method == 0 {
            let end = offset.saturating_add(packed_len);
            Box::new(Stream::new(file, name.to_owned(), offset, end))
        } else {
            Box::new(Inflate::new(file, name.to_owned(), entry.packed))
        })
    }

    /// A record for reading at any place.
    pub(super) fn storage(&self, name: &str, entry: Entry) -> Result<Storage, Error> {
        self.readable(name, entry)?;
        let file = Arc::clone(&self.file);
        let what = name.to_owned();
        Ok(if entry.method == 0 {
            let Packed {
                offset, len, crc, ..
            } = entry.packed;
            Storage::stored(file, what, offset, len, crc)
        } else {
            Storage::deflated(file, what, entry.packed, Arc::clone(&self.spool))
        })
    }

    /// Reads a record to its end for its checksum. Decompressing checks it by itself.
    pub(super) fn verify(&self, name: &str, entry: Entry) -> Result<(), Error> {
        let mut buffer = [0; 16 << 10];
        if entry.method != 0 {
            let mut stream = self.stream(name, entry)?;
            while stream.read(&mut buffer)? > 0 {}
            return Ok(());
        }
        let storage = self.storage(name, entry)?;
        let mut at = 0;
        while at < storage.len() {
            let left = usize::try_from(storage.len() - at).unwrap_or(usize::MAX);
            let now = left.min(buffer.len());
            storage.read_at(at, buffer.get_mut(..now).unwrap_or_default())?;
            at = at.saturating_add(u64::try_from(now).unwrap_or(u64::MAX));
        }
        Ok(())
    }

    /// A record of a few bytes, checked.
    pub(super) fn small(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        const MOST: u64 = 4096;
        let Some(entry) = self.entry(name) else {
            return Ok(None);
        };
        if entry.len() > MOST {
            return Err(Error::Corrupt {
                path: self.file.path().to_owned(),
                what: format!("record {name} has {} bytes", entry.len()),
            });
        }
        self.verify(name, entry)?;
        let mut out = vec![0; usize::try_from(entry.len()).unwrap_or(0)];
        let mut stream = self.stream(name, entry)?;
        let mut filled = 0;
        while let Some(rest) = out.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match stream.read(rest)? {
                0 => break,
                read => filled += read,
            }
        }
        out.truncate(filled);
        Ok(Some(out))
    }

    fn readable(&self, name: &str, entry: Entry) -> Result<(), Error> {
        let what = match entry.method {
            _ if entry.encrypted => "encrypted".to_owned(),
            0 | 8 => return Ok(()),
            method => format!("compressed with zip method {method}"),
        };
        Err(Error::UnsupportedFormat {
            path: self.file.path().to_owned(),
            what: format!("record {name} is {what}"),
            remedy: Some("unpack the archive and pack it again without compression".to_owned()),
        })
    }
}

impl Entry {
    /// Bytes of its content.
    pub(super) fn len(self) -> u64 {
        self.packed.len
    }

    /// Bytes that content takes apart from the file: none for a stored record.
    pub(super) fn expanded(self) -> u64 {
        if self.method == 0 { 0 } else { self.packed.len }
    }
}

/// One entry of the central directory.
struct Listed {
    raw: Vec<u8>,
    wayfinder: rawzip::ZipArchiveEntryWayfinder,
    header: u64,
    method: u16,
    flags: u16,
    encrypted: bool,
    crc: u32,
    directory: bool,
}
