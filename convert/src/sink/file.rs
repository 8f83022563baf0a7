//! A file that has no name until it is whole.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::Path,
};

use rustix::{
    fs::{
        Advice, AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags,
        fadvise, fallocate, flock, fstat, ftruncate, linkat, open, openat, renameat, renameat_with,
        statat, unlinkat,
    },
    io::Errno,
};

use super::{folder_of, litter, sweep};
use crate::Error;

/// Bytes handed to the system at a time: they are still in a core's own cache when the kernel copies
/// them.
const PIECE: usize = 128 << 10;

/// What to do with a file that bears the target's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overwrite {
    /// Refuse.
    #[default]
    Never,
    /// Put the new file in its place when that is whole.
    Always,
}

/// Writes into an unnamed file (`O_TMPFILE`), or where the file system has none, into a locked file of
/// a temporary name.
#[derive(Debug)]
pub struct FileSink {
    file: File,
    folder: OwnedFd,
    target: OsString,
    overwrite: Overwrite,
    /// The name to remove on drop.
    temporary: Option<OsString>,
}

impl FileSink {
    /// Opens the target's folder, sweeps litter there, checks that the target may be written and
    /// makes a file without a name, readable and writable as the umask allows.
    pub fn create(path: &Path, overwrite: Overwrite) -> Result<Self, Error> {
        Self::open(path, overwrite, true)
    }

    /// As [`FileSink::create`], with a temporary name from the start: what file systems without
    /// `O_TMPFILE` get.
    pub fn create_with_name(path: &Path, overwrite: Overwrite) -> Result<Self, Error> {
        Self::open(path, overwrite, false)
    }

    fn open(path: &Path, overwrite: Overwrite, unnamed: bool) -> Result<Self, Error> {
        let folder_path = folder_of(path);
        let at = |op| {
            move |errno: Errno| Error::Io {
                op,
                path: folder_path.to_owned(),
                source: errno.into(),
            }
        };
        let target = path.file_name().ok_or_else(|| Error::NotAFile {
            path: path.to_owned(),
        })?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(folder_path, flags, Mode::empty()).map_err(at("open folder"))?;
        match statat(&folder, target, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile | FileType::Symlink if overwrite == Overwrite::Always => {}
                FileType::RegularFile | FileType::Symlink => {
                    return Err(Error::Exists {
                        path: path.to_owned(),
                    });
                }
                _ => {
                    return Err(Error::NotAFile {
                        path: path.to_owned(),
                    });
                }
            },
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(at("look into")(errno)),
        }
        sweep(&folder, target);
        let nameless = if unnamed {
            create_unnamed(&folder).ok()
        } else {
            None
        };
        let (file, temporary) = match nameless {
            Some(file) => (file, None),
            None => {
                let (file, name) = create_named(&folder, target).map_err(at("create a file in"))?;
                (file, Some(name))
            }
        };
        Ok(Self {
            file: File::from(file),
            folder,
            target: target.to_owned(),
            overwrite,
            temporary,
        })
    }

    /// Identity of a file, to tell whether it is also read from: device and inode.
    pub(crate) fn identity(path: &Path) -> Option<(u64, u64)> {
        let stat = statat(CWD, path, AtFlags::empty()).ok()?;
        Some((stat.st_dev, stat.st_ino))
    }
}

impl super::Sink for FileSink {
    fn reserve(&self, len: u64) -> io::Result<()> {
        match fallocate(&self.file, FallocateFlags::empty(), 0, len) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(ftruncate(&self.file, len)?),
            done => Ok(done?),
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut pieces = (offset..).step_by(PIECE).zip(bytes.chunks(PIECE));
        pieces.try_for_each(|(at, piece)| self.file.write_all_at(piece, at))?;
        // Starts writing back now what `sync` would otherwise find all at once. Not around the page
        // cache: disks behind a hypervisor serve a few large requests at a lower rate than the many that
        // the kernel keeps under way.
        let _ = fadvise(
            &self.file,
            offset,
            std::num::NonZeroU64::new(bytes.len() as u64),
            Advice::DontNeed,
        );
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn stage(&mut self) -> io::Result<()> {
        if self.overwrite == Overwrite::Always && self.temporary.is_none() {
            // Locked before it has a name, so that no sweep takes it for litter.
            let _ = flock(&self.file, FlockOperation::NonBlockingLockExclusive);
            let name = litter::temporary_name(&self.target);
            link_unnamed(&self.file, &self.folder, &name)?;
            self.temporary = Some(name);
        }
        Ok(())
    }

    fn publish(&mut self) -> io::Result<()> {
        let Some(temporary) = self.temporary.take() else {
            return Ok(link_unnamed(&self.file, &self.folder, &self.target)?);
        };
        let (folder, target) = (&self.folder, &self.target);
        let done = match self.overwrite {
            Overwrite::Always => renameat(folder, &temporary, folder, target),
            Overwrite::Never => rename_to_free_name(folder, &temporary, target),
        };
        if done.is_err() {
            self.temporary = Some(temporary);
        }
        Ok(done?)
    }

    fn sync_folder(&self) -> io::Result<()> {
        match rustix::fs::fsync(&self.folder) {
            // Some network file systems cannot sync a folder; their rename is as durable as it gets.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
            done => Ok(done?),
        }
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        if let Some(name) = self.temporary.take() {
            let _ = unlinkat(&self.folder, &name, AtFlags::empty());
        }
    }
}

const MODE: Mode = Mode::from_raw_mode(0o666);

fn create_unnamed(folder: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let file = openat(
        folder,
        ".",
        OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC,
        MODE,
    )?;
    // It gets its name by way of /proc; better to know now whether that is there.
    statat(CWD, proc_path(&file), AtFlags::empty())?;
    Ok(file)
}

fn create_named(folder: &OwnedFd, target: &OsStr) -> rustix::io::Result<(OwnedFd, OsString)> {
    loop {
        let name = litter::temporary_name(target);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let file = match openat(folder, &name, flags, MODE) {
            Err(Errno::EXIST) => continue,
            file => file?,
        };
        // Another run's sweep may have come between creation and lock: then the name is gone.
        let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
        if fstat(&file)?.st_nlink > 0 {
            return Ok((file, name));
        }
    }
}

fn proc_path(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

fn link_unnamed(file: &File, folder: &OwnedFd, name: &OsStr) -> rustix::io::Result<()> {
    linkat(CWD, proc_path(file), folder, name, AtFlags::SYMLINK_FOLLOW)
}

fn rename_to_free_name(folder: &OwnedFd, from: &OsStr, to: &OsStr) -> rustix::io::Result<()> {
    match renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => {
            linkat(folder, from, folder, to, AtFlags::empty())?;
            unlinkat(folder, from, AtFlags::empty())
        }
        done => done,
    }
}
