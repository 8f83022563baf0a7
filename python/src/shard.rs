//! What one rank holds, as Python sees it: names, and memory behind them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use pyo3::{prelude::*, types::PyDict};
use wpack_format::{DType, SliceKind};
use wpack_loader::{
    Entry, Error, ExtentMap, ReadOptions, ShardIndex, StageOptions, Transfers, VerifyOptions,
};

use crate::{
    dlpack::{Memory, Span, lend},
    error,
    pack::Opened,
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
    /// Position of its component in the pack.
    pub(crate) component: u32,
    /// Element type.
    pub(crate) dtype: DType,
    /// Elements per dimension, in units of whole bytes for packed types.
    pub(crate) shape: Vec<i64>,
    /// Index of the extent.
    pub(crate) extent: u32,
    /// Index of the slice in it.
    pub(crate) slice: u32,
    /// Bytes from the extent's start.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) len: u64,
}

/// The tensors of one rank.
#[pyclass(frozen, module = "wpack._wpack")]
pub(crate) struct NativeShard {
    opened: Arc<Opened>,
    rank: u32,
    world_size: u32,
    layout: Option<String>,
    index: ShardIndex,
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
            return Err(inconsistent(opened, extent, "an extent that the table lacks"));
        };
        let map = Arc::new(ExtentMap::new(&opened.file, row.offset, row.len, opened.mode)?);
        maps.insert(extent, Arc::clone(&map));
        Ok(map)
    }
}

fn inconsistent(opened: &Opened, extent: u32, what: &'static str) -> Error {
    Error::Inconsistent { path: opened.index.label().to_owned(), extent, slice: 0, what }
}

impl NativeShard {
    pub(crate) fn new(
        opened: Arc<Opened>,
        rank: u32,
        world_size: u32,
        layout: Option<&str>,
        components: Option<&[String]>,
    ) -> Result<Self, Error> {
        let chosen = match components {
            None => (0..).zip(&opened.index.root().components).map(|(index, _)| index).collect(),
            Some(names) => names
                .iter()
                .map(|name| opened.index.component(name))
                .collect::<Result<Vec<u32>, Error>>()?,
        };
        let prefixed = chosen.len() > 1;
        let index = opened.index.shard(&opened.file, rank)?;
        let mut slots = Vec::with_capacity(index.len());
        for entry in index.iter() {
            if chosen.contains(&entry.held().extent.component) {
                slots.push(slot(&opened, &entry, prefixed)?);
            }
        }
        let layout = layout.map(str::to_owned);
        Ok(Self {
            opened,
            rank,
            world_size,
            layout,
            index,
            slots,
            by_key: OnceLock::new(),
            maps: Maps::default(),
        })
    }

    fn by_key(&self) -> &HashMap<String, usize> {
        self.by_key.get_or_init(|| {
            let all = self.slots.iter().enumerate();
            all.flat_map(|(at, slot)| slot.keys.iter().map(move |key| (key.clone(), at))).collect()
        })
    }

    /// The reads that bring some slots, by position, to their destinations; and for each destination the
    /// place of its slot among those given.
    fn transfers(&self, wanted: &[usize], verify: bool) -> Result<(Transfers, Vec<u32>), Error> {
        let mut places = HashMap::new();
        for (place, slot) in (0_u32..).zip(wanted.iter().filter_map(|at| self.slots.get(*at))) {
            places.insert((slot.extent, slot.slice), place);
        }
        let transfers = self.index.transfers(&self.opened.index, &self.opened.file, verify, |entry| {
            places.contains_key(&(entry.held().index, entry.index()))
        })?;
        let targets = transfers.destinations().iter();
        let targets = targets.filter_map(|to| places.get(&(to.extent, to.slice)).copied()).collect();
        Ok((transfers, targets))
    }

    fn slot(&self, py: Python<'_>, key: &str) -> PyResult<&Slot> {
        let found = self.by_key().get(key).and_then(|at| self.slots.get(*at));
        found.ok_or_else(|| {
            let message = format!("no tensor `{key}` in the shard of rank {}", self.rank);
            error::raise(py, "unknown-tensor", &message, Some("shard.keys() lists the names".to_owned()))
        })
    }

    /// The extents that slots lie in, mapped.
    fn regions(&self, py: Python<'_>, maps: &Maps) -> PyResult<Vec<Region>> {
        let mut extents: Vec<u32> = self.slots.iter().map(|slot| slot.extent).collect();
        extents.sort_unstable();
        extents.dedup();
        let mapped = extents.into_iter().map(|extent| {
            Ok(Region { map: maps.get(&self.opened, extent)?, extent })
        });
        mapped.collect::<Result<_, _>>().map_err(|error| error::loader(py, &error))
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

    /// The memory of a slot.
    fn span(&self, maps: Option<&Maps>, slot: &Slot) -> Result<Span, Error> {
        let map = maps.unwrap_or(&self.maps).get(&self.opened, slot.extent)?;
        let range = usize::try_from(slot.offset).ok().zip(usize::try_from(slot.len).ok());
        let span = range.and_then(|(offset, len)| Span::new(map as Arc<dyn Memory>, offset, len));
        span.ok_or_else(|| inconsistent(&self.opened, slot.extent, "a slice outside of its extent"))
    }
}

/// A tensor's keys and place.
fn slot(opened: &Opened, entry: &Entry<'_>, prefixed: bool) -> Result<Slot, Error> {
    let suffix = if entry.kind() == SliceKind::Master { "@master" } else { "" };
    let key = |name: &str| {
        if prefixed {
            format!("{}.{name}{suffix}", entry.component())
        } else {
            format!("{name}{suffix}")
        }
    };
    let mut keys: Vec<String> = entry.names().map(key).collect();
    if keys.is_empty() {
        // A flat stream of several tensors has no name of its own.
        keys.push(key(&format!("@stream.{}.{}", entry.held().index, entry.index())));
    }
    let shape = entry.stored_shape().into_iter().map(i64::try_from).collect::<Result<_, _>>();
    let extent = entry.held().index;
    Ok(Slot {
        keys,
        component: entry.held().extent.component,
        dtype: entry.dtype(),
        shape: shape.map_err(|_| inconsistent(opened, extent, "a shape beyond 63 bits"))?,
        extent,
        slice: entry.index(),
        offset: entry.offset(),
        len: entry.len(),
    })
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
        self.slots.iter().flat_map(|slot| slot.keys.iter().map(String::as_str)).collect()
    }

