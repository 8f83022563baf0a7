//! What one rank holds: its slices, found by name.

mod entry;

use std::sync::{Arc, OnceLock};

use wpack_format::{Extent, SliceKind, SliceTable, TensorTable};

pub(crate) use self::entry::stored_shape;
pub use self::entry::{Entry, FlatPiece};
use crate::{ByteSource, Error, Index};

/// The slices of one rank, without their bytes: the checked tables of its extents.
///
/// Made by [`Index::shard`] in time proportional to the rank's own tables, whatever the number of
/// ranks. Programs that have the pack's bytes in memory use [`crate::RankShard`].
#[derive(Debug)]
pub struct ShardIndex {
    rank: u32,
    extents: Vec<HeldExtent>,
    by_tensor: OnceLock<Vec<ByTensor>>,
}

/// An extent that the rank holds, with its tables.
#[derive(Debug)]
pub struct HeldExtent {
    /// Index of the extent in the pack.
    pub index: u32,
    /// Its row of the extent table.
    pub extent: Extent,
    /// Name of its component.
    pub component: Arc<str>,
    /// Its slices.
    pub slices: SliceTable,
    /// The tensors of its component.
    pub tensors: Arc<TensorTable>,
}

/// Where the tensors of one component are.
#[derive(Debug)]
struct ByTensor {
    component: u32,
    name: Arc<str>,
    tensors: Arc<TensorTable>,
    /// Per tensor: position among the held extents, and slice.
    at: Vec<Option<(u32, u32)>>,
}

/// Slice tables of together this many bytes are worth a second thread.
const LARGE: u64 = 1 << 20;

impl Index {
    /// The slices of a rank: reads and checks the tables of its extents.
    pub fn shard(
        &self,
        source: &(impl ByteSource + ?Sized),
        rank: u32,
    ) -> Result<ShardIndex, Error> {
        let held = self.extents_of(rank)?;
        let large = held.iter().filter_map(|index| self.extent(*index));
        let large = large.map(|extent| extent.slices.len).sum::<u64>() >= LARGE;
        let extents = std::thread::scope(|scope| {
            if large {
                // Tensor tables are read beside the slice tables. What goes wrong here goes wrong
                // again, and is reported, where the table is asked for.
                let held = &held;
                let _ = std::thread::Builder::new().spawn_scoped(scope, move || {
                    for extent in held.iter().filter_map(|index| self.extent(*index)) {
                        let _ = self.tensors(source, extent.component);
                    }
                });
            }
            held.iter()
                .map(|index| self.held(source, *index))
                .collect::<Result<_, _>>()
        })?;
        Ok(ShardIndex {
            rank,
            extents,
            by_tensor: OnceLock::new(),
        })
    }

    /// One extent with its tables, whoever holds it.
    pub fn held(
        &self,
        source: &(impl ByteSource + ?Sized),
        index: u32,
    ) -> Result<HeldExtent, Error> {
        let extent = self
            .extent(index)
            .ok_or_else(|| self.unknown_extent(index))?
            .clone();
        let slices = self.slices(source, &extent)?;
        let tensors = self.tensors(source, extent.component)?;
        slices.check_tensors(&*tensors).map_err(|e| self.wrap(e))?;
        let record = self.root().components.get(extent.component as usize);
        let component = record.map_or_else(|| "".into(), |record| record.name.as_str().into());
        Ok(HeldExtent {
            index,
            extent,
            component,
            slices,
            tensors,
        })
    }
}

impl ShardIndex {
    /// The rank.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The extents that it holds, in file order.
    #[must_use]
    pub fn extents(&self) -> &[HeldExtent] {
        &self.extents
    }

    /// Number of slices.
    #[must_use]
    pub fn len(&self) -> usize {
        self.extents.iter().map(|held| held.slices.len()).sum()
    }

    /// True without slices.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of its extents.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.extents
            .iter()
            .fold(0, |bytes, held| bytes.saturating_add(held.extent.len))
    }

    /// All slices in file order.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        self.extents.iter().flat_map(|held| {
            (0..held.extent.slice_count).filter_map(move |slice| Entry::of(held, slice))
        })
    }

    /// The slice that holds the rank's part of a tensor and nothing else.
    ///
    /// The name may be any of the tensor's, ties included. Where several components have the name,
    /// [`ShardIndex::get_in`] tells them apart. A tensor that lies in a flat stream with others has
    /// no slice of its own: [`Entry::pieces`] of the stream finds it.
    pub fn get(&self, name: &str) -> Result<Entry<'_>, Error> {
        let mut found: Option<(&ByTensor, Entry<'_>)> = None;
        for component in self.by_tensor() {
            let Some(entry) = self.find(component, name) else {
                continue;
            };
            if let Some((other, _)) = found {
                return Err(Error::AmbiguousTensor {
                    name: name.to_owned(),
                    components: format!("{}, {}", other.name, component.name),
                });
            }
            found = Some((component, entry));
        }
        found
            .map(|(_, entry)| entry)
            .ok_or_else(|| self.unknown(name))
    }

    /// As [`ShardIndex::get`], of one component.
    pub fn get_in(&self, component: &str, name: &str) -> Result<Entry<'_>, Error> {
        let mut of_name = self.by_tensor().iter().filter(|by| *by.name == *component);
        of_name
            .find_map(|by| self.find(by, name))
            .ok_or_else(|| self.unknown(name))
    }

    fn find(&self, by: &ByTensor, name: &str) -> Option<Entry<'_>> {
        let tensor = by.tensors.find(name)?;
        let (held, slice) = (*by.at.get(tensor as usize)?)?;
        Entry::of(self.extents.get(held as usize)?, slice)
    }

    fn unknown(&self, name: &str) -> Error {
        Error::UnknownTensor {
            name: name.to_owned(),
            rank: self.rank,
        }
    }

    /// Made at the first look-up: programs that take every slice in order need no such table.
    fn by_tensor(&self) -> &[ByTensor] {
        self.by_tensor.get_or_init(|| {
            let mut all: Vec<ByTensor> = Vec::new();
            for (position, held) in (0_u32..).zip(&self.extents) {
                let component = held.extent.component;
                let known = all.iter().position(|by| by.component == component);
                let known = known.unwrap_or_else(|| {
                    all.push(ByTensor {
                        component,
                        name: Arc::clone(&held.component),
                        tensors: Arc::clone(&held.tensors),
                        at: vec![None; held.tensors.len()],
                    });
                    all.len() - 1
                });
                let Some(by) = all.get_mut(known) else {
                    continue;
                };
                for slice in 0..held.extent.slice_count {
                    let Some(entry) = Entry::of(held, slice) else {
                        continue;
                    };
                    if entry.kind() != SliceKind::Value {
                        continue;
                    }
                    let cell = entry
                        .tensor_index()
                        .and_then(|tensor| by.at.get_mut(tensor as usize));
                    if let Some(cell @ None) = cell {
                        *cell = Some((position, slice));
                    }
                }
            }
            all
        })
    }
}
