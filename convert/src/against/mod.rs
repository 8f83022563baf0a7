//! Is a pack what its checkpoint gives?

mod report;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use wpack_checkpoint::Checkpoint;
use wpack_format::{DType, TensorTable, block_count};
use wpack_loader::{ByteSource, Index, PageBuffer};
use wpack_plan::PlanFile;

pub use report::{AgainstReport, Difference, TensorId, Unlike};

use crate::{
    Context, Error, Options, TransformOptions,
    gather::{Misfit, Piece, Tensors, overlapping, pieces},
    model::{Model, ModelComponent, ModelTensor, options_of},
    pipeline::{Batch, Job, Pipeline, Stage, Stop, Work},
};

/// Bytes of the pack compared at once.
const CHUNK: usize = 256 << 10;

/// Compares every tensor of a pack with what `checkpoint` gives for it: filters, renames, casts and cuts
/// are those stored in the pack, fill is left alone. Blocks of the pack are not checked: that is what
/// [`wpack_loader::verify`] is for.
///
/// # Errors
///
/// A pack or a checkpoint that cannot be read, or an interrupt. Differences are no errors.
pub fn against(
    pack: &dyn ByteSource,
    checkpoint: Checkpoint,
    threads: usize,
    context: &Context<'_>,
) -> Result<AgainstReport, Error> {
    let started = Instant::now();
    let index = Index::read(pack)?;
    let mut report = AgainstReport::default();
    let model = model(&index, checkpoint, &mut report)?;
    let tables: Result<Vec<_>, _> = (0u32..)
        .zip(&index.root().components)
        .map(|(at, _)| index.tensors(pack, at))
        .collect();
    let tables = tables?;
    let mut paired: Vec<Pairs<'_>> = Vec::new();
    for (record, table) in index.root().components.iter().zip(&tables) {
        let found = model
            .components
            .iter()
            .find(|component| component.name == record.name);
        paired.push(Pairs::new(
            &record.name,
            Arc::clone(table),
            found,
            &mut report,
        ));
    }
    let rounds = paired
        .iter()
        .map(|pairs| pairs.rounds.len())
        .max()
        .unwrap_or(0);
    let total: u64 = index.root().extents.iter().map(|extent| extent.len).sum();
    context
        .progress
        .begin("compare", total.saturating_mul(rounds as u64));
    let mut unlike: BTreeMap<TensorId, Unlike> = BTreeMap::new();
    for round in 0..rounds {
        let components = paired.iter().map(|pairs| Round { pairs, round }).collect();
        let compare = Compare {
            pack,
            index: &index,
            components,
            context,
            first: Mutex::default(),
        };
        for ((component, tensor), first) in compare.run(threads)? {
            let pairs = usize::try_from(component)
                .ok()
                .and_then(|at| paired.get(at));
            if let Some((id, what)) = pairs.and_then(|pairs| pairs.describe(round, tensor, &first))
            {
                unlike.entry(id).or_insert(what);
            }
        }
        report.bytes += total;
    }
    context.progress.finish();
    let compared: usize = paired.iter().map(Pairs::compared).sum();
    report.equal = (compared as u64).saturating_sub(unlike.len() as u64);
    report.different.extend(
        unlike
            .into_iter()
            .map(|(tensor, what)| Difference { tensor, what }),
    );
    report.different.sort_by(|a, b| a.tensor.cmp(&b.tensor));
    report.missing.sort();
    report.extra.sort();
    report.elapsed = started.elapsed();
    Ok(report)
}

/// The checkpoint in the pack's names and types.
fn model(
    index: &Index,
    mut checkpoint: Checkpoint,
    report: &mut AgainstReport,
) -> Result<Model, Error> {
    let infos = &index.root().description.components;
    // A lone model has the name that the command line gave it; it need not be given again.
    if let ([only], [info]) = (checkpoint.components.as_mut_slice(), infos.as_slice()) {
        only.name.clone_from(&info.name);
    }
    let known: BTreeSet<&str> = infos.iter().map(|info| info.name.as_str()).collect();
    let names = checkpoint
        .components
        .iter()
        .map(|component| component.name.clone());
    report.left_out = names
        .filter(|name| !known.contains(name.as_str()))
        .collect();
    let file = &index.root().description.plan.file;
    let file = file.as_deref().map(PlanFile::parse).transpose()?;
    let transforms: Result<BTreeMap<String, TransformOptions>, Error> = infos
        .iter()
        .map(|info| {
            let section = file.as_ref().map(|file| file.section(&info.name));
            let text = section
                .as_ref()
                .and_then(|section| section.transform.as_ref());
            Ok((info.name.clone(), options_of(&info.transform, text)?))
        })
        .collect();
    let options = Options {
        components: infos.iter().map(|info| info.name.clone()).collect(),
        component_transforms: transforms?,
        ..Options::default()
    };
    if checkpoint
        .components
        .iter()
        .all(|component| !known.contains(component.name.as_str()))
    {
        // No component would mean all of them.
        return Ok(Model::default());
    }
    Model::lenient(checkpoint, &options)
}

