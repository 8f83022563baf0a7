//! One pack, any world size: the slices of a rank of another mesh or layout, from the bytes there
//! are.
//!
//! All bytes of a checkpoint are in the pack, so a rank of any world size can have its slices. A
//! slice that is a byte range of a stored one is a view without a copy: all of `zero3` and `fsdp2`
//! from a `replicate` pack, but for slices with fill. Others are gathered from several ranges, which
//! costs private memory; [`Reslice::explain`] says how much, and which command avoids it.

mod explain;
mod gather;
mod options;
mod ranges;
mod stored;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::HashMap, ops::ControlFlow, sync::Arc};

use wpack_format::{Content, DType, Slice, SliceKind, TensorRef, TensorTable};
use wpack_plan::{ComponentSpec, Inventory, Plan, TensorSpec};

pub use self::{
    explain::{Explanation, Share},
    options::ResliceOptions,
};
use self::{
    ranges::Range,
    stored::{Finder, Piece},
};
use crate::{ByteSource, Error, Index, Pack, shard::stored_shape};

/// The slices of a rank as another layout wants them, and where their bytes are.
#[derive(Debug)]
pub struct Reslice {
    entries: Vec<ResliceEntry>,
    components: Vec<ComponentTable>,
    explanation: Explanation,
    label: String,
}

#[derive(Debug)]
struct ComponentTable {
    name: String,
    tensors: Arc<TensorTable>,
    /// Stored slices that this rank can need, by tensor; and where each starts in the file.
    stored: HashMap<u32, Vec<(Slice, u64)>>,
}

/// One slice that the rank wants.
#[derive(Debug)]
pub struct ResliceEntry {
    component: usize,
    slice: Slice,
    len: u64,
    place: Place,
}

/// Where the bytes of a slice are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In one range of the file.
    At(u64),
    /// In several, or in none.
    Apart,
}

impl Index {
    /// The slices of a rank of any mesh and layout. Reads the tables of all extents, and keeps what
    /// the rank can need.
    ///
    /// ```
    /// use wpack_loader::{Pack, ResliceOptions};
    ///
    /// let pack = Pack::open("../fixtures/golden/v1-owners.wpack")?;
    /// // The pack is for eight ranks; this is the first of two under ZeRO-3.
    /// let options = ResliceOptions::new(0).with_ranks(2).with_layout("zero3");
    /// let reslice = pack.reslice(&options)?;
    /// println!("{}", reslice.explain());
    /// for entry in reslice.entries() {
    ///     let bytes = reslice.bytes(pack.bytes(), entry)?;
    ///     assert_eq!(bytes.len() as u64, entry.len());
    /// }
    /// # Ok::<(), wpack_loader::Error>(())
    /// ```
    pub fn reslice(
        &self,
        source: &(impl ByteSource + ?Sized),
        options: &ResliceOptions,
    ) -> Result<Reslice, Error> {
        let count = u32::try_from(self.root().components.len()).unwrap_or(u32::MAX);
        let tables = (0..count).map(|component| self.tensors(source, component));
        let tables: Vec<Arc<TensorTable>> = tables.collect::<Result<_, _>>()?;
        let names = self
            .root()
            .components
            .iter()
            .map(|record| record.name.clone());
        let inventory = inventory(names.clone().zip(&tables));
        let request = options.request(self)?;
        let plan =
            wpack_plan::plan(&inventory, &request).map_err(|source| Error::Plan { source })?;
        drop(inventory);
        if let Some(ranks) = plan.ranks().filter(|ranks| options.rank >= *ranks) {
            return Err(Error::RankOutsideMesh {
                rank: options.rank,
                ranks,
            });
        }
        let components = names.zip(tables).map(|(name, tensors)| ComponentTable {
            name,
            tensors,
            stored: HashMap::new(),
        });
        let mut reslice = Reslice {
            entries: wanted(&plan, options.rank)?,
            components: components.collect(),
            explanation: Explanation {
                rank: options.rank,
                ranks: plan.ranks(),
                layout: plan.layout().to_owned(),
                zero_copy: Share::default(),
                gathered: Share::default(),
                fill: 0,
                convert: None,
            },
            label: self.label().to_owned(),
        };
        reslice.find_stored(self, source)?;
        reslice.place()?;
        if reslice.explanation.gathered.bytes > 0 {
            reslice.explanation.convert = Some(options::command(&request, &plan));
        }
        Ok(reslice)
    }
}

/// The pack's tensors as the planner takes them.
fn inventory<'t>(tables: impl Iterator<Item = (String, &'t Arc<TensorTable>)>) -> Inventory {
    let spec = |tensor: TensorRef<'_>| TensorSpec {
        names: tensor.names().map(|name| name.name.to_owned()).collect(),
        dtype: tensor.dtype,
        shape: tensor.shape.to_vec(),
    };
    let components = tables.map(|(name, tensors)| ComponentSpec {
        name,
        tensors: tensors.iter().map(spec).collect(),
    });
    Inventory {
        components: components.collect(),
    }
}

