//! A component laid out: who holds which of its tensors, and where the slices lie.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use wpack_format::{DType, Owners, Slice, SliceKind, place_slice};

use crate::draft::Placed;
use crate::index::{index, index32};
use crate::mesh::Mesh;
use crate::placement::{Placement, texts};
use crate::slicing::Cut;
use crate::stream::Stream;
use crate::{ComponentSpec, Decision, Error, Fault, PlannedExtent};

/// A component and where its tensors lie.
#[derive(Clone, Debug)]
pub(crate) struct Component {
    name: String,
    pub(crate) layout: String,
    lists: Vec<Vec<Placement>>,
    streams: Vec<Stream>,
    classes: Vec<Class>,
    /// What there are slices of, in file order.
    entries: Vec<Entry>,
    pub(crate) decisions: Vec<Decision>,
}

/// What the slices of an extent come to.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    len: u64,
    bytes: u64,
    slice_count: u32,
}

/// A tensor or a flat group, and its class.
#[derive(Clone, Copy, Debug)]
struct Entry {
    class: u32,
    /// The tensor; for a flat group a tensor of it.
    tensor: u32,
    stream: Option<u32>,
}

/// Tensors that lie alike: what a slice's size depends on.
#[derive(Clone, Debug)]
struct Class {
    list: u32,
    dtype: DType,
    shape: Vec<u64>,
    /// A name to speak of.
    example: String,
}

impl Component {
    pub(crate) fn new(
        spec: &ComponentSpec,
        layout: &str,
        placed: Placed,
        decisions: Vec<Decision>,
    ) -> Self {
        let mut classes = Vec::new();
        let mut known: HashMap<(u32, DType, &[u64]), u32> = HashMap::new();
        // A flat group of values stands where its first tensor would; groups of masters stand behind all.
        let mut group_of: HashMap<u32, Option<u32>> = HashMap::new();
        let mut masters = Vec::new();
        let mut class = |list, dtype, shape: &[u64], example: &str| {
            classes.push(Class {
                list,
                dtype,
                shape: shape.to_vec(),
                example: example.to_owned(),
            });
            index32(classes.len() - 1)
        };
        let name = |tensor: u32| {
            spec.tensors
                .get(index(tensor))
                .and_then(|spec| spec.names.first())
                .map_or("", |name| name)
        };
        let mut group_entries = Vec::new();
        for (at, group) in placed.streams.iter().enumerate() {
            let Some(&tensor) = group.members.iter().min() else {
                continue;
            };
            let class = class(
                group.list,
                group.stream.dtype,
                &[group.stream.len()],
                name(tensor),
            );
            let entry = Entry {
                class,
                tensor,
                stream: Some(index32(at)),
            };
            if group.stream.kind == SliceKind::Master {
                masters.push(entry);
                continue;
            }
            group_of.extend(group.members.iter().map(|&member| (member, None)));
            group_of.insert(tensor, Some(index32(group_entries.len())));
            group_entries.push(entry);
        }
        let mut entries = Vec::with_capacity(spec.tensors.len());
        for (at, (tensor, &list)) in spec.tensors.iter().zip(&placed.list_of).enumerate() {
            let at = index32(at);
            match group_of.get(&at) {
                Some(None) => {}
                Some(Some(group)) => entries.extend(group_entries.get(index(*group))),
                None => {
                    let class = *known
                        .entry((list, tensor.dtype, &tensor.shape))
                        .or_insert_with(|| class(list, tensor.dtype, &tensor.shape, name(at)));
                    entries.push(Entry {
                        class,
                        tensor: at,
                        stream: None,
                    });
                }
            }
        }
        entries.extend(masters);
        Self {
            name: spec.name.clone(),
            layout: layout.to_owned(),
            lists: placed.lists,
            streams: placed
                .streams
                .into_iter()
                .map(|group| group.stream)
                .collect(),
            classes,
            entries,
            decisions,
        }
    }

    /// Groups tensors by who holds them, and places each group's slices.
    pub(crate) fn extents(
        &self,
        component: u32,
        mesh: Option<&Mesh>,
    ) -> Result<Vec<PlannedExtent>, Error> {
        if self.entries.is_empty() {
            return Ok(Vec::new());
        }
        let mut used: Vec<u32> = self.classes.iter().map(|class| class.list).collect();
        used.sort_unstable();
        used.dedup();
        let mut groups: BTreeMap<Owners, (u32, Vec<u32>)> = BTreeMap::new();
        for list in used {
            let placements = self.lists.get(index(list)).map_or(&[][..], Vec::as_slice);
            for (owners, witness) in holders(placements, mesh) {
                groups
                    .entry(owners)
                    .or_insert_with(|| (witness, Vec::new()))
                    .1
                    .push(list);
            }
        }
        // Neighbours mostly hold slices of the same sizes; those need not be summed up again.
        let mut before: Option<(Vec<Option<u64>>, Sums)> = None;
        let mut extents = Vec::with_capacity(groups.len());
        for (owners, (witness, lists)) in groups {
            let sizes = self.sizes(witness, &lists, mesh)?;
            let sums = match &before {
                Some((known, sums)) if *known == sizes => *sums,
                _ => self.sums(&sizes)?,
            };
            before = Some((sizes, sums));
            let Sums {
                len,
                bytes,
                slice_count,
            } = sums;
            extents.push(PlannedExtent {
                component,
                owners,
                len,
                bytes,
                slice_count,
                witness,
                lists,
            });
        }
        extents.sort_by_cached_key(|extent| {
            (
                Reverse(extent.owners.count(u32::MAX)),
                extent.owners.clone(),
            )
        });
        Ok(extents)
    }

