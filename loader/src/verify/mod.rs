//! The full check: every digest of a pack, or of what one rank reads.

mod extent;
mod gaps;
mod queue;
mod report;
#[cfg(test)]
mod tests;

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use wpack_format::{Owners, TableRef, spec};

pub use self::report::{Damage, Fault, Part, VerifyReport};
use self::{
    extent::ExtentCheck,
    queue::{Queue, Work},
};
use crate::{ByteSource, Error, Index, PageBuffer, Progress, index::read_range};

/// What to check, and with how many threads.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// Only what this rank reads: header, root, its tables and its extents with the padding behind
    /// them.
    pub rank: Option<u32>,
    /// Threads; 0 for one per core. Memory is bounded by this number times a few hundred KiB.
    pub threads: usize,
}

impl VerifyOptions {
    /// Checks only what `rank` reads: saves reading the other ranks' extents.
    #[must_use]
    pub fn with_rank(mut self, rank: Option<u32>) -> Self {
        self.rank = rank;
        self
    }

    /// Sets the number of threads.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }
}

/// Checks every byte of a pack: the digests of header, root, tables, embedded files and blocks, the
/// checksums of blocks and small slices, and that padding is zero.
///
/// Damage goes into the report, and the check goes on behind it. A damaged header or root is an
/// error, because nothing behind it can be trusted; so is a source that ends early.
///
/// Reads through [`ByteSource`] and not a map, so that a failing disk is a report and no signal.
///
/// ```
/// use std::sync::atomic::AtomicBool;
/// use wpack_loader::{FileSource, NoProgress, VerifyOptions, verify};
///
/// let pack = FileSource::open("../fixtures/golden/v1-owners.wpack")?;
/// let options = VerifyOptions::default().with_rank(Some(3));
/// let report = verify(&pack, &options, &NoProgress, &AtomicBool::new(false))?;
/// assert!(report.is_sound());
/// for damage in &report.damage {
///     println!("{}: {} ({:?})", damage.part, damage.fault, damage.tensors);
/// }
/// # Ok::<(), wpack_loader::Error>(())
/// ```
pub fn verify(
    source: &dyn ByteSource,
    options: &VerifyOptions,
    progress: &dyn Progress,
    interrupt: &AtomicBool,
) -> Result<VerifyReport, Error> {
    let start = Instant::now();
    let index = Index::read(source)?;
    let root = read_range(
        source,
        index.header().root.offset,
        index.header().root.len,
        "the root",
    )?;
    index
        .header()
        .root
        .check_digest("the root", &root)
        .map_err(|e| index.wrap(e))?;
    drop(root);

    let extents = match options.rank {
        Some(rank) => index.extents_of(rank)?,
        None => (0..)
            .zip(&index.root().extents)
            .map(|(extent, _)| extent)
            .collect(),
    };
    let gaps = gaps::find(
        &index,
        options.rank.map(|_| extents.as_slice()),
        source.len(),
    );
    let job = Job {
        source,
        index: &index,
        progress,
        interrupt,
        bytes: AtomicU64::new(spec::HEADER_LEN.saturating_add(index.header().root.len)),
        blocks: AtomicU64::new(0),
        damage: Mutex::default(),
    };
    progress.begin("verify", job.total(&extents, &gaps, options.rank.is_none()));
    progress.advance(job.bytes.load(Ordering::Relaxed));
    let outcome = job.run(&extents, gaps, options);
    progress.finish();
    outcome?;

    let mut damage = job
        .damage
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    damage.sort_by_key(|damage| (damage.offset, damage.len));
    Ok(VerifyReport {
        digest: index.digest(),
        rank: options.rank,
        bytes: job.bytes.into_inner(),
        blocks: job.blocks.into_inner(),
        extents: u32::try_from(extents.len()).unwrap_or(u32::MAX),
        seconds: start.elapsed().as_secs_f64(),
        damage,
    })
}

/// One run of [`verify`], shared by its threads.
struct Job<'a> {
    source: &'a dyn ByteSource,
    index: &'a Index,
    progress: &'a dyn Progress,
    interrupt: &'a AtomicBool,
    bytes: AtomicU64,
    blocks: AtomicU64,
    damage: Mutex<Vec<Damage>>,
}