/// The slices that the plan gives a rank, in file order of a pack made for it.
fn wanted(plan: &Plan, rank: u32) -> Result<Vec<ResliceEntry>, Error> {
    let mut entries = Vec::new();
    for at in plan.extents_of(rank) {
        let Some(extent) = plan.extents().get(at) else {
            continue;
        };
        let slices = plan.slices(at).map_err(|source| Error::Plan { source })?;
        entries.extend(slices.into_iter().map(|slice| ResliceEntry {
            component: extent.component as usize,
            len: slice.len_bytes().unwrap_or(0),
            slice,
            place: Place::Apart,
        }));
    }
    Ok(entries)
}

impl Reslice {
    /// Keeps the stored slices that hold elements which the rank wants.
    fn find_stored(
        &mut self,
        index: &Index,
        source: &(impl ByteSource + ?Sized),
    ) -> Result<(), Error> {
        // Per component and tensor: the least range that covers what is wanted.
        let mut needed: Vec<HashMap<u32, (u64, u64)>> = Vec::new();
        needed.resize_with(self.components.len(), HashMap::new);
        for entry in &self.entries {
            let Some(component) = self.components.get(entry.component) else {
                continue;
            };
            let Some(needed) = needed.get_mut(entry.component) else {
                continue;
            };
            stored::bounds(
                &entry.slice,
                |tensor| component.shape(tensor),
                |tensor, from, to| {
                    let all = needed.entry(tensor).or_insert((from, to));
                    *all = (all.0.min(from), all.1.max(to));
                },
            );
        }
        for (number, extent) in (0..).zip(&index.root().extents) {
            let at = extent.component as usize;
            let (Some(component), Some(needed)) = (self.components.get_mut(at), needed.get(at))
            else {
                continue;
            };
            let held = index.held(source, number)?;
            for slice in held.slices.iter() {
                if slice.kind != SliceKind::Value
                    || !slice.tensors().any(|t| needed.contains_key(&t))
                {
                    continue;
                }
                let slice = slice.to_slice();
                let mut tensors: Vec<u32> = Vec::new();
                stored::bounds(
                    &slice,
                    |tensor| component.shape(tensor),
                    |tensor, from, to| {
                        let wanted = needed.get(&tensor);
                        if wanted.is_some_and(|(first, last)| from < *last && *first < to)
                            && !tensors.contains(&tensor)
                        {
                            tensors.push(tensor);
                        }
                    },
                );
                let offset = held.extent.offset.saturating_add(slice.offset);
                for tensor in tensors {
                    component
                        .stored
                        .entry(tensor)
                        .or_default()
                        .push((slice.clone(), offset));
                }
            }
        }
        Ok(())
    }

    /// Finds out which slices are one range, and that all others are there.
    fn place(&mut self) -> Result<(), Error> {
        let mut entries = std::mem::take(&mut self.entries);
        let mut finder = Finder::default();
        for entry in &mut entries {
            let mut first: Option<u64> = None;
            let mut end = 0;
            let mut one = true;
            let mut fill = 0_u64;
            let whole = self.visit(&mut finder, entry, &mut |piece| {
                match piece {
                    Piece::Bytes { at, len } => {
                        one &= first.is_none() || at == end;
                        first.get_or_insert(at);
                        end = at.saturating_add(len);
                    }
                    Piece::Fill { len, .. } => {
                        one = false;
                        fill = fill.saturating_add(len);
                    }
                }
                ControlFlow::Continue(())
            });
            whole?;
            let stored = self.stored_as_is(entry);
            entry.place = match (stored, one) {
                (Some(at), _) => Place::At(at),
                (None, true) => Place::At(first.unwrap_or(0)),
                (None, false) => Place::Apart,
            };
            if entry.place == Place::Apart {
                self.explanation.gathered.add(entry.len);
                self.explanation.fill = self.explanation.fill.saturating_add(fill);
            } else {
                self.explanation.zero_copy.add(entry.len);
            }
        }
        self.entries = entries;
        Ok(())
    }

    /// The place of a stored slice that is this very slice, its fill included.
    fn stored_as_is(&self, entry: &ResliceEntry) -> Option<u64> {
        let component = self.components.get(entry.component)?;
        let tensor = tensor_of(&entry.slice)?;
        let mut stored = component.stored.get(&tensor)?.iter();
        let same = |(slice, _): &&(Slice, u64)| {
            slice.content == entry.slice.content
                && slice.dtype == entry.slice.dtype
                && slice.kind == entry.slice.kind
        };
        stored.find(same).map(|(_, offset)| *offset)
    }

