//! Reading a source file: by position, by everyone at once, never past what was there at open.

use std::{
    fs::File,
    io::ErrorKind,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{Bytes, Error};

/// A regular file, opened once and shared by all readers of it.
#[derive(Debug)]
pub(crate) struct SourceReader {
    path: PathBuf,
    file: File,
    size: u64,
}

impl SourceReader {
    /// Opens a regular file and notes its length. Symbolic links are followed.
    pub(crate) fn open(path: &Path) -> Result<Arc<Self>, Error> {
        let io = |source| Error::Io {
            path: path.to_owned(),
            source,
        };
        // Before opening: to open a pipe waits for its writer.
        if !std::fs::metadata(path).map_err(io)?.is_file() {
            let source = std::io::Error::new(ErrorKind::InvalidInput, "not a regular file");
            return Err(io(source));
        }
        let file = File::open(path).map_err(io)?;
        let size = file.metadata().map_err(io)?.len();
        Ok(Arc::new(Self {
            path: path.to_owned(),
            file,
            size,
        }))
    }

    /// The path as it was opened; for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its last part, the only one that leaves this crate in anything but an error.
    pub(crate) fn base_name(&self) -> String {
        base_name(&self.path)
    }

    /// Bytes at the time of opening.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Fills `out` from `offset` on. `what` names the part that is read, for the error.
    pub(crate) fn read_exact_at(
        &self,
        offset: u64,
        out: &mut [u8],
        what: &str,
    ) -> Result<(), Error> {
        let len = u64::try_from(out.len()).unwrap_or(u64::MAX);
        self.check(offset, len, what)?;
        match self.file.read_exact_at(out, offset) {
            Ok(()) => Ok(()),
            // The file has become shorter since it was opened.
            Err(source) if source.kind() == ErrorKind::UnexpectedEof => {
                let have = self.file.metadata().map_or(0, |data| data.len());
                Err(Error::Truncated {
                    path: self.path.clone(),
                    what: format!("{what} (cut since it was opened)"),
                    need: offset.saturating_add(len),
                    have,
                })
            }
            Err(source) => Err(Error::Io {
                path: self.path.clone(),
                source,
            }),
        }
    }

    /// Reads `len` bytes from `offset` on; allocates only what the file can back.
    pub(crate) fn read_vec(&self, offset: u64, len: u64, what: &str) -> Result<Vec<u8>, Error> {
        self.check(offset, len, what)?;
        let len = usize::try_from(len).map_err(|_| Error::ResourceLimit {
            path: self.path.clone(),
            what: format!("{what} in bytes"),
            found: u128::from(len),
            limit: u64::try_from(usize::MAX).unwrap_or(u64::MAX),
        })?;
        let mut out = vec![0; len];
        self.read_exact_at(offset, &mut out, what)?;
        Ok(out)
    }

    /// Up to `len` bytes from the front.
    pub(crate) fn head(&self, len: u64) -> Result<Vec<u8>, Error> {
        self.read_vec(0, len.min(self.size), "the file")
    }

    /// Refuses a range that the file does not hold.
    pub(crate) fn check(&self, offset: u64, len: u64, what: &str) -> Result<(), Error> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size => Ok(()),
            end => Err(Error::Truncated {
                path: self.path.clone(),
                what: what.to_owned(),
                need: end.unwrap_or(u64::MAX),
                have: self.size,
            }),
        }
    }

    /// Asks for a range to be brought into memory soon; never an error.
    pub(crate) fn will_need(&self, offset: u64, len: u64) {
        #[cfg(target_os = "linux")]
        if let Some(len) = std::num::NonZeroU64::new(len) {
            // A hint: where the file system knows none, reading goes on without it.
            let _unused =
                rustix::fs::fadvise(&self.file, offset, Some(len), rustix::fs::Advice::WillNeed);
        }
        #[cfg(not(target_os = "linux"))]
        let _unused = (offset, len);
    }
}

/// The last part of a path as text.
pub(crate) fn base_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

/// Logical bytes that lie in a file in one piece.
#[derive(Debug)]
pub(crate) struct FileRange {
    file: Arc<SourceReader>,
    offset: u64,
    len: u64,
}

impl FileRange {
    /// A range that the file is known to hold: refused otherwise.
    pub(crate) fn new(
        file: Arc<SourceReader>,
        offset: u64,
        len: u64,
        what: &str,
    ) -> Result<Self, Error> {
        file.check(offset, len, what)?;
        Ok(Self { file, offset, len })
    }
}

impl Bytes for FileRange {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let wanted = u64::try_from(out.len()).unwrap_or(u64::MAX);
        let inside = offset
            .checked_add(wanted)
            .is_some_and(|end| end <= self.len);
        match self.offset.checked_add(offset) {
            Some(at) if inside => self.file.read_exact_at(at, out, "tensor data"),
            _ => Err(Error::OutOfBounds {
                path: self.file.path().to_owned(),
                tensor: "tensor data".to_owned(),
                what: format!("{wanted} bytes at {offset} of {}", self.len),
            }),
        }
    }

    fn place(&self) -> Option<u64> {
        Some(self.offset)
    }

    fn will_need(&self, offset: u64, len: u64) {
        let len = len.min(self.len.saturating_sub(offset));
        self.file.will_need(self.offset.saturating_add(offset), len);
    }
}
