//! Files read with `pread`, with the paths beside it that the system offers.

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::{
    fs::{Advice, AtFlags, CWD, Mode, OFlags, StatxFlags, fadvise, openat, statx},
    io::{Errno, ReadWriteFlags, preadv2},
};

use crate::{ByteSource, Error};

/// A file opened for positional reads. Its length is taken once, at open; a file that shrinks later
/// gives [`Error::Truncated`] where the bytes end, never a signal.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    direct: Option<Direct>,
    path: PathBuf,
    identity: Identity,
    /// Cleared at the first sign that the file system cannot say what is cached.
    nowait: AtomicBool,
}

#[derive(Debug)]
struct Direct {
    file: File,
    align: u32,
}

/// What must not change while a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    len: u64,
    inode: u64,
    device: u64,
    modified: (i64, i64),
}

impl Identity {
    fn of(file: &File) -> io::Result<Self> {
        let meta = file.metadata()?;
        if !meta.is_file() {
            let (kind, what) = if meta.is_dir() {
                (io::ErrorKind::IsADirectory, "it is a directory")
            } else {
                (io::ErrorKind::InvalidInput, "it is no regular file")
            };
            return Err(io::Error::new(kind, what));
        }
        Ok(Self {
            len: meta.len(),
            inode: meta.ino(),
            device: meta.dev(),
            modified: (meta.mtime(), meta.mtime_nsec()),
        })
    }
}

impl FileSource {
    /// Opens a file read-only.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let wrap = |source| Error::io(path.display().to_string(), source);
        // Without NONBLOCK, opening a named pipe would wait for a writer for ever.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = openat(CWD, path, flags, Mode::empty());
        let file = File::from(file.map_err(|errno| wrap(errno.into()))?);
        let identity = Identity::of(&file).map_err(wrap)?;
        let direct = Direct::open(path, &identity);
        Ok(Self {
            file,
            direct,
            path: path.to_owned(),
            identity,
            nowait: AtomicBool::new(true),
        })
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Direct {
    /// A second descriptor around the page cache, if the file system says how reads must be aligned
    /// there. Overlays and file systems in memory say nothing and so get none.
    fn open(path: &Path, identity: &Identity) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT;
        let file = File::from(openat(CWD, path, flags, Mode::empty()).ok()?);
        if Identity::of(&file).ok()? != *identity {
            return None;
        }
        let facts = statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
        if facts.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
            return None;
        }
        let align = facts.stx_dio_mem_align.max(facts.stx_dio_offset_align);
        (align.is_power_of_two() && align <= 4096).then_some(Self { file, align })
    }
}

impl ByteSource for FileSource {
    fn len(&self) -> u64 {
        self.identity.len
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(into, offset)
    }

    fn label(&self) -> String {
        self.path.display().to_string()
    }

    fn will_need(&self, offset: u64, len: u64) {
        // A file system without readahead loses nothing but the hint.
        let _ = fadvise(
            &self.file,
            offset,
            std::num::NonZeroU64::new(len),
            Advice::WillNeed,
        );
    }

    fn read_cached_at(&self, offset: u64, into: &mut [u8]) -> io::Result<Option<usize>> {
        if !self.nowait.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut buffers = [io::IoSliceMut::new(into)];
        match preadv2(&self.file, &mut buffers, offset, ReadWriteFlags::NOWAIT) {
            Ok(read) => Ok(Some(read)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(_) => {
                // Not offered here (EOPNOTSUPP, ENOSYS, EPERM in a sandbox); a true fault of the
                // file shows up again in the plain read that follows.
                self.nowait.store(false, Ordering::Relaxed);
                Ok(None)
            }
        }
    }

    fn direct_align(&self) -> Option<u32> {
        self.direct.as_ref().map(|direct| direct.align)
    }

    fn read_direct_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        match &self.direct {
            Some(direct) => direct.file.read_at(into, offset),
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn revalidate(&self) -> Result<(), Error> {
        let now = Identity::of(&self.file).map_err(|source| Error::io(self.label(), source))?;
        if now == self.identity {
            return Ok(());
        }
        Err(Error::Changed {
            path: self.label(),
            expected: self.identity.len,
            found: now.len,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn reads_and_notices_changes() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[7; 9000]).unwrap();
        file.flush().unwrap();
        let source = FileSource::open(file.path()).unwrap();
        assert_eq!(source.len(), 9000);
        let mut into = [0; 5000];
        source.will_need(0, 9000);
        source.read_exact_at(4000, &mut into).unwrap();
        assert_eq!(into, [7; 5000]);
        source.revalidate().unwrap();

        file.as_file().set_len(8000).unwrap();
        let error = source.read_exact_at(4000, &mut into).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Truncated {
                    offset: 8000,
                    missing: 1000,
                    ..
                }
            ),
            "{error}"
        );
        let error = source.revalidate().unwrap_err();
        assert!(
            matches!(
                error,
                Error::Changed {
                    expected: 9000,
                    found: 8000,
                    ..
                }
            ),
            "{error}"
        );
    }

    #[test]
    fn folders_and_missing_files_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(FileSource::open(folder.path()).unwrap_err().code(), "io");
        let error = FileSource::open(folder.path().join("none")).unwrap_err();
        assert!(error.to_string().contains("none"), "{error}");
    }

    #[test]
    fn cached_reads_agree_with_plain_ones() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..=255).cycle().take(64 << 10).collect();
        file.write_all(&bytes).unwrap();
        let source = FileSource::open(file.path()).unwrap();
        let mut into = vec![0; 4096];
        if let Some(read) = source.read_cached_at(4096, &mut into).unwrap() {
            assert_eq!(into.get(..read), bytes.get(4096..4096 + read));
        }
    }
}
