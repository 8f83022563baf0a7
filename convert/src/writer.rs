//! Fills the file: blocks through the pipeline, then tables, root and header.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
};

use wpack_format::{
    Block, BlockDigest, BlockTable, Hex, Root, SliceTable, TableRef, block_count, crc32c,
    spec::BLOCK_LEN,
};
use wpack_loader::Progress;

use crate::{
    Error, Prepared,
    convert::{data_len, io_error},
    gather::{Tensors, overlapping},
    pipeline::{Batch, Job, Pipeline, Stage, Stop, Work},
    sink::Sink,
    sources,
};

/// A part of a slice of at least this many bytes is summed once, and its sum joined to that of the
/// block; a shorter one is cheaper to sum twice.
const JOIN: usize = 1 << 20;

/// One run of writing.
pub(crate) struct Writer<'a> {
    prepared: &'a Prepared,
    sink: &'a dyn Sink,
    out: &'a Path,
    progress: &'a dyn Progress,
    /// Extents that are not complete, by index.
    open: Mutex<BTreeMap<usize, Digests>>,
    /// Slice table and block table of complete extents.
    tables: Mutex<Vec<(TableRef, TableRef)>>,
}

/// Digests of an extent as its blocks are done.
#[derive(Debug, Default)]
struct Digests {
    left: u64,
    blocks: Vec<Block>,
    /// CRC-32C of a part of a slice that is smaller than a block: slice, block, sum, bytes. Two parts at
    /// most.
    parts: Vec<(usize, u64, u32, usize)>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(
        prepared: &'a Prepared,
        sink: &'a dyn Sink,
        out: &'a Path,
        progress: &'a dyn Progress,
    ) -> Self {
        let tables = vec![Default::default(); prepared.root.extents.len()];
        Self {
            prepared,
            sink,
            out,
            progress,
            open: Mutex::default(),
            tables: Mutex::new(tables),
        }
    }

    /// Writes extents, tables, root and header, and gives the root digest.
    pub(crate) fn run(&self, threads: usize, interrupt: &AtomicBool) -> Result<[u8; 32], Error> {
        let root = &self.prepared.root;
        let stop = Stop::new(interrupt);
        self.progress.begin("convert", data_len(self.prepared));
        let blocks = root
            .extents
            .iter()
            .map(|extent| block_count(extent.len))
            .sum::<u64>();
        let pipeline = Pipeline::new(threads, usize::try_from(blocks).unwrap_or(usize::MAX), true);
        let mut batch = Batch::default();
        for (index, extent) in root.extents.iter().enumerate() {
            if batch.is_full_for(extent.slice_count) {
                self.run_batch(&std::mem::take(&mut batch), &pipeline, &stop)?;
            }
            let slices = self.prepared.plan().slices(index)?;
            let work = Work::new(index, extent.component, extent.offset, extent.len, slices);
            let left = block_count(extent.len);
            if left == 0 {
                self.complete(&work, Digests::default())?;
                continue;
            }
            let count = usize::try_from(left).map_err(|_| Error::TooLarge { what: "blocks" })?;
            let none = Block {
                crc32c: 0,
                sha256: [0; 32],
            };
            let digests = Digests {
                left,
                blocks: vec![none; count],
                parts: Vec::new(),
            };
            lock(&self.open).insert(index, digests);
            batch.push(work, extent.slice_count);
        }
        self.run_batch(&batch, &pipeline, &stop)?;
        self.write_index(threads, interrupt)
    }

    fn run_batch(&self, batch: &Batch, pipeline: &Pipeline, stop: &Stop<'_>) -> Result<(), Error> {
        pipeline.run(
            &batch.jobs(|component| self.tensors(component))?,
            self,
            stop,
        )
    }

    /// Enters checksums into the slice table of an extent whose blocks are all done, and writes it and the
    /// block table.
    fn complete(&self, work: &Work, mut digests: Digests) -> Result<(), Error> {
        let Some(extent) = self.prepared.root.extents.get(work.extent) else {
            return Ok(());
        };
        let mut slices = work.slices_mut();
        digests.parts.sort_unstable_by_key(|part| (part.0, part.1));
        for (index, _, crc, len) in digests.parts {
            if let Some(slice) = slices.get_mut(index) {
                slice.crc32c = Some(match slice.crc32c {
                    Some(before) => ::crc32c::crc32c_combine(before, crc, len),
                    None => crc,
                });
            }
        }
        let table = SliceTable::encode(&slices);
        // Not needed any more: memory is bounded by the slices of extents at work.
        *slices = Vec::new();
        drop(slices);
        let slice_table = TableRef::of(extent.slices.offset, &table);
        if slice_table.len != extent.slices.len {
            let component = self.tensors(extent.component).map(Tensors::component);
            return Err(Error::Inconsistent {
                component: component.unwrap_or_default().to_owned(),
                tensor: 0,
                why: "a slice table has another length than planned",
            });
        }
        self.put(slice_table.offset, &table)?;
        let table = BlockTable::encode(&digests.blocks);
        let block_table = TableRef::of(extent.blocks.offset, &table);
        self.put(block_table.offset, &table)?;
        if let Some(entry) = lock(&self.tables).get_mut(work.extent) {
            *entry = (slice_table, block_table);
        }
        Ok(())
    }