impl Job<'_> {
    /// Bytes that the whole job will check.
    fn total(&self, extents: &[u32], gaps: &[(u64, u64)], files: bool) -> u64 {
        let root = self.index.root();
        let mut total = self.bytes.load(Ordering::Relaxed);
        for component in self.components(extents, files) {
            total = total.saturating_add(
                root.components
                    .get(component as usize)
                    .map_or(0, |record| record.tensors.len),
            );
        }
        for extent in extents
            .iter()
            .filter_map(|extent| self.index.extent(*extent))
        {
            for len in [extent.len, extent.slices.len, extent.blocks.len] {
                total = total.saturating_add(len);
            }
        }
        if files {
            for file in &root.description.files {
                total = total.saturating_add(file.len);
            }
        }
        gaps.iter().fold(total, |total, (from, to)| {
            total.saturating_add(to.saturating_sub(*from))
        })
    }

    /// Components whose tensor tables are checked: all, or those of the extents.
    fn components(&self, extents: &[u32], all: bool) -> Vec<u32> {
        let root = self.index.root();
        if all {
            return (0..)
                .zip(&root.components)
                .map(|(component, _)| component)
                .collect();
        }
        let held = extents
            .iter()
            .filter_map(|extent| self.index.extent(*extent));
        let mut components: Vec<u32> = held.map(|extent| extent.component).collect();
        components.sort_unstable();
        components.dedup();
        components
    }

    fn run(
        &self,
        extents: &[u32],
        gaps: Vec<(u64, u64)>,
        options: &VerifyOptions,
    ) -> Result<(), Error> {
        let all = options.rank.is_none();
        for component in self.components(extents, all) {
            self.tensor_table(component)?;
        }
        if all {
            self.files()?;
        }
        let queue = Queue::new(extents, gaps);
        if options.threads == 1 {
            return self.work(&queue);
        }
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(options.threads)
            .thread_name(|number| format!("verify-{number}"))
            .build()
            .map_err(|error| Error::Threads {
                threads: options.threads,
                source: Box::new(error),
            })?;
        pool.broadcast(|_| {
            let outcome = self.work(&queue);
            if outcome.is_err() {
                queue.stop();
            }
            outcome
        })
        .into_iter()
        .collect()
    }

    fn work(&self, queue: &Queue<ExtentCheck>) -> Result<(), Error> {
        let mut buffer = PageBuffer::new(extent::PIECE);
        while let Some(work) = queue.next() {
            self.check_interrupt()?;
            match work {
                Work::Open(extent) => match ExtentCheck::open(self, extent) {
                    Ok(check) => queue.opened(check),
                    Err(error) => {
                        queue.stop();
                        return Err(error);
                    }
                },
                Work::Block(check, block) => check.block(self, block, &mut buffer)?,
                Work::Gap(from, to) => self.gap(from, to, &mut buffer)?,
            }
        }
        Ok(())
    }

    fn check_interrupt(&self) -> Result<(), Error> {
        if self.interrupt.load(Ordering::Relaxed) {
            Err(Error::Interrupted)
        } else {
            Ok(())
        }
    }

    fn count(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.progress.advance(bytes);
    }

    fn report(&self, damage: Damage) {
        self.damage
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(damage);
    }

    /// Reads and checks a table; its bytes if they are sound, the fault if not.
    fn table(&self, table: &TableRef, what: &'static str) -> Result<Result<Vec<u8>, Fault>, Error> {
        let bytes = match read_range(self.source, table.offset, table.len, what) {
            Ok(bytes) => bytes,
            Err(error) => return unreadable(error).map(Err),
        };
        self.count(table.len);
        Ok(match table.check_digest(what, &bytes) {
            Ok(()) => Ok(bytes),
            Err(wpack_format::Error::Checksum { .. })
                if wpack_format::sha256(&bytes) == table.sha256 =>
            {
                Err(Fault::Crc32c)
            }
            Err(_) => Err(Fault::Sha256),
        })
    }

    fn tensor_table(&self, component: u32) -> Result<(), Error> {
        let Some(record) = self.index.root().components.get(component as usize) else {
            return Ok(());
        };
        let fault = match self.table(&record.tensors, "a tensor table")? {
            Ok(_) => match self.index.tensors(self.source, component) {
                Ok(_) => return Ok(()),
                Err(Error::Format { source, .. }) => Fault::Malformed(source),
                Err(error) => return Err(error),
            },
            Err(fault) => fault,
        };
        self.report(Damage {
            part: Part::TensorTable,
            fault,
            offset: record.tensors.offset,
            len: record.tensors.len,
            component: Some(record.name.clone()),
            tensors: Vec::new(),
            ranks: Owners::All,
        });
        Ok(())
    }

    fn files(&self) -> Result<(), Error> {
        for file in &self.index.root().description.files {
            let fault = match self.index.file(self.source, file) {
                Ok(_) => {
                    self.count(file.len);
                    continue;
                }
                Err(Error::EmbeddedFile { .. }) => Fault::Sha256,
                Err(error) => unreadable(error)?,
            };
            self.count(file.len);
            self.report(Damage {
                part: Part::File {
                    path: file.path.clone(),
                },
                fault,
                offset: file.offset,
                len: file.len,
                component: file.component.clone(),
                tensors: Vec::new(),
                ranks: Owners::All,
            });
        }
        Ok(())
    }

    fn gap(&self, from: u64, to: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let mut at = from;
        let mut damage: Option<Damage> = None;
        while at < to {
            let len = (to - at).min(buffer.len() as u64);
            let piece = buffer
                .get_mut(..usize::try_from(len).unwrap_or(0))
                .unwrap_or_default();
            let fault = match self.source.read_exact_at(at, piece) {
                Ok(()) if piece.iter().all(|byte| *byte == 0) => None,
                Ok(()) => Some(Fault::NotZero),
                Err(error) => Some(unreadable(error)?),
            };
            if let (None, Some(fault)) = (&damage, fault) {
                damage = Some(Damage {
                    part: Part::Padding,
                    fault,
                    offset: from,
                    len: to - from,
                    component: None,
                    tensors: Vec::new(),
                    ranks: Owners::All,
                });
            }
            self.count(len);
            at += len;
        }
        damage.into_iter().for_each(|damage| self.report(damage));
        Ok(())
    }
}

/// What a failed read means: bytes that the system cannot give are damage, all else ends the check.
fn unreadable(error: Error) -> Result<Fault, Error> {
    match error {
        Error::Io { source, .. } => Ok(Fault::Unreadable(source.to_string())),
        error => Err(error),
    }
}
