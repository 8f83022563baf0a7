//! Extents brought into the page cache ahead of their use.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
};
use wpack_loader::{Error, ExtentMap, Progress};

/// Bytes brought in by one call: long enough for large reads, short enough to stop soon.
const WINDOW: usize = 16 << 20;
/// Windows announced ahead of the one that is brought in.
const AHEAD: usize = 2;
/// Pause between two looks at a lock that another process holds.
const PAUSE: Duration = Duration::from_millis(2);

/// A mapped extent.
pub(crate) struct Region {
    pub(crate) map: Arc<ExtentMap>,
    pub(crate) extent: u32,
}

impl Region {
    /// Brings all of it in, by read faults on the mapping itself. Stops early when interrupted.
    fn bring(&self, progress: Option<&dyn Progress>, interrupt: &AtomicBool) {
        let len = self.map.len();
        let mut at = 0;
        while at < len {
            if interrupt.load(Ordering::Relaxed) {
                return;
            }
            let step = WINDOW.min(len - at);
            self.map.will_need(at + step, AHEAD * WINDOW);
            self.map.populate(at, step);
            if let Some(progress) = progress {
                progress.advance(step as u64);
            }
            at += step;
        }
    }
}

/// Brings extents in on a thread that nobody waits for; it keeps the mappings until it is done.
pub(crate) fn behind(regions: Vec<Region>) -> io::Result<()> {
    let work = move || {
        let never = AtomicBool::new(false);
        regions.iter().for_each(|region| region.bring(None, &never));
    };
    thread::Builder::new()
        .name("wpack-prefetch".to_owned())
        .spawn(work)
        .map(drop)
}

/// Brings extents in and returns their bytes. With a pack's digest, the processes of this machine agree on
/// one that reads each extent while the others wait for it.
pub(crate) fn now(
    regions: &[Region],
    digest: Option<&[u8; 32]>,
    progress: &dyn Progress,
    interrupt: &AtomicBool,
) -> Result<u64, Error> {
    let total = regions.iter().map(|region| region.map.len() as u64).sum();
    progress.begin("prefetch", total);
    for region in regions {
        let lock = digest.and_then(|digest| Turn::take(digest, region.extent, interrupt));
        region.bring(Some(progress), interrupt);
        drop(lock);
        if interrupt.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
    }
    progress.finish();
    Ok(total)
}

/// This process's turn at an extent: alone for the first, in common for those who waited for it.
struct Turn(#[expect(dead_code, reason = "holds the lock until it is closed")] File);

impl Turn {
    /// Waits for a turn. None where no lock file can be had: then everybody reads, as without.
    fn take(digest: &[u8; 32], extent: u32, interrupt: &AtomicBool) -> Option<Self> {
        let file = open(digest, extent).ok()?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return Some(Self(file));
        }
        loop {
            match flock(&file, FlockOperation::NonBlockingLockShared) {
                Ok(()) => return Some(Self(file)),
                Err(Errno::AGAIN | Errno::INTR) if !interrupt.load(Ordering::Relaxed) => {
                    thread::sleep(PAUSE);
                }
                Err(_) => return None,
            }
        }
    }
}

/// The lock file of an extent: empty, named for the pack's identity, and left in place, because removing it
/// while another process waits would give two their turn at once.
fn open(digest: &[u8; 32], extent: u32) -> io::Result<File> {
    use std::fmt::Write as _;
    let mut name = "wpack-".to_owned();
    for byte in digest.iter().take(8) {
        let _ = write!(name, "{byte:02x}");
    }
    let _ = write!(name, "-{extent}.lock");
    let shared = PathBuf::from("/dev/shm");
    let folder = if shared.is_dir() {
        shared
    } else {
        std::env::temp_dir()
    };
    let path = folder.join(name);
    // Readable is enough to lock: processes of other users open the file that one of them has made.
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o644)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(&path)
        .or_else(|_| File::open(&path))
}
