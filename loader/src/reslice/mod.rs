//! One pack, any world size: the slices of a rank of another mesh or layout, from the bytes there
//! are.
//!
//! All bytes of a checkpoint are in the pack, so a rank of any world size can have its slices. A
//! slice that is a byte range of the file is a view without a copy: rows of a tensor that is stored
//! whole, but for slices with fill; parts of a flat group whose stored part goes further, fill
//! included. Others are gathered from several ranges, which costs private memory, and so do master
//! copies that are made from the weights; [`Reslice::explain`] says how much, and which command
//! avoids it.
//!
//! What a layout must know of the model beyond the pack's tensors, such as the style of each under
//! tensor parallelism, comes from the plan file that the pack keeps, or from one that is given.

mod check;
mod explain;
mod gather;
mod options;
mod ranges;
mod stored;
mod table;
#[cfg(test)]
mod tests;
mod widen;

use std::{borrow::Cow, collections::HashMap, ops::ControlFlow};

use wpack_format::{BoxPart, Content, DType, FlatPart, Slice, SliceKind, SliceRef, TensorRef};
use wpack_plan::{ComponentSpec, Inventory, Plan, TensorSpec};

pub use self::{
    check::Checked,
    explain::{Explanation, Share},
    options::ResliceOptions,
};
use self::{
    ranges::Range,
    table::{ComponentTable, Finder},
};
use crate::{ByteSource, Error, Index, Pack, shard::stored_shape};

/// The slices of a rank as another layout wants them, and where their bytes are.
#[derive(Debug)]
pub struct Reslice {
    entries: Vec<ResliceEntry>,
    /// The components that are wanted.
    components: Vec<ComponentTable>,
    explanation: Explanation,
    label: String,
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

/// A piece of a slice's bytes.
enum Piece {
    /// Bytes of the file.
    Bytes { at: u64, len: u64 },
    /// Bytes of the file, elements of a type that is not the slice's.
    Cast { at: u64, len: u64, from: DType },
    /// Fill.
    Fill { len: u64, value: [u8; 16] },
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
        let wanted = options.wanted(self)?;
        let chosen = if wanted.take.is_empty() {
            let all = (0..).zip(&self.root().components);
            all.map(|(index, _)| index).collect()
        } else {
            let mut chosen = wanted.take.iter().map(|name| self.component(name));
            let mut chosen = chosen.by_ref().collect::<Result<Vec<u32>, Error>>()?;
            chosen.sort_unstable();
            chosen.dedup();
            chosen
        };
        let mut components = Vec::with_capacity(chosen.len());
        for &component in &chosen {
            let record = self.root().components.get(component as usize);
            let name = record.map_or_else(String::new, |record| record.name.clone());
            components.push(ComponentTable::new(name, self.tensors(source, component)?));
        }
        let refuse = |source| Error::Plan {
            path: self.label().to_owned(),
            layout: options.layout_text(self),
            convert: Some(wanted.command(None)),
            source,
        };
        let plan = wpack_plan::plan(&inventory(&components), &wanted.request).map_err(refuse)?;
        if let Some(ranks) = plan.ranks().filter(|ranks| options.rank >= *ranks) {
            return Err(Error::RankOutsideMesh {
                rank: options.rank,
                ranks,
            });
        }
        let mut reslice = Reslice {
            entries: slices_of(&plan, options.rank).map_err(refuse)?,
            components,
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
        reslice.find_stored(self, source, &chosen)?;
        reslice.place(&wanted.command(Some(&plan)))?;
        Ok(reslice)
    }
}

/// The pack's tensors as the planner takes them.
fn inventory(components: &[ComponentTable]) -> Inventory {
    let spec = |tensor: TensorRef<'_>| TensorSpec {
        names: tensor.names().map(|name| name.name.to_owned()).collect(),
        dtype: tensor.dtype,
        shape: tensor.shape.to_vec(),
    };
    let components = components.iter().map(|component| ComponentSpec {
        name: component.name.clone(),
        tensors: component.tensors.iter().map(spec).collect(),
    });
    Inventory {
        components: components.collect(),
    }
}

/// The slices that the plan gives a rank, in file order of a pack made for it.
fn slices_of(plan: &Plan, rank: u32) -> Result<Vec<ResliceEntry>, wpack_plan::Error> {
    let mut entries = Vec::new();
    for at in plan.extents_of(rank) {
        let Some(extent) = plan.extents().get(at) else {
            continue;
        };
        let slices = plan.slices(at)?;
        entries.extend(slices.into_iter().map(|slice| ResliceEntry {
            component: extent.component as usize,
            len: slice.len_bytes().unwrap_or(0),
            slice,
            place: Place::Apart,
        }));
    }
    Ok(entries)
}

