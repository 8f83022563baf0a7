//! A component laid out: who holds which of its tensors, and where the slices lie.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};

use wpack_format::{DType, Owners, Slice, SliceKind, place_slice};

use crate::draft::Placed;
use crate::index::{index, index32};
use crate::mesh::Mesh;
use crate::placement::{Placement, Spread, texts};
use crate::slicing::Cut;
use crate::stream::Stream;
use crate::{ComponentSpec, Decision, Error, Fault, PlannedExtent};

/// How many lists of sizes are remembered with their sums.
const KNOWN_SIZES: usize = 16;

/// A component and where its tensors lie.
#[derive(Clone, Debug)]
pub(crate) struct Component {
    name: String,
    pub(crate) layout: String,
    lists: Vec<Vec<Placement>>,
    streams: Vec<Stream>,
    classes: Vec<Class>,
    /// Ways of spreading over the ranks.
    spreads: Vec<Spreading>,
    /// What there are slices of, in file order.
    entries: Vec<Entry>,
    pub(crate) decisions: Vec<Decision>,
}

/// What the slices of an extent come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// Tensors and flat groups that lie alike: what a slice's size depends on.
#[derive(Clone, Debug)]
struct Class {
    /// The placements; of several lists that differ in the names of flat groups alone, the first.
    list: u32,
    /// Lists of one spread lie on the same sets of ranks.
    spread: u32,
    dtype: DType,
    shape: Vec<u64>,
    /// A name to speak of.
    example: String,
}

/// What lies on the same sets of ranks.
#[derive(Clone, Debug)]
struct Spreading {
    /// A list that spreads so.
    list: u32,
    /// Its classes.
    classes: Vec<u32>,
    /// Its entries, ascending.
    entries: Vec<u32>,
}

/// Which lists of placements come to the same. Flat groups are a list each, and there may be very many.
struct Alike {
    /// For each list, the first of the same sizes on every rank.
    forms: Vec<u32>,
    /// For each list, the number of its spread.
    spread_of: Vec<u32>,
    /// Each spread, still empty.
    spreads: Vec<Spreading>,
}

impl Alike {
    fn new(lists: &[Vec<Placement>], mesh: Option<&Mesh>) -> Self {
        let mut forms_known: HashMap<Vec<Placement>, u32> = HashMap::new();
        let mut spreads_known: HashMap<Vec<Spread<'_>>, u32> = HashMap::new();
        let (mut forms, mut spread_of, mut spreads) = (Vec::new(), Vec::new(), Vec::new());
        for (at, list) in lists.iter().enumerate() {
            let form = list.iter().map(Placement::unnamed).collect();
            forms.push(*forms_known.entry(form).or_insert(index32(at)));
            let spread = mesh.map_or_else(Vec::new, |mesh| {
                list.iter().map(|step| step.spread(mesh)).collect()
            });
            spread_of.push(*spreads_known.entry(spread).or_insert_with(|| {
                spreads.push(Spreading {
                    list: index32(at),
                    classes: Vec::new(),
                    entries: Vec::new(),
                });
                index32(spreads.len() - 1)
            }));
        }
        Self {
            forms,
            spread_of,
            spreads,
        }
    }

    fn form(&self, list: u32) -> u32 {
        self.forms.get(index(list)).copied().unwrap_or(list)
    }

    fn spread(&self, list: u32) -> u32 {
        self.spread_of.get(index(list)).copied().unwrap_or(0)
    }
}

