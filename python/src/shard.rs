//! What one rank holds, as Python sees it: names, and memory behind them.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, OnceLock, PoisonError, atomic::Ordering},
    time::Instant,
};

use pyo3::{prelude::*, types::PyDict};
use wpack_format::{DType, SliceKind};
use wpack_loader::{
    ByteSource, Entry, Error, ExtentMap, ReadOptions, Reslice, ResliceEntry, ShardIndex,
    StageOptions, Transfers, VerifyOptions,
};

use crate::{
    dlpack::{Buffer, Memory, Span, lend},
    error,
    pack::{Opened, Target},
    prefetch::{self, Region},
    stage::{self, Sink},
    tensors::{Converter, Dict},
    view::View,
    watch::watched,
};

/// One tensor of the shard.
pub(crate) struct Slot {
    /// Its key, then those of its ties.
    pub(crate) keys: Vec<String>,
    /// Element type.
    pub(crate) dtype: DType,
    /// Elements per dimension, in units of whole bytes for packed types.
    pub(crate) shape: Vec<i64>,
    /// Bytes.
    pub(crate) len: u64,
    /// Where they are.
    place: Place,
}

/// Where the bytes of a slot are.
#[derive(Clone, Copy)]
enum Place {
    /// In one range of an extent.
    Extent {
        /// Index of the extent.
        extent: u32,
        /// Bytes from its start.
        offset: u64,
    },
    /// Apart: gathered, by this entry of the reslice.
    Apart(usize),
}

impl Slot {
    fn extent(&self) -> Option<u32> {
        match self.place {
            Place::Extent { extent, .. } => Some(extent),
            Place::Apart(_) => None,
        }
    }
}

/// What the slots were made from.
enum Cut {
    /// The pack's own shard of this rank; for each slot its extent and slice.
    Own(ShardIndex, Vec<(u32, u32)>),
    /// Slices for another mesh or layout, from the bytes there are; for each slot its entry.
    Resliced(Reslice, Vec<usize>),
}

/// The tensors of one rank.
#[pyclass(frozen, module = "wpack._wpack")]
pub(crate) struct NativeShard {
    opened: Arc<Opened>,
    rank: u32,
    world_size: u32,
    target: Target,
    cut: Cut,
    slots: Vec<Slot>,
    by_key: OnceLock<HashMap<String, usize>>,
    maps: Maps,
}

/// Mappings of extents, each made when it is first needed.
#[derive(Default)]
struct Maps(Mutex<HashMap<u32, Arc<ExtentMap>>>);

impl Maps {
    fn get(&self, opened: &Opened, extent: u32) -> Result<Arc<ExtentMap>, Error> {
        let mut maps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(map) = maps.get(&extent) {
            return Ok(Arc::clone(map));
        }
        let Some(row) = opened.index.extent(extent) else {
            return Err(inconsistent(
                opened,
                extent,
                "an extent that the table lacks",
            ));
        };
        let map = Arc::new(ExtentMap::new(
            &opened.file,
            row.offset,
            row.len,
            opened.mode,
        )?);
        maps.insert(extent, Arc::clone(&map));
        Ok(map)
    }
}

fn inconsistent(opened: &Opened, extent: u32, what: &'static str) -> Error {
    Error::Inconsistent {
        path: opened.index.label().to_owned(),
        extent,
        slice: 0,
        what,
    }
}

impl NativeShard {
    pub(crate) fn new(
        opened: Arc<Opened>,
        rank: u32,
        world_size: u32,
        target: Target,
        components: Option<&[String]>,
    ) -> Result<Self, Error> {
        let chosen = match components {
            None => (0..)
                .zip(&opened.index.root().components)
                .map(|(index, _)| index)
                .collect(),
            Some(names) => names
                .iter()
                .map(|name| opened.index.component(name))
                .collect::<Result<Vec<u32>, Error>>()?,
        };
        let prefixed = chosen.len() > 1;
        let mut slots = Vec::new();
        let cut = if target.is_own(&opened.index, world_size) {
            let index = opened.index.shard(&opened.file, rank)?;
            let mut places = Vec::with_capacity(index.len());
            slots.reserve(index.len());
            for entry in index.iter() {
                if chosen.contains(&entry.held().extent.component) {
                    slots.push(own_slot(&opened, &entry, prefixed)?);
                    places.push((entry.held().index, entry.index()));
                }
            }
            Cut::Own(index, places)
        } else {
            let options = target.options(rank, world_size);
            let reslice = opened.index.reslice(&opened.file, &options)?;
            let mut places = Vec::new();
            for (at, entry) in reslice.entries().iter().enumerate() {
                let component = opened.index.component(reslice.component(entry))?;
                if chosen.contains(&component) {
                    places.push(at);
                    slots.push(resliced_slot(&opened, &reslice, entry, at, prefixed)?);
                }
            }
            Cut::Resliced(reslice, places)
        };
        Ok(Self {
            opened,
            rank,
            world_size,
            target,
            cut,
            slots,
            by_key: OnceLock::new(),
            maps: Maps::default(),
        })
    }