/// What a rank wants of one component.
#[derive(Default)]
struct Wants {
    /// Per tensor: the least range that covers the elements that are wanted.
    elements: HashMap<u32, (u64, u64)>,
    /// Entries by their first tensor.
    entries: HashMap<u32, Vec<usize>>,
    /// Whether there are master copies among them.
    masters: bool,
}

impl Wants {
    fn some_of(&self, tensor: u32, from: u64, to: u64) -> bool {
        let wanted = self.elements.get(&tensor);
        wanted.is_some_and(|(first, last)| from < *last && *first < to)
    }
}

impl Reslice {
    /// What is wanted, by component.
    fn wants(&self) -> Vec<Wants> {
        let mut all: Vec<Wants> = Vec::new();
        all.resize_with(self.components.len(), Wants::default);
        for (at, entry) in self.entries.iter().enumerate() {
            let (Some(component), Some(wants)) = (
                self.components.get(entry.component),
                all.get_mut(entry.component),
            ) else {
                continue;
            };
            wants.masters |= entry.slice.kind == SliceKind::Master;
            if let Some(tensor) = entry.slice.tensors().next() {
                wants.entries.entry(tensor).or_default().push(at);
            }
            stored::bounds(
                &entry.slice,
                |tensor| component.shape(tensor),
                |tensor, from, to| {
                    if from < to {
                        let all = wants.elements.entry(tensor).or_insert((from, to));
                        *all = (all.0.min(from), all.1.max(to));
                    }
                },
            );
        }
        all
    }

    /// Keeps the stored slices that hold elements which the rank wants, and places entries that are
    /// stored as they are, fill included.
    fn find_stored(
        &mut self,
        index: &Index,
        source: &(impl ByteSource + ?Sized),
        chosen: &[u32],
    ) -> Result<(), Error> {
        let wants = self.wants();
        for (number, extent) in (0..).zip(&index.root().extents) {
            let Ok(at) = chosen.binary_search(&extent.component) else {
                continue;
            };
            let (Some(component), Some(wants)) = (self.components.get_mut(at), wants.get(at))
            else {
                continue;
            };
            let held = index.held(source, number)?;
            for stored in held.slices.iter() {
                if stored.kind == SliceKind::Master && !wants.masters {
                    continue;
                }
                let same = stored.tensors().next();
                let same = same.and_then(|tensor| wants.entries.get(&tensor));
                let needed = stored
                    .tensors()
                    .any(|tensor| wants.elements.contains_key(&tensor));
                if same.is_none() && !needed {
                    continue;
                }
                let slice = stored.to_slice();
                let offset = held.extent.offset.saturating_add(slice.offset);
                for entry in same.into_iter().flatten() {
                    if let Some(entry) = self.entries.get_mut(*entry)
                        && is_same(&entry.slice, &stored)
                        && entry.slice.content == slice.content
                    {
                        entry.place = Place::At(offset);
                    }
                }
                component.keep(slice, offset, |tensor, from, to| {
                    wants.some_of(tensor, from, to)
                });
            }
        }
        Ok(())
    }

    /// Finds out which slices are one range, and that all others are there.
    fn place(&mut self, convert: &str) -> Result<(), Error> {
        let mut entries = std::mem::take(&mut self.entries);
        let mut finder = Finder::default();
        for entry in &mut entries {
            if entry.place == Place::Apart {
                entry.place = self.place_of(entry, &mut finder, convert)?;
            }
            let share = match entry.place {
                Place::Apart => &mut self.explanation.gathered,
                Place::At(_) => &mut self.explanation.zero_copy,
            };
            share.add(entry.len);
        }
        self.entries = entries;
        if self.explanation.gathered.bytes > 0 {
            self.explanation.convert = Some(convert.to_owned());
        }
        Ok(())
    }

