//! Temporary names, and the removal of those that killed runs left behind.

use std::{
    ffi::{OsStr, OsString},
    hash::{BuildHasher, Hasher, RandomState},
    os::{fd::AsFd, unix::ffi::OsStrExt},
};

use rustix::{
    fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, flock, openat, unlinkat},
    io::Errno,
};

/// Ends the temporary names.
const SUFFIX: &[u8] = b".wpack-tmp";
/// Longest name of a file on the usual file systems.
const NAME_MAX: usize = 255;
/// Hexadecimal digits that tell temporary names of one target apart.
const DIGITS: usize = 16;

/// What all temporary names of a target begin with.
fn prefix(target: &OsStr) -> Vec<u8> {
    let mut prefix = vec![b'.'];
    let room = NAME_MAX - 2 - DIGITS - SUFFIX.len();
    prefix.extend(target.as_bytes().iter().take(room));
    prefix.push(b'.');
    prefix
}

/// A fresh temporary name for a target.
pub(super) fn temporary_name(target: &OsStr) -> OsString {
    let mut name = prefix(target);
    // Every RandomState has keys of its own.
    let number = RandomState::new().build_hasher().finish();
    name.extend(format!("{number:0DIGITS$x}").bytes());
    name.extend(SUFFIX);
    OsStr::from_bytes(&name).to_owned()
}

fn is_temporary(name: &[u8], prefix: &[u8]) -> bool {
    name.strip_prefix(prefix)
        .and_then(|rest| rest.strip_suffix(SUFFIX))
        .is_some_and(|digits| digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Removes temporary files of `target` in `folder` that no living writer holds, and says how many.
///
/// A writer holds a lock on its file from before the name exists or is of use, and the system frees the
/// lock when the process ends, however it ends. Where the file system knows no locks, nothing is
/// removed. Litter of other targets is left to their next run.
pub fn sweep(folder: impl AsFd, target: &OsStr) -> usize {
    let prefix = prefix(target);
    let Ok(entries) = Dir::read_from(&folder) else {
        return 0;
    };
    let mut swept = 0;
    for entry in entries.flatten() {
        let name = entry.file_name();
        if !is_temporary(name.to_bytes(), &prefix) {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = openat(&folder, name, flags, Mode::empty()) else {
            continue;
        };
        if flock(&file, FlockOperation::NonBlockingLockExclusive) == Ok(())
            && unlinkat(&folder, name, AtFlags::empty()) != Err(Errno::NOENT)
        {
            swept += 1;
        }
    }
    swept
}