    fn by_key(&self) -> &HashMap<String, usize> {
        self.by_key.get_or_init(|| {
            let all = self.slots.iter().enumerate();
            all.flat_map(|(at, slot)| slot.keys.iter().map(move |key| (key.clone(), at)))
                .collect()
        })
    }

    /// The reads that bring some slots, by position, to their destinations; and for each destination the
    /// place of its slot among those given. None for slices of another mesh or layout.
    fn transfers(
        &self,
        wanted: &[usize],
        verify: bool,
    ) -> Result<Option<(Transfers, Vec<u32>)>, Error> {
        let Cut::Own(index, held) = &self.cut else {
            return Ok(None);
        };
        let mut places = HashMap::new();
        for (place, at) in (0_u32..).zip(wanted.iter().filter_map(|at| held.get(*at))) {
            places.insert(*at, place);
        }
        let transfers =
            index.transfers(&self.opened.index, &self.opened.file, verify, |entry| {
                places.contains_key(&(entry.held().index, entry.index()))
            })?;
        let targets = transfers.destinations().iter();
        let targets = targets
            .filter_map(|to| places.get(&(to.extent, to.slice)).copied())
            .collect();
        Ok(Some((transfers, targets)))
    }

    fn slot(&self, py: Python<'_>, key: &str) -> PyResult<&Slot> {
        let found = self.by_key().get(key).and_then(|at| self.slots.get(*at));
        found.ok_or_else(|| {
            let message = format!("no tensor `{key}` in the shard of rank {}", self.rank);
            error::raise(
                py,
                "unknown-tensor",
                &message,
                Some("shard.keys() lists the names".to_owned()),
            )
        })
    }

    /// The extents that slots lie in, mapped.
    fn regions(&self, py: Python<'_>, maps: &Maps) -> PyResult<Vec<Region>> {
        let mut extents: Vec<u32> = self.slots.iter().filter_map(Slot::extent).collect();
        extents.sort_unstable();
        extents.dedup();
        let mapped = extents.into_iter().map(|extent| {
            Ok(Region {
                map: maps.get(&self.opened, extent)?,
                extent,
            })
        });
        mapped
            .collect::<Result<_, _>>()
            .map_err(|error| error::loader(py, &error))
    }

    fn bring(
        &self,
        py: Python<'_>,
        maps: &Maps,
        node: bool,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let regions = self.regions(py, maps)?;
        let digest = self.opened.index.digest();
        let bytes = watched(py, progress, |progress, interrupt| {
            prefetch::now(&regions, node.then_some(&digest), progress, interrupt)
        })?;
        bytes.map_err(|error| error::loader(py, &error))
    }

    /// The memory of a slot: a range of a mapping, or memory that it is gathered into.
    fn span(&self, maps: Option<&Maps>, slot: &Slot) -> Result<Span, Error> {
        let len = usize::try_from(slot.len).ok();
        let out_of_memory = || Error::OutOfMemory {
            bytes: slot.len,
            what: "a gathered slice",
        };
        let (extent, span) = match slot.place {
            Place::Extent { extent, offset } => {
                let map = maps.unwrap_or(&self.maps).get(&self.opened, extent)?;
                let range = usize::try_from(offset).ok().zip(len);
                (
                    extent,
                    range.and_then(|(offset, len)| Span::new(map as Arc<dyn Memory>, offset, len)),
                )
            }
            Place::Apart(at) => {
                let len = len.ok_or_else(out_of_memory)?;
                let buffer = Buffer::filled(len, |into| self.gather(at, into))?;
                let buffer = buffer.ok_or_else(out_of_memory)?;
                (0, Span::new(Arc::new(buffer), 0, len))
            }
        };
        span.ok_or_else(|| inconsistent(&self.opened, extent, "a slice outside of its extent"))
    }

    /// Reads a resliced slot, wherever its bytes are.
    fn gather(&self, at: usize, into: &mut [u8]) -> Result<(), Error> {
        match &self.cut {
            Cut::Resliced(reslice, _) => match reslice.entries().get(at) {
                Some(entry) => reslice.read(&self.opened.file, entry, into),
                None => Ok(()),
            },
            Cut::Own(..) => Ok(()),
        }
    }