    /// The place of a slice that is not stored as it is.
    fn place_of(
        &mut self,
        entry: &ResliceEntry,
        finder: &mut Finder,
        convert: &str,
    ) -> Result<Place, Error> {
        if let Some(at) = self.stretch(entry) {
            return Ok(Place::At(at));
        }
        let all_there = self.boxes_are_there(finder, entry);
        let mut first: Option<u64> = None;
        let (mut end, mut one, mut fill) = (0, true, 0_u64);
        let whole = self.visit(finder, entry, &mut |piece| {
            match piece {
                Piece::Bytes { at, len } => {
                    one &= first.is_none() || at == end;
                    first.get_or_insert(at);
                    end = at.saturating_add(len);
                }
                Piece::Cast { .. } => one = false,
                Piece::Fill { len, .. } => {
                    one = false;
                    fill = fill.saturating_add(len);
                }
            }
            if all_there && !one {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        if let Err(tensor) = whole {
            return Err(self.not_stored(entry, tensor, convert));
        }
        if one {
            return Ok(Place::At(first.unwrap_or(0)));
        }
        self.explanation.fill = self.explanation.fill.saturating_add(fill);
        Ok(Place::Apart)
    }

    /// Whether the file holds all that lies between the first and the last element of each box of a
    /// slice without fill: then no row of them needs to be looked for.
    fn boxes_are_there(&self, finder: &mut Finder, entry: &ResliceEntry) -> bool {
        let Content::Boxes { tensor, parts, .. } = &entry.slice.content else {
            return false;
        };
        let Some(component) = self.components.get(entry.component) else {
            return false;
        };
        let stored = finder.find(entry.component, component, *tensor, entry.slice.kind);
        let Some(stored) = stored.filter(|stored| stored.dtype() == entry.slice.dtype) else {
            return false;
        };
        let mut there = parts.iter().all(|part| matches!(part, BoxPart::Box { .. }));
        let shape = |tensor| component.shape(tensor);
        stored::bounds(&entry.slice, shape, |_, from, to| {
            there &= stored.holds(from, to.saturating_sub(from));
        });
        there
    }

    /// The first byte of a flat slice that lies with its fill in one that is stored.
    fn stretch(&self, entry: &ResliceEntry) -> Option<u64> {
        let Content::Flat { parts } = &entry.slice.content else {
            return None;
        };
        let component = self.components.get(entry.component)?;
        component.stretch(&entry.slice, parts)
    }

    fn not_stored(&self, entry: &ResliceEntry, tensor: u32, convert: &str) -> Error {
        let component = self.components.get(entry.component);
        let tensor = component.and_then(|component| component.tensors.get_ref(tensor));
        Error::NotStored {
            path: self.label.clone(),
            tensor: tensor.map_or_else(String::new, |tensor| tensor.name().to_owned()),
            kind: if entry.slice.kind == SliceKind::Value {
                ""
            } else {
                " (master copy)"
            },
            convert: convert.to_owned(),
        }
    }

    /// Visits the pieces of a slice in the order of its bytes; the error is a tensor that is not there.
    fn visit(
        &self,
        finder: &mut Finder,
        entry: &ResliceEntry,
        visit: &mut dyn FnMut(Piece) -> ControlFlow<()>,
    ) -> Result<(), u32> {
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
                    let number = entry.component;
                    let mut kind = entry.slice.kind;
                    if kind == SliceKind::Master {
                        let stored = finder.find(number, component, tensor, kind);
                        if !stored.is_some_and(|stored| {
                            stored.dtype() == dtype && stored.holds(start, len)
                        }) {
                            // A master copy is made from the value.
                            kind = SliceKind::Value;
                        }
                    }
                    let cast = kind != entry.slice.kind;
                    let stored = finder.find(number, component, tensor, kind);
                    let found = stored.and_then(|stored| {
                        let from = stored.dtype();
                        let as_is = from == dtype;
                        let widened = cast && dtype == DType::F32 && widen::width(from).is_some();
                        if !as_is && !widened {
                            return None;
                        }
                        stored.visit(start, len, &mut |at, len| {
                            visit(if as_is {
                                Piece::Bytes { at, len }
                            } else {
                                Piece::Cast { at, len, from }
                            })
                        })
                    });
                    found.unwrap_or_else(|| {
                        outcome = Err(tensor);
                        ControlFlow::Break(())
                    })
                }
            },
        );
        outcome?;
        fits.ok_or_else(|| entry.slice.tensors().next().unwrap_or(u32::MAX))
    }

    /// What this costs.
    #[must_use]
    pub fn explain(&self) -> &Explanation {
        &self.explanation
    }

    fn convert(&self) -> &str {
        self.explanation.convert.as_deref().unwrap_or_default()
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

/// Whether a stored slice is for the same values as one that is wanted; their content is not looked at.
fn is_same(wanted: &Slice, stored: &SliceRef<'_>) -> bool {
    wanted.kind == stored.kind
        && wanted.dtype == stored.dtype
        && wanted.shape.iter().copied().eq(stored.shape.iter())
}

/// The only tensor of a slice.
fn tensor_of(slice: &Slice) -> Option<u32> {
    match &slice.content {
        Content::Whole { tensor } | Content::Boxes { tensor, .. } => Some(*tensor),
        Content::Flat { parts } => {
            let mut tensors = parts.iter().filter_map(|part| match part {
                FlatPart::Range { tensor, .. } => Some(*tensor),
                FlatPart::Fill { .. } => None,
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
