//! Where a pack's bytes come from: positional reads over files and memory.

use std::{io, sync::Arc};

use crate::Error;

/// Random access to the bytes of a pack.
///
/// One primitive read that may be short, as `pread` has it; [`ByteSource::read_exact_at`] is what
/// readers call. The optional methods tell the staged reader which faster paths a source has; their
/// defaults say "none".
pub trait ByteSource: Send + Sync {
    /// Bytes in the source when it was opened.
    fn len(&self) -> u64;

    /// True without bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads at `offset`, at most `into.len()` bytes; zero only at the end.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// What messages call it: a path, or a word for bytes in memory.
    fn label(&self) -> String;

    /// Says that a range will be read soon. A hint: nothing is reported.
    fn will_need(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }

    /// Reads at `offset` only what needs no wait for a device. `Ok(None)` when it would have to
    /// wait or the source cannot tell.
    fn read_cached_at(&self, offset: u64, into: &mut [u8]) -> io::Result<Option<usize>> {
        let _ = (offset, into);
        Ok(None)
    }

    /// The alignment of offset, length and memory that [`ByteSource::read_direct_at`] needs; none
    /// when there is no path around the page cache.
    fn direct_align(&self) -> Option<u32> {
        None
    }

    /// Reads around the page cache; offset, length and memory aligned to
    /// [`ByteSource::direct_align`].
    fn read_direct_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let _ = (offset, into);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Fails with [`Error::Changed`] if the source is no longer what was opened: another length, or
    /// written to.
    fn revalidate(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Fills all of `into` from `offset`: goes on after short reads and interrupted calls; the end
    /// of the source is [`Error::Truncated`].
    fn read_exact_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(done as u64);
            match self.read_at(at, rest) {
                Ok(0) => {
                    return Err(Error::Truncated {
                        path: self.label(),
                        offset: at,
                        missing: rest.len() as u64,
                    });
                }
                Ok(read) => done += read.min(rest.len()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io_at(self.label(), at, error)),
            }
        }
        Ok(())
    }
}

/// Copies what bytes in memory hold at `offset`.
fn read_slice(bytes: &[u8], offset: u64, into: &mut [u8]) -> usize {
    let rest = usize::try_from(offset)
        .ok()
        .and_then(|at| bytes.get(at..))
        .unwrap_or(&[]);
    let read = rest.len().min(into.len());
    if let (Some(to), Some(from)) = (into.get_mut(..read), rest.get(..read)) {
        to.copy_from_slice(from);
    }
    read
}

macro_rules! bytes_source {
    ($($type:ty),+) => {$(
        impl ByteSource for $type {
            fn len(&self) -> u64 {
                let bytes: &[u8] = self.as_ref();
                bytes.len() as u64
            }

            fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
                Ok(read_slice(self.as_ref(), offset, into))
            }

            fn label(&self) -> String {
                "bytes in memory".to_owned()
            }
        }
    )+};
}

bytes_source!([u8], &[u8], Vec<u8>, Box<[u8]>, Arc<[u8]>);

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte a call, and an interrupted call before each.
    struct Slow(Vec<u8>, std::sync::atomic::AtomicU64);

    impl ByteSource for Slow {
        fn len(&self) -> u64 {
            self.0.len() as u64
        }

        fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
            if self
                .1
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed)
                .is_multiple_of(2)
            {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let into = into.get_mut(..1).unwrap();
            Ok(read_slice(&self.0, offset, into))
        }

        fn label(&self) -> String {
            "slow".to_owned()
        }
    }

    #[test]
    fn short_and_interrupted_reads_go_on() {
        let source = Slow((0..9).collect(), 0.into());
        let mut into = [0; 7];
        source.read_exact_at(2, &mut into).unwrap();
        assert_eq!(into, [2, 3, 4, 5, 6, 7, 8]);
        assert!(!source.is_empty());
    }

    #[test]
    fn the_end_is_an_error_that_says_where() {
        let source = vec![1_u8, 2, 3];
        let mut into = [0; 4];
        let error = source.read_exact_at(1, &mut into).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Truncated {
                    offset: 3,
                    missing: 2,
                    ..
                }
            ),
            "{error}"
        );
        let error = source.read_exact_at(u64::MAX, &mut into).unwrap_err();
        assert!(matches!(error, Error::Truncated { .. }), "{error}");
    }
}