    /// The slots that must be gathered, by position, each read into memory of its own.
    fn gathered(
        &self,
        py: Python<'_>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<HashMap<usize, Span>> {
        let apart = || {
            self.slots
                .iter()
                .enumerate()
                .filter(|(_, slot)| slot.extent().is_none())
        };
        if apart().next().is_none() {
            return Ok(HashMap::new());
        }
        let gathered = watched(py, progress, |progress, interrupt| {
            progress.begin("gather", apart().map(|(_, slot)| slot.len).sum());
            let mut spans = HashMap::new();
            for (at, slot) in apart() {
                if interrupt.load(Ordering::Relaxed) {
                    return Err(Error::Interrupted);
                }
                spans.insert(at, self.span(None, slot)?);
                progress.advance(slot.len);
            }
            self.opened.file.revalidate()?;
            Ok(spans)
        })?;
        gathered.map_err(|error| error::loader(py, &error))
    }
}

/// A tensor of the pack's own shard.
fn own_slot(opened: &Opened, entry: &Entry<'_>, prefixed: bool) -> Result<Slot, Error> {
    let extent = entry.held().index;
    let number = format!("{extent}.{}", entry.index());
    let prefix = prefixed.then(|| entry.component());
    Ok(Slot {
        keys: keys(prefix, entry.kind(), entry.names(), &number),
        dtype: entry.dtype(),
        shape: shape(opened, entry.stored_shape())?,
        len: entry.len(),
        place: Place::Extent {
            extent,
            offset: entry.offset(),
        },
    })
}

/// A tensor for another mesh or layout.
fn resliced_slot(
    opened: &Opened,
    reslice: &Reslice,
    entry: &ResliceEntry,
    at: usize,
    prefixed: bool,
) -> Result<Slot, Error> {
    let tensor = reslice.tensor(entry);
    let names = tensor
        .iter()
        .flat_map(|tensor| tensor.names())
        .map(|name| name.name);
    let prefix = prefixed.then(|| reslice.component(entry));
    Ok(Slot {
        keys: keys(prefix, entry.slice().kind, names, &at.to_string()),
        dtype: entry.dtype(),
        shape: shape(opened, reslice.stored_shape(entry))?,
        len: entry.len(),
        place: place(opened, entry).unwrap_or(Place::Apart(at)),
    })
}

/// The extent around a range of the file; none if it is not in one, or empty.
fn place(opened: &Opened, entry: &ResliceEntry) -> Option<Place> {
    let start = entry.file_offset().filter(|_| !entry.is_empty())?;
    let extents = &opened.index.root().extents;
    let at = extents
        .partition_point(|extent| extent.offset <= start)
        .checked_sub(1)?;
    let extent = extents.get(at)?;
    let offset = start.checked_sub(extent.offset)?;
    (offset.checked_add(entry.len())? <= extent.len).then_some(Place::Extent {
        extent: u32::try_from(at).ok()?,
        offset,
    })
}

/// A tensor's key and those of its ties.
fn keys<'n>(
    prefix: Option<&str>,
    kind: SliceKind,
    names: impl Iterator<Item = &'n str>,
    number: &str,
) -> Vec<String> {
    let suffix = if kind == SliceKind::Master {
        "@master"
    } else {
        ""
    };
    let key = |name: &str| match prefix {
        Some(prefix) => format!("{prefix}.{name}{suffix}"),
        None => format!("{name}{suffix}"),
    };
    let keys: Vec<String> = names.map(key).collect();
    if keys.is_empty() {
        // A flat stream of several tensors has no name of its own.
        return vec![key(&format!("@stream.{number}"))];
    }
    keys
}

fn shape(opened: &Opened, shape: Vec<u64>) -> Result<Vec<i64>, Error> {
    let shape = shape
        .into_iter()
        .map(i64::try_from)
        .collect::<Result<_, _>>();
    shape.map_err(|_| inconsistent(opened, 0, "a shape beyond 63 bits"))
}

#[pymethods]
impl NativeShard {
    /// The rank.
    #[getter]
    fn rank(&self) -> u32 {
        self.rank
    }

    /// Ranks of the world it is one of.
    #[getter]
    fn world_size(&self) -> u32 {
        self.world_size
    }

    fn __len__(&self) -> usize {
        self.slots.iter().map(|slot| slot.keys.len()).sum()
    }