    /// Visits the pieces of a slice in the order of its bytes.
    fn visit(
        &self,
        finder: &mut Finder,
        entry: &ResliceEntry,
        visit: &mut dyn FnMut(Piece) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let missing = |tensor: u32| Error::NotStored {
            path: self.label.clone(),
            tensor: self
                .components
                .get(entry.component)
                .and_then(|component| component.tensors.get_ref(tensor))
                .map_or_else(String::new, |tensor| tensor.name().to_owned()),
            kind: if entry.slice.kind == SliceKind::Value {
                ""
            } else {
                " (master copy)"
            },
        };
        let Some(component) = self.components.get(entry.component) else {
            return Ok(());
        };
        let mut outcome = Ok(());
        let dtype = entry.slice.dtype;
        let fits = ranges::ranges(
            &entry.slice,
            |tensor| component.shape(tensor),
            &mut |range| match range {
                Range::Fill { len, value } => match dtype.bytes(len) {
                    Some(len) => visit(Piece::Fill {
                        len,
                        value: value.0,
                    }),
                    None => ControlFlow::Break(()),
                },
                Range::Tensor { tensor, start, len } => {
                    let known = component.dtype(tensor) == Some(dtype);
                    let stored = finder.find(entry.component, component, tensor);
                    let found = stored
                        .filter(|_| known && entry.slice.kind == SliceKind::Value)
                        .and_then(|stored| {
                            stored.visit(start, len, &mut |at, len| visit(Piece::Bytes { at, len }))
                        });
                    found.unwrap_or_else(|| {
                        outcome = Err(missing(tensor));
                        ControlFlow::Break(())
                    })
                }
            },
        );
        outcome?;
        fits.ok_or_else(|| missing(tensor_of(&entry.slice).unwrap_or(u32::MAX)))
    }

    /// What this costs.
    #[must_use]
    pub fn explain(&self) -> &Explanation {
        &self.explanation
    }

    /// The slices, in file order of a pack made for this mesh and layout.
    #[must_use]
    pub fn entries(&self) -> &[ResliceEntry] {
        &self.entries
    }

    /// Name of a slice's component.
    #[must_use]
    pub fn component(&self, entry: &ResliceEntry) -> &str {
        self.components
            .get(entry.component)
            .map_or("", |component| component.name.as_str())
    }

    /// The only tensor of a slice; none for a flat stream of several.
    #[must_use]
    pub fn tensor(&self, entry: &ResliceEntry) -> Option<TensorRef<'_>> {
        self.components
            .get(entry.component)?
            .tensors
            .get_ref(tensor_of(&entry.slice)?)
    }

    /// The shape of a slice in units of whole bytes; see [`crate::Entry::stored_shape`].
    #[must_use]
    pub fn stored_shape(&self, entry: &ResliceEntry) -> Vec<u64> {
        let shape = entry.slice.shape.clone();
        stored_shape(entry.slice.dtype, shape, entry.len, self.tensor(entry))
    }

    /// The bytes of a slice: borrowed from the pack's where it is one range, else gathered.
    pub fn bytes<'d>(&self, data: &'d [u8], entry: &ResliceEntry) -> Result<Cow<'d, [u8]>, Error> {
        if let Place::At(offset) = entry.place {
            let range = || {
                let from = usize::try_from(offset).ok()?;
                data.get(from..from.checked_add(usize::try_from(entry.len).ok()?)?)
            };
            return range().map(Cow::Borrowed).ok_or_else(|| Error::Truncated {
                path: self.label.clone(),
                offset: data.len() as u64,
                missing: offset
                    .saturating_add(entry.len)
                    .saturating_sub(data.len() as u64),
            });
        }
        let mut bytes = crate::index::memory(entry.len, "a gathered slice")?;
        self.read(data, entry, &mut bytes)?;
        Ok(Cow::Owned(bytes))
    }
}

impl ResliceEntry {
    /// What the slice is: content, type and shape. Its offset is that in a pack made for it.
    #[must_use]
    pub fn slice(&self) -> &Slice {
        &self.slice
    }

    /// Element type of the bytes.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.slice.dtype
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True without bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// First byte in the packfile, if all bytes lie there together: a view without a copy.
    #[must_use]
    pub fn file_offset(&self) -> Option<u64> {
        match self.place {
            Place::At(offset) => Some(offset),
            Place::Apart => None,
        }
    }
}

impl ComponentTable {
    fn shape(&self, tensor: u32) -> Option<Vec<u64>> {
        Some(self.tensors.get_ref(tensor)?.shape.to_vec())
    }

    fn dtype(&self, tensor: u32) -> Option<DType> {
        Some(self.tensors.get_ref(tensor)?.dtype)
    }
}

/// The only tensor of a slice.
fn tensor_of(slice: &Slice) -> Option<u32> {
    match &slice.content {
        Content::Whole { tensor } | Content::Boxes { tensor, .. } => Some(*tensor),
        Content::Flat { parts } => {
            let mut tensors = parts.iter().filter_map(|part| match part {
                wpack_format::FlatPart::Range { tensor, .. } => Some(*tensor),
                wpack_format::FlatPart::Fill { .. } => None,
            });
            let first = tensors.next()?;
            tensors.all(|tensor| tensor == first).then_some(first)
        }
    }
}

impl<D: AsRef<[u8]>> Pack<D> {
    /// The slices of a rank of any mesh and layout; see [`Index::reslice`].
    pub fn reslice(&self, options: &ResliceOptions) -> Result<Reslice, Error> {
        self.index().reslice(self.bytes(), options)
    }
}