impl Component {
    pub(crate) fn new(
        spec: &ComponentSpec,
        layout: &str,
        placed: Placed,
        decisions: Vec<Decision>,
        mesh: Option<&Mesh>,
    ) -> Self {
        let alike = Alike::new(&placed.lists, mesh);
        let mut classes: Vec<Class> = Vec::new();
        let mut known: HashMap<(u32, DType, Vec<u64>), u32> = HashMap::new();
        // A flat group of values stands where its first tensor would; groups of masters stand behind all.
        let mut group_of: HashMap<u32, Option<u32>> = HashMap::new();
        let mut masters = Vec::new();
        let mut class = |list: u32, dtype, shape: &[u64], example: &str| {
            let form = alike.form(list);
            *known
                .entry((form, dtype, shape.to_vec()))
                .or_insert_with(|| {
                    classes.push(Class {
                        list,
                        spread: alike.spread(list),
                        dtype,
                        shape: shape.to_vec(),
                        example: example.to_owned(),
                    });
                    index32(classes.len() - 1)
                })
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
                    let class = class(list, tensor.dtype, &tensor.shape, name(at));
                    entries.push(Entry {
                        class,
                        tensor: at,
                        stream: None,
                    });
                }
            }
        }
        entries.extend(masters);
        let mut spreads = alike.spreads;
        for (at, class) in classes.iter().enumerate() {
            if let Some(spread) = spreads.get_mut(index(class.spread)) {
                spread.classes.push(index32(at));
            }
        }
        for (at, entry) in entries.iter().enumerate() {
            let spread = classes.get(index(entry.class)).map(|class| class.spread);
            if let Some(spread) = spread.and_then(|spread| spreads.get_mut(index(spread))) {
                spread.entries.push(index32(at));
            }
        }
        Self {
            name: spec.name.clone(),
            layout: layout.to_owned(),
            spreads,
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
        let mut groups: BTreeMap<Owners, (u32, Vec<u32>)> = BTreeMap::new();
        for (at, spread) in self.spreads.iter().enumerate() {
            if spread.entries.is_empty() {
                continue;
            }
            for (owners, witness) in holders(self.placements(spread.list), mesh) {
                groups
                    .entry(owners)
                    .or_insert_with(|| (witness, Vec::new()))
                    .1
                    .push(index32(at));
            }
        }
        // Ranks mostly hold slices of the same few sizes; those need not be summed up again.
        let mut known: VecDeque<(Vec<(u32, u64)>, Sums)> = VecDeque::new();
        let mut extents = Vec::with_capacity(groups.len());
        for (owners, (witness, spreads)) in groups {
            let sizes = self.sizes(witness, &spreads, mesh)?;
            let sums = match known.iter().find(|(before, _)| *before == sizes) {
                Some((_, sums)) => *sums,
                None => {
                    let sums = self.sums(&spreads, &sizes)?;
                    known.truncate(KNOWN_SIZES - 1);
                    known.push_front((sizes, sums));
                    sums
                }
            };
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
                spreads,
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

    /// The classes of some spreads, and the bytes that a rank holds of a tensor of each.
    fn sizes(
        &self,
        rank: u32,
        spreads: &[u32],
        mesh: Option<&Mesh>,
    ) -> Result<Vec<(u32, u64)>, Error> {
        let coords = mesh.and_then(|mesh| mesh.coords(rank)).unwrap_or_default();
        let spreads = spreads.iter().filter_map(|&at| self.spreads.get(index(at)));
        let classes = spreads.flat_map(|spread| &spread.classes);
        let sizes = classes.filter_map(|&at| {
            let class = self.classes.get(index(at))?;
            Some(match self.cut(class, mesh, &coords).bytes(rank) {
                Ok(bytes) => Ok((at, bytes)),
                Err(why) => Err(self.cannot_cut(class, mesh, why)),
            })
        });
        sizes.collect()
    }

    /// What slices of some spreads, whose classes have these sizes, come to.
    fn sums(&self, spreads: &[u32], sizes: &[(u32, u64)]) -> Result<Sums, Error> {
        let mut size_of = vec![0; self.classes.len()];
        for &(class, bytes) in sizes {
            if let Some(size) = size_of.get_mut(index(class)) {
                *size = bytes;
            }
        }
        let mut sums = Sums::default();
        for entry in self.entries_of(spreads).iter() {
            let Some(entry) = self.entries.get(index(*entry)) else {
                continue;
            };
            let bytes = size_of.get(index(entry.class)).copied().unwrap_or(0);
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

    /// The entries of some spreads, ascending.
    fn entries_of(&self, spreads: &[u32]) -> Cow<'_, [u32]> {
        let mut lists = spreads.iter().filter_map(|&at| self.spreads.get(index(at)));
        let first = lists.next().map_or(&[][..], |spread| &spread.entries);
        let mut all = Cow::Borrowed(first);
        for spread in lists {
            all.to_mut().extend_from_slice(&spread.entries);
        }
        if let Cow::Owned(all) = &mut all {
            all.sort_unstable();
        }
        all
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
        for entry in self.entries_of(&extent.spreads).iter() {
            let entry = self.entries.get(index(*entry));
            let Some((entry, class)) =
                entry.and_then(|entry| Some((entry, self.classes.get(index(entry.class))?)))
            else {
                continue;
            };
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
        Cut {
            dtype: class.dtype,
            shape: &class.shape,
            placements: self.placements(class.list),
            mesh,
            coords,
        }
    }

    fn placements(&self, list: u32) -> &[Placement] {
        self.lists.get(index(list)).map_or(&[][..], Vec::as_slice)
    }

    fn cannot_cut(&self, class: &Class, mesh: Option<&Mesh>, why: Fault) -> Error {
        Error::CannotCut {
            component: self.name.clone(),
            tensor: class.example.clone(),
            shape: class.shape.clone(),
            dtype: class.dtype,
            rule: texts(self.placements(class.list), mesh).join("; "),
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