    fn write_index(&self, threads: usize, interrupt: &AtomicBool) -> Result<[u8; 32], Error> {
        let mut root: Root = self.prepared.root.clone();
        for (extent, (slices, blocks)) in root.extents.iter_mut().zip(lock(&self.tables).iter()) {
            extent.slices = *slices;
            extent.blocks = *blocks;
        }
        if self.prepared.hash_sources {
            let digests = sources::hash(&self.prepared.model.sources, threads, interrupt)?;
            for (source, digest) in root.description.sources.iter_mut().zip(digests) {
                source.sha256 = Some(Hex(&digest).to_string());
            }
        }
        for (record, table) in root.components.iter().zip(&self.prepared.tensor_tables) {
            self.put(record.tensors.offset, table)?;
        }
        for (entry, file) in root.description.files.iter().zip(self.prepared.embedded()) {
            self.put(entry.offset, &file.bytes)?;
        }
        let bytes = root.encode();
        let header = self.prepared.header.clone().seal(&bytes);
        self.put(header.root.offset, &bytes)?;
        // Last: a file without it is no pack.
        self.put(0, &header.encode())?;
        Ok(header.root.sha256)
    }

    fn put(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let file_len = self.prepared.header.file_len;
        if bytes.is_empty() {
            return Ok(());
        }
        self.sink
            .write_at(offset, bytes)
            .map_err(|source| io_error("write", self.out, file_len, source))
    }
}

impl Stage for Writer<'_> {
    fn tensors(&self, component: u32) -> Option<&dyn Tensors> {
        let index = usize::try_from(component).ok()?;
        self.prepared
            .model
            .components
            .get(index)
            .map(|found| found as &dyn Tensors)
    }

    fn work(&self, job: &Job, bytes: &mut [u8]) -> Result<(), Error> {
        let range = job.range();
        let data: &[u8] = bytes;
        let mut digest = BlockDigest::default();
        let mut parts = Vec::new();
        let mut sum = 0;
        let mut done = 0;
        for (index, slice, part) in overlapping(&job.work.slices(), range.clone()) {
            if slice.len_bytes().is_none_or(|len| len >= BLOCK_LEN) {
                continue;
            }
            let at = |offset: u64| usize::try_from(offset - range.start).unwrap_or(usize::MAX);
            let part = at(part.start)..at(part.end);
            let own = data.get(part.clone()).unwrap_or_default();
            let own_sum = if own.len() >= JOIN {
                sum = digest.update(sum, data.get(done..part.start).unwrap_or_default());
                let own_sum = digest.update(0, own);
                sum = ::crc32c::crc32c_combine(sum, own_sum, own.len());
                done = part.end;
                own_sum
            } else {
                crc32c(own)
            };
            parts.push((index, job.block, own_sum, own.len()));
        }
        sum = digest.update(sum, data.get(done..).unwrap_or_default());
        let block = Block {
            crc32c: sum,
            sha256: digest.finish(),
        };
        let complete = self.enter(job, block, parts);
        match complete {
            Some(digests) => self.complete(&job.work, digests),
            None => Ok(()),
        }
    }

    fn write(&self, job: &Job, bytes: &[u8]) -> Result<(), Error> {
        let range = job.range();
        self.put(job.work.offset + range.start, bytes)?;
        self.progress.advance(range.end - range.start);
        Ok(())
    }
}

impl Writer<'_> {
    /// Notes what one block gives; the digests of the whole extent when it was the last.
    fn enter(
        &self,
        job: &Job,
        block: Block,
        parts: Vec<(usize, u64, u32, usize)>,
    ) -> Option<Digests> {
        let mut open = lock(&self.open);
        let digests = open.get_mut(&job.work.extent)?;
        let index = usize::try_from(job.block).ok()?;
        *digests.blocks.get_mut(index)? = block;
        digests.parts.extend(parts);
        digests.left -= 1;
        if digests.left == 0 {
            open.remove(&job.work.extent)
        } else {
            None
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