    /// Element type, shape and bytes of a tensor.
    fn describe(&self, py: Python<'_>, key: &str) -> PyResult<(&'static str, Vec<i64>, u64)> {
        let slot = self.slot(py, key)?;
        Ok((slot.dtype.name(), slot.shape.clone(), slot.len))
    }

    /// A tensor's memory for numpy and DLPack consumers.
    fn view(&self, py: Python<'_>, key: &str) -> PyResult<View> {
        let slot = self.slot(py, key)?;
        let span = self.span(None, slot).map_err(|error| error::loader(py, &error))?;
        Ok(View { span, dtype: slot.dtype, shape: slot.shape.clone() })
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
        let span = self.span(None, slot).map_err(|error| error::loader(py, &error))?;
        Converter::new(convert, dtypes)?.tensor(slot, span)
    }

    /// The same for some components only, with their names as when these were asked for at first.
    fn narrow(&self, py: Python<'_>, components: Vec<String>) -> PyResult<Self> {
        let opened = Arc::clone(&self.opened);
        let (rank, world_size) = (self.rank, self.world_size);
        let layout = self.layout.as_deref();
        let made = Self::new(opened, rank, world_size, layout, Some(&components));
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
        let mut dict = Dict::new(Converter::new(convert, dtypes)?);
        for slot in &self.slots {
            let span = self.span(Some(&maps), slot).map_err(|error| error::loader(py, &error))?;
            dict.insert(slot, span)?;
        }
        Ok(dict.finish())
    }

    /// What can be loaded: position, names, element type, shape and bytes of each tensor.
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
    #[pyo3(signature = (wanted, sink, budget, verify=true, progress=None))]
    fn stage<'py>(
        &self,
        py: Python<'py>,
        wanted: Vec<usize>,
        sink: Py<PyAny>,
        budget: u64,
        verify: bool,
        progress: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let options = StageOptions::default().with_budget(budget);
        let stats = watched(py, progress, |progress, interrupt| {
            let (transfers, targets) = self.transfers(&wanted, verify)?;
            let mut sink = Sink::new(sink, targets);
            wpack_loader::stage(&self.opened.file, &transfers, &mut sink, &options, progress, interrupt)
        })?;
        stage::report(py, &stats.map_err(|error| error::staged(py, error))?)
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
    ) -> PyResult<Bound<'py, PyDict>> {
        let stats = watched(py, progress, |progress, interrupt| {
            let (transfers, targets) = self.transfers(&wanted, verify)?;
            let places = targets.iter().filter_map(|target| memory.get(*target as usize));
            let mut lent: Vec<_> = places.map(|(address, len)| lend(*address, *len)).collect();
            let memory = lent.iter_mut().map(AsMut::as_mut).collect();
            let options = ReadOptions::default();
            wpack_loader::read_into(&self.opened.file, &transfers, memory, &options, progress, interrupt)
        })?;
        stage::report(py, &stats.map_err(|error| error::staged(py, error))?)
    }

    /// What the shard costs: layout, whether the pack was made for it, bytes mapped, bytes and tensors
    /// gathered, and the command for a fitting pack.
    fn cost(&self) -> (String, bool, u64, u64, u64, Option<String>) {
        let mapped = self.slots.iter().map(|slot| slot.len).sum();
        let own = &self.opened.index.root().description.layout;
        let layout = self.layout.clone().unwrap_or_else(|| own.clone());
        (layout, true, mapped, 0, 0, None)
    }

    /// Checks header, root, tables and every block that this rank reads; what is damaged.
    #[pyo3(signature = (threads=0, progress=None))]
    fn verify(
        &self,
        py: Python<'_>,
        threads: usize,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(u64, u64, f64, Vec<String>)> {
        let options = VerifyOptions::default().with_rank(Some(self.rank)).with_threads(threads);
        let report = watched(py, progress, |progress, interrupt| {
            wpack_loader::verify(&self.opened.file, &options, progress, interrupt)
        })?;
        let report = report.map_err(|error| error::loader(py, &error))?;
        let damage = report.damage.iter().map(|damage| {
            let tensors = damage.tensors.join(", ");
            let concerned = if tensors.is_empty() { String::new() } else { format!(" ({tensors})") };
            format!("{} at byte {}: {}{concerned}", damage.part, damage.offset, damage.fault.code())
        });
        let damage = damage.collect();
        Ok((report.bytes, report.blocks, report.seconds, damage))
    }

    /// Brings this rank's extents into the page cache and the page table by read faults; returns their
    /// bytes. With `node`, one process of the machine at a time brings in an extent and others wait for it.
    #[pyo3(signature = (node=false, progress=None))]
    fn prefetch(&self, py: Python<'_>, node: bool, progress: Option<&Bound<'_, PyAny>>) -> PyResult<u64> {
        self.bring(py, &self.maps, node, progress)
    }
}