    /// Bytes that a rank holds of a tensor of each class; none where it holds nothing in these lists.
    fn sizes(
        &self,
        rank: u32,
        lists: &[u32],
        mesh: Option<&Mesh>,
    ) -> Result<Vec<Option<u64>>, Error> {
        let coords = mesh.and_then(|mesh| mesh.coords(rank)).unwrap_or_default();
        let size = |class: &Class| {
            if lists.binary_search(&class.list).is_err() {
                return Ok(None);
            }
            match self.cut(class, mesh, &coords).bytes(rank) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(why) => Err(self.cannot_cut(class, mesh, why)),
            }
        };
        self.classes.iter().map(size).collect()
    }

    /// What slices of these sizes, by class, come to.
    fn sums(&self, sizes: &[Option<u64>]) -> Result<Sums, Error> {
        let mut sums = Sums::default();
        for entry in &self.entries {
            let Some(bytes) = sizes.get(index(entry.class)).copied().flatten() else {
                continue;
            };
            let too_big = || Error::TotalSize {
                component: self.name.clone(),
            };
            let offset = place_slice(sums.len, bytes).ok_or_else(too_big)?;
            sums.len = offset.checked_add(bytes).ok_or_else(too_big)?;
            sums.bytes += bytes;
            sums.slice_count += 1;
        }
        Ok(sums)
    }

    /// The slices of an extent, in order.
    pub(crate) fn slices(
        &self,
        extent: &PlannedExtent,
        mesh: Option<&Mesh>,
    ) -> Result<Vec<Slice>, Error> {
        let coords = mesh
            .and_then(|mesh| mesh.coords(extent.witness))
            .unwrap_or_default();
        let mut slices = Vec::with_capacity(index(extent.slice_count));
        let mut end = 0;
        for entry in &self.entries {
            let Some(class) = self.classes.get(index(entry.class)) else {
                continue;
            };
            if extent.lists.binary_search(&class.list).is_err() {
                continue;
            }
            let cut = self.cut(class, mesh, &coords);
            let stream = entry.stream.and_then(|at| self.streams.get(index(at)));
            let made = cut
                .content(entry.tensor, stream)
                .and_then(|made| Ok((made, cut.bytes(extent.witness)?)));
            let ((content, shape), bytes) =
                made.map_err(|why| self.cannot_cut(class, mesh, why))?;
            let too_big = || Error::TotalSize {
                component: self.name.clone(),
            };
            let offset = place_slice(end, bytes).ok_or_else(too_big)?;
            end = offset.checked_add(bytes).ok_or_else(too_big)?;
            slices.push(Slice {
                content,
                kind: stream.map_or(SliceKind::Value, |stream| stream.kind),
                dtype: class.dtype,
                shape,
                offset,
                crc32c: None,
            });
        }
        Ok(slices)
    }

    fn cut<'a>(&'a self, class: &'a Class, mesh: Option<&'a Mesh>, coords: &'a [u32]) -> Cut<'a> {
        let placements = self
            .lists
            .get(index(class.list))
            .map_or(&[][..], Vec::as_slice);
        Cut {
            dtype: class.dtype,
            shape: &class.shape,
            placements,
            mesh,
            coords,
        }
    }

    fn cannot_cut(&self, class: &Class, mesh: Option<&Mesh>, why: Fault) -> Error {
        let placements = self
            .lists
            .get(index(class.list))
            .map_or(&[][..], Vec::as_slice);
        Error::CannotCut {
            component: self.name.clone(),
            tensor: class.example.clone(),
            shape: class.shape.clone(),
            dtype: class.dtype,
            rule: texts(placements, mesh).join("; "),
            why,
        }
    }
}

/// Who holds the same bytes of a tensor so placed, and the lowest rank of each set.
fn holders(placements: &[Placement], mesh: Option<&Mesh>) -> Vec<(Owners, u32)> {
    let Some(mesh) = mesh else {
        return vec![(Owners::All, 0)];
    };
    let mut groups: BTreeMap<Vec<u64>, Vec<u32>> = BTreeMap::new();
    for rank in 0..mesh.ranks() {
        let coords = mesh.coords(rank).unwrap_or_default();
        let group = placements
            .iter()
            .map(|step| step.group(mesh, &coords))
            .collect();
        if let Some(group) = group {
            groups.entry(group).or_default().push(rank);
        }
    }
    groups
        .values()
        .filter_map(|ranks| Some((Owners::from_ranks(ranks.iter().copied())?, *ranks.first()?)))
        .collect()
}