/// The tensors of a component, in the pack and in the checkpoint.
struct Pairs<'a> {
    component: &'a str,
    table: Arc<TensorTable>,
    shapes: Vec<Vec<u64>>,
    model: Option<&'a ModelComponent>,
    /// For each tensor of the pack, the one of the checkpoint that it is compared with, and the name
    /// under which. One round, but for names tied in the pack and not in the checkpoint.
    rounds: Vec<BTreeMap<u32, (u32, String)>>,
}

impl<'a> Pairs<'a> {
    fn new(
        component: &'a str,
        table: Arc<TensorTable>,
        model: Option<&'a ModelComponent>,
        report: &mut AgainstReport,
    ) -> Self {
        let id = |name: &str| TensorId {
            component: component.to_owned(),
            name: name.to_owned(),
        };
        let tensors = model.map_or(&[][..], |model| &model.tensors);
        let mut by_name: BTreeMap<&str, u32> = BTreeMap::new();
        for (at, tensor) in (0u32..).zip(tensors) {
            by_name.extend(tensor.names.iter().map(|name| (name.name.as_str(), at)));
        }
        let missing = by_name.keys().filter(|name| table.find(name).is_none());
        report.missing.extend(missing.map(|name| id(name)));
        let mut pairs = Self {
            component,
            shapes: table
                .iter()
                .map(|tensor| tensor.to_tensor().shape)
                .collect(),
            table: Arc::clone(&table),
            model,
            rounds: Vec::new(),
        };
        for (name, at) in table.sorted_names() {
            let Some(&other) = by_name.get(name) else {
                report.extra.push(id(name));
                continue;
            };
            let (Some(tensor), Some(dtype), Some(shape)) = (
                usize::try_from(other)
                    .ok()
                    .and_then(|other| tensors.get(other)),
                table.get_ref(at).map(|tensor| tensor.dtype),
                usize::try_from(at).ok().and_then(|at| pairs.shapes.get(at)),
            ) else {
                continue;
            };
            if dtype != tensor.dtype {
                let what = Unlike::Dtype {
                    pack: dtype,
                    checkpoint: tensor.dtype,
                };
                report.different.push(Difference {
                    tensor: id(name),
                    what,
                });
            } else if *shape != tensor.shape {
                let what = Unlike::Shape {
                    pack: shape.clone(),
                    checkpoint: tensor.shape.clone(),
                };
                report.different.push(Difference {
                    tensor: id(name),
                    what,
                });
            } else {
                pairs.pair(at, other, name);
            }
        }
        pairs
    }

    fn pair(&mut self, tensor: u32, other: u32, name: &str) {
        for round in &mut self.rounds {
            match round.get(&tensor) {
                // A tie of both.
                Some((known, _)) if *known == other => return,
                Some(_) => {}
                None => {
                    round.insert(tensor, (other, name.to_owned()));
                    return;
                }
            }
        }
        self.rounds
            .push(BTreeMap::from([(tensor, (other, name.to_owned()))]));
    }

    fn compared(&self) -> usize {
        self.rounds.iter().map(BTreeMap::len).sum()
    }

    fn describe(&self, round: usize, tensor: u32, first: &First) -> Option<(TensorId, Unlike)> {
        let (_, name) = self.rounds.get(round)?.get(&tensor)?;
        let id = TensorId {
            component: self.component.to_owned(),
            name: name.clone(),
        };
        let shape = self.shapes.get(usize::try_from(tensor).ok()?)?;
        let mut rest = first.element;
        let mut index = Vec::with_capacity(shape.len());
        for size in shape.iter().rev() {
            index.push(rest % size.max(&1));
            rest /= size.max(&1);
        }
        index.reverse();
        let (pack, checkpoint) = (first.pack.clone(), first.checkpoint.clone());
        Some((
            id,
            Unlike::Values {
                index,
                pack,
                checkpoint,
            },
        ))
    }
}

struct Round<'a> {
    pairs: &'a Pairs<'a>,
    round: usize,
}

impl Tensors for Round<'_> {
    fn get(&self, tensor: u32) -> Option<&ModelTensor> {
        let (other, _) = self.pairs.rounds.get(self.round)?.get(&tensor)?;
        self.pairs.model?.tensors.get(usize::try_from(*other).ok()?)
    }

    fn shape(&self, tensor: u32) -> Option<&[u64]> {
        self.pairs
            .shapes
            .get(usize::try_from(tensor).ok()?)
            .map(Vec::as_slice)
    }

    fn component(&self) -> &str {
        self.pairs.component
    }
}

/// The first element of a tensor that differs.
#[derive(Clone, Debug)]
struct First {
    element: u64,
    pack: Vec<u8>,
    checkpoint: Vec<u8>,
}

/// First differing elements by component and tensor.
type Firsts = BTreeMap<(u32, u32), First>;

struct Compare<'a> {
    pack: &'a dyn ByteSource,
    index: &'a Index,
    components: Vec<Round<'a>>,
    context: &'a Context<'a>,
    first: Mutex<Firsts>,
}