    fn __contains__(&self, key: &str) -> bool {
        self.by_key().contains_key(key)
    }

    /// All names, ties included, in file order.
    fn keys(&self) -> Vec<&str> {
        self.slots
            .iter()
            .flat_map(|slot| slot.keys.iter().map(String::as_str))
            .collect()
    }

    /// Element type, shape and bytes of a tensor.
    fn describe(&self, py: Python<'_>, key: &str) -> PyResult<(&'static str, Vec<i64>, u64)> {
        let slot = self.slot(py, key)?;
        Ok((slot.dtype.name(), slot.shape.clone(), slot.len))
    }

    /// A tensor's memory for numpy and DLPack consumers.
    fn view(&self, py: Python<'_>, key: &str) -> PyResult<View> {
        let slot = self.slot(py, key)?;
        let span = self
            .span(None, slot)
            .map_err(|error| error::loader(py, &error))?;
        Ok(View {
            span,
            dtype: slot.dtype,
            shape: slot.shape.clone(),
        })
    }

    /// One tensor through a framework's DLPack import; see [`NativeShard::tensors`].
    fn tensor<'py>(
        &self,
        py: Python<'py>,
        key: &str,
        convert: &Bound<'py, PyAny>,
        dtypes: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let slot = self.slot(py, key)?;
        let span = self
            .span(None, slot)
            .map_err(|error| error::loader(py, &error))?;
        Converter::new(convert, dtypes)?.tensor(slot, span)
    }

    /// The same for some components only, with their names as when these were asked for at first.
    fn narrow(&self, py: Python<'_>, components: Vec<String>) -> PyResult<Self> {
        let opened = Arc::clone(&self.opened);
        let (rank, world_size) = (self.rank, self.world_size);
        let target = self.target.clone();
        let made = Self::new(opened, rank, world_size, target, Some(&components));
        made.map_err(|error| error::loader(py, &error))
    }

    /// A dict of all tensors, each over memory of its own in mappings that nothing else uses.
    ///
    /// `convert` takes a DLPack capsule; `dtypes` are the framework's element types by the pack's names.
    /// `prefetch` is `"ahead"`, `"node"` or nothing.
    #[pyo3(signature = (convert, dtypes, prefetch=None, progress=None))]
    fn tensors<'py>(
        &self,
        py: Python<'py>,
        convert: &Bound<'py, PyAny>,
        dtypes: &Bound<'py, PyDict>,
        prefetch: Option<&str>,
        progress: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let maps = Maps::default();
        match prefetch {
            Some("ahead") => prefetch::behind(self.regions(py, &maps)?)?,
            Some(_) => drop(self.bring(py, &maps, true, progress)?),
            None => {}
        }
        let mut gathered = self.gathered(py, progress)?;
        let mut dict = Dict::new(Converter::new(convert, dtypes)?);
        for (at, slot) in self.slots.iter().enumerate() {
            let span = match gathered.remove(&at) {
                Some(span) => span,
                None => self
                    .span(Some(&maps), slot)
                    .map_err(|error| error::loader(py, &error))?,
            };
            dict.insert(slot, span)?;
        }
        Ok(dict.finish())
    }

    /// What can be loaded: position, names, element type, shape and bytes of each tensor.
    #[expect(clippy::type_complexity, reason = "the tuple that Python gets")]
    fn entries(&self) -> Vec<(usize, Vec<&str>, &'static str, Vec<i64>, u64)> {
        let slots = self.slots.iter().enumerate();
        slots
            .map(|(at, slot)| {
                let keys = slot.keys.iter().map(String::as_str).collect();
                (at, keys, slot.dtype.name(), slot.shape.clone(), slot.len)
            })
            .collect()
    }

    /// Loads tensors, given by their positions, through the ring of a `wpack._stage.Sink`, whose
    /// destinations are in the same order. With `verify`, every byte's CRC-32C is checked before it moves.
    /// `None` for slices of another mesh or layout, which do not go through the ring.
    #[pyo3(signature = (wanted, sink, budget, verify=true, progress=None))]
    fn stage<'py>(
        &self,
        py: Python<'py>,
        wanted: Vec<usize>,
        sink: Py<PyAny>,
        budget: u64,
        verify: bool,
        progress: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let options = StageOptions::default().with_budget(budget);
        let stats = watched(py, progress, |progress, interrupt| {
            let Some((transfers, targets)) = self.transfers(&wanted, verify)? else {
                return Ok(None);
            };
            let mut sink = Sink::new(sink, targets);
            let file = &self.opened.file;
            wpack_loader::stage(file, &transfers, &mut sink, &options, progress, interrupt)
                .map(Some)
        })?;
        stats
            .map_err(|error| error::staged(py, error))?
            .map(|stats| stage::report(py, &stats))
            .transpose()
    }

    /// Loads tensors, given by their positions, into memory of this process: `memory` holds address and
    /// length of each.
    #[pyo3(signature = (wanted, memory, verify=true, progress=None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        wanted: Vec<usize>,
        memory: Vec<(usize, usize)>,
        verify: bool,
        progress: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let stats = watched(py, progress, |progress, interrupt| {
            let Some((transfers, targets)) = self.transfers(&wanted, verify)? else {
                return Ok(None);
            };
            let places = targets
                .iter()
                .filter_map(|target| memory.get(*target as usize));
            let mut lent: Vec<_> = places.map(|(address, len)| lend(*address, *len)).collect();
            let memory = lent.iter_mut().map(AsMut::as_mut).collect();
            let options = ReadOptions::default();
            let file = &self.opened.file;
            wpack_loader::read_into(file, &transfers, memory, &options, progress, interrupt)
                .map(Some)
        })?;
        stats
            .map_err(|error| error::staged(py, error))?
            .map(|stats| stage::report(py, &stats))
            .transpose()
    }

    /// What the shard costs: layout, whether the pack was made for it, bytes mapped, bytes and tensors
    /// gathered, and the command for a fitting pack.
    fn cost(&self) -> (String, bool, u64, u64, u64, Option<String>) {
        match &self.cut {
            Cut::Own(..) => {
                let mapped = self.slots.iter().map(|slot| slot.len).sum();
                (
                    self.opened.index.root().description.layout.clone(),
                    true,
                    mapped,
                    0,
                    0,
                    None,
                )
            }
            Cut::Resliced(reslice, _) => {
                let cost = reslice.explain();
                let command = cost.convert.clone();
                let gathered = cost.gathered;
                (
                    cost.layout.clone(),
                    false,
                    cost.zero_copy.bytes,
                    gathered.bytes,
                    gathered.slices,
                    command,
                )
            }
        }
    }

    /// Checks the blocks that slices of another mesh or layout, given by their positions, come from;
    /// their bytes, the blocks, and seconds. `None` for the pack's own slices.
    #[pyo3(signature = (wanted, progress=None))]
    fn check(
        &self,
        py: Python<'_>,
        wanted: Vec<usize>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<(u64, u64, f64)>> {
        let Cut::Resliced(reslice, places) = &self.cut else {
            return Ok(None);
        };
        let start = Instant::now();
        let wanted: HashSet<usize> = wanted
            .iter()
            .filter_map(|at| places.get(*at).copied())
            .collect();
        let checked = watched(py, progress, |progress, interrupt| {
            let want = |at: usize, _: &ResliceEntry| wanted.contains(&at);
            let (index, file) = (&self.opened.index, &self.opened.file);
            reslice.check(index, file, want, progress, interrupt)
        })?;
        let checked = checked.map_err(|error| error::loader(py, &error))?;
        Ok(Some((
            checked.bytes,
            checked.blocks,
            start.elapsed().as_secs_f64(),
        )))
    }

    /// Checks header, root, tables and every block that this rank reads; what is damaged.
    #[pyo3(signature = (threads=0, progress=None))]
    fn verify(
        &self,
        py: Python<'_>,
        threads: usize,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(u64, u64, f64, Vec<String>)> {
        let options = VerifyOptions::default()
            .with_rank(Some(self.rank))
            .with_threads(threads);
        let report = watched(py, progress, |progress, interrupt| {
            wpack_loader::verify(&self.opened.file, &options, progress, interrupt)
        })?;
        let report = report.map_err(|error| error::loader(py, &error))?;
        let damage = report.damage.iter().map(|damage| {
            let tensors = damage.tensors.join(", ");
            let concerned = if tensors.is_empty() {
                String::new()
            } else {
                format!(" ({tensors})")
            };
            format!(
                "{} at byte {}: {}{concerned}",
                damage.part,
                damage.offset,
                damage.fault.code()
            )
        });
        let damage = damage.collect();
        Ok((report.bytes, report.blocks, report.seconds, damage))
    }

    /// Brings this rank's extents into the page cache and the page table by read faults; returns their
    /// bytes. With `node`, one process of the machine at a time brings in an extent and others wait for it.
    #[pyo3(signature = (node=false, progress=None))]
    fn prefetch(
        &self,
        py: Python<'_>,
        node: bool,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        self.bring(py, &self.maps, node, progress)
    }
}
