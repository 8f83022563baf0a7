//! Files mapped into memory: the only place of this crate with `unsafe`.
//!
//! # What a map promises
//!
//! A map shows the file as it is, not as it was. The rule of this project is that a pack is never
//! changed in place: `wpack convert` writes another file and renames it, and a map keeps the file
//! that it was made from alive when that is replaced or deleted. Whoever breaks the rule breaks the
//! program: a page that is cut off is a `SIGBUS` when it is touched, and bytes that change under a
//! slice are undefined behaviour in Rust's terms. Programs that must survive such a file read
//! through [`crate::FileSource`], where it is an error.
#![expect(
    unsafe_code,
    reason = "mapping a file cannot be checked by the compiler"
)]

use std::fs::File;

use memmap2::{Advice, Mmap, MmapOptions, MmapRaw};

use crate::{ByteSource, Error, FileSource};

/// A whole file mapped for reading, its pages shared with every process that maps it.
///
/// A map shows the file as it is, not as it was. A pack must never be changed in place: write another
/// file and rename it, as `wpack convert` does. A file that is replaced or deleted stays alive for
/// those who mapped it. A page that is cut off a mapped file ends the process with `SIGBUS` when it is
/// touched; [`crate::FileSource`] makes an error of the same.
#[derive(Debug)]
pub struct Map(Option<Mmap>);

impl Map {
    /// Maps an open file in the length that it had when it was opened; nothing is read.
    pub fn new(file: &FileSource) -> Result<Self, Error> {
        file.revalidate()?;
        let len = usize::try_from(file.len()).map_err(|_| too_large(file))?;
        if len == 0 {
            return Ok(Self(None));
        }
        // SAFETY: the bytes must not change while the map lives. No code can prove that of a file;
        // the module's documentation states it as the caller's duty, and the map is private to this
        // type, which hands out shared slices only.
        let map = unsafe { MmapOptions::new().len(len).map(file.file()) };
        map.map(|map| Self(Some(map)))
            .map_err(|source| Error::map(file.label(), source))
    }
}

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

/// How an [`ExtentMap`] may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapMode {
    /// Reads share the page cache; a write makes the page private to this process. The file never
    /// changes. No swap is reserved; a kernel under strict overcommit may refuse that.
    #[default]
    CopyOnWrite,
    /// Reads share the page cache; a write is a fault that ends the process.
    ReadOnly,
}

/// A range of a file mapped for a program that works with addresses, such as tensors of another
/// language. It gives no slices: a copy-on-write map may be written through its address.
#[derive(Debug)]
pub struct ExtentMap {
    map: Option<MmapRaw>,
    len: usize,
    mode: MapMode,
}

impl ExtentMap {
    /// Maps `len` bytes of a file from `offset`, which needs no alignment; nothing is read.
    pub fn new(file: &FileSource, offset: u64, len: u64, mode: MapMode) -> Result<Self, Error> {
        file.revalidate()?;
        let end = offset.checked_add(len).filter(|end| *end <= file.len());
        let (Some(_), Ok(len)) = (end, usize::try_from(len)) else {
            return Err(too_large(file));
        };
        if len == 0 {
            return Ok(Self {
                map: None,
                len,
                mode,
            });
        }
        let map = Self::map(file.file(), offset, len, mode)
            .map_err(|source| Error::map(file.label(), source))?;
        Ok(Self {
            map: Some(map),
            len,
            mode,
        })
    }

    fn map(file: &File, offset: u64, len: usize, mode: MapMode) -> std::io::Result<MmapRaw> {
        let mut options = MmapOptions::new();
        options.offset(offset).len(len);
        match mode {
            MapMode::CopyOnWrite => {
                // SAFETY: as in `Map::new`; besides, no reference to the bytes is ever made here,
                // so that writes through the address alias nothing of ours.
                unsafe { options.no_reserve_swap().map_copy(file) }.map(MmapRaw::from)
            }
            MapMode::ReadOnly => options.map_raw_read_only(file),
        }
    }

    /// Address of the first byte; dangling but aligned when there are none. Valid while the map
    /// lives; writes through it only with [`MapMode::CopyOnWrite`].
    #[must_use]
    pub fn as_mut_ptr(&self) -> *mut u8 {
        match &self.map {
            Some(map) => map.as_mut_ptr(),
            None => std::ptr::without_provenance_mut(4096),
        }
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How it may be used.
    #[must_use]
    pub fn mode(&self) -> MapMode {
        self.mode
    }

    /// Brings a range into the page cache and the process's page table by read faults, so that no
    /// page becomes private. False when the kernel cannot; touching the pages does the same then.
    pub fn populate(&self, offset: usize, len: usize) -> bool {
        self.advise(Advice::PopulateRead, offset, len)
    }

    /// Says that a range will be read soon; returns at once.
    pub fn will_need(&self, offset: usize, len: usize) -> bool {
        self.advise(Advice::WillNeed, offset, len)
    }

    fn advise(&self, advice: Advice, offset: usize, len: usize) -> bool {
        let len = len.min(self.len.saturating_sub(offset));
        match &self.map {
            Some(map) if len > 0 => map.advise_range(advice, offset, len).is_ok(),
            _ => true,
        }
    }
}

fn too_large(file: &FileSource) -> Error {
    let source = std::io::Error::new(
        std::io::ErrorKind::FileTooLarge,
        "the range is not within the file and the address space",
    );
    Error::map(file.label(), source)
}