impl Compare<'_> {
    fn run(self, threads: usize) -> Result<Firsts, Error> {
        let stop = Stop::new(self.context.interrupt);
        let extents = &self.index.root().extents;
        let blocks = extents
            .iter()
            .map(|extent| block_count(extent.len))
            .sum::<u64>();
        let pipeline = Pipeline::new(
            threads,
            usize::try_from(blocks).unwrap_or(usize::MAX),
            false,
        );
        let mut batch = Batch::default();
        for (at, extent) in extents.iter().enumerate() {
            if batch.is_full_for(extent.slice_count) {
                self.run_batch(&std::mem::take(&mut batch), &pipeline, &stop)?;
            }
            let table = self.index.slices(self.pack, extent)?;
            let component = usize::try_from(extent.component).ok();
            if let Some(round) = component.and_then(|at| self.components.get(at)) {
                table.check_tensors(&*round.pairs.table)?;
            }
            let slices = table.iter().map(|slice| slice.to_slice()).collect();
            let work = Work::new(at, extent.component, extent.offset, extent.len, slices);
            batch.push(work, extent.slice_count);
        }
        self.run_batch(&batch, &pipeline, &stop)?;
        Ok(self
            .first
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner))
    }

    fn run_batch(&self, batch: &Batch, pipeline: &Pipeline, stop: &Stop<'_>) -> Result<(), Error> {
        pipeline.run(
            &batch.jobs(|component| self.tensors(component))?,
            self,
            stop,
        )
    }

    /// Notes the first difference of every tensor within a range of an extent.
    fn differences(
        &self,
        job: &Job,
        start: u64,
        expected: &[u8],
        found: &[u8],
    ) -> Result<(), Error> {
        let Some(tensors) = self.tensors(job.work.component) else {
            return Ok(());
        };
        let end = start + expected.len() as u64;
        for (_, slice, part) in overlapping(&job.work.slices(), start..end) {
            let mut at = usize::try_from(part.start - start).unwrap_or(usize::MAX);
            let part = part.start - slice.offset..part.end - slice.offset;
            let each = |piece| {
                let (Piece::Data { len, .. } | Piece::Fill { len, .. }) = piece;
                let from = at;
                at += usize::try_from(len).unwrap_or(usize::MAX);
                if let Piece::Data { tensor, offset, .. } = piece
                    && tensors.get(tensor).is_some()
                {
                    let expected = expected.get(from..at).unwrap_or_default();
                    let found = found.get(from..at).unwrap_or_default();
                    if let Some(first) = first_difference(slice.dtype, offset, expected, found) {
                        self.note((job.work.component, tensor), first);
                    }
                }
                Ok::<(), Misfit>(())
            };
            pieces(slice, |tensor| tensors.shape(tensor), part, each).map_err(|misfit| {
                Error::Inconsistent {
                    component: tensors.component().to_owned(),
                    tensor: misfit.tensor,
                    why: misfit.why,
                }
            })?;
        }
        Ok(())
    }

    fn note(&self, tensor: (u32, u32), first: First) {
        let mut firsts = lock(&self.first);
        let known = firsts.entry(tensor).or_insert_with(|| first.clone());
        if first.element < known.element {
            *known = first;
        }
    }
}

/// The first element that differs in a piece of a tensor that starts at byte `offset` of it.
fn first_difference(dtype: DType, offset: u64, expected: &[u8], found: &[u8]) -> Option<First> {
    let at = expected
        .iter()
        .zip(found)
        .position(|(expected, found)| expected != found)?;
    let bits = u64::from(dtype.bits());
    let byte = offset + at as u64;
    let element = byte * 8 / bits;
    let width = usize::try_from(bits.div_ceil(8)).unwrap_or(1);
    // From the element's first byte; of packed types, from the differing byte.
    let back = if bits % 8 == 0 {
        usize::try_from(byte % (bits / 8)).unwrap_or(0)
    } else {
        0
    };
    let start = at.saturating_sub(back);
    let of = |bytes: &[u8]| bytes.iter().skip(start).take(width).copied().collect();
    Some(First {
        element,
        pack: of(found),
        checkpoint: of(expected),
    })
}

impl Stage for Compare<'_> {
    fn tensors(&self, component: u32) -> Option<&dyn Tensors> {
        self.components
            .get(usize::try_from(component).ok()?)
            .map(|round| round as &dyn Tensors)
    }

    fn work(&self, job: &Job, bytes: &mut [u8]) -> Result<(), Error> {
        let range = job.range();
        let mut found = PageBuffer::new(CHUNK.min(bytes.len()));
        let mut start = range.start;
        for expected in bytes.chunks(CHUNK) {
            let found = found.get_mut(..expected.len()).unwrap_or_default();
            self.pack.read_exact_at(job.work.offset + start, found)?;
            if expected != found {
                self.differences(job, start, expected, found)?;
            }
            start += expected.len() as u64;
        }
        self.context.progress.advance(range.end - range.start);
        Ok(())
    }

    fn write(&self, _: &Job, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
