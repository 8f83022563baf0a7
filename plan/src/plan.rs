//! The plan: who holds what, and where it lies in its extent.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use wpack_format::{DType, Owners, ResolvedPlan, ResolvedRule, Role, Slice, SliceKind, spec};

use crate::draft::{Draft, Placed};
use crate::mesh::Mesh;
use crate::placement::Placement;
use crate::request::cuts;
use crate::roles::{self, Overrides, Verdict};
use crate::slicing::Cut;
use crate::{ComponentSpec, Error, Inventory, Request, owners};

/// The most slices, tensors times ranks, that a plan takes.
pub const MAX_SLICES: u64 = 1 << 30;

/// The complete assignment of tensors to ranks.
///
/// It holds a few numbers per tensor and per extent; slices are made when asked for, so that a plan of
/// a thousand ranks takes no more memory than its inventory.
#[derive(Clone, Debug)]
pub struct Plan {
    mesh: Option<Mesh>,
    layout: String,
    resolved: ResolvedPlan,
    components: Vec<Component>,
    extents: Vec<PlannedExtent>,
}

/// A byte range of the pack that a set of ranks holds in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedExtent {
    /// Index of the component.
    pub component: u32,
    /// Who holds it.
    pub owners: Owners,
    /// Bytes, the alignment padding between slices included.
    pub len: u64,
    /// Bytes of its slices, fill included.
    pub bytes: u64,
    /// Number of slices.
    pub slice_count: u32,
    /// A rank among the owners, all of which hold the same.
    witness: u32,
    /// The lists of placements whose tensors it holds, ascending.
    lists: Vec<u32>,
}

/// What was decided on a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether layouts may cut it.
    pub role: Role,
    /// Index into [`ResolvedPlan::rules`].
    pub rule: u32,
}

#[derive(Clone, Debug)]
struct Component {
    name: String,
    layout: String,
    lists: Vec<Vec<Placement>>,
    classes: Vec<Class>,
    class_of: Vec<u32>,
    decisions: Vec<Decision>,
}

/// What the slices of an extent come to.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    len: u64,
    bytes: u64,
    slice_count: u32,
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

/// Lays an inventory out.
pub fn plan(inventory: &Inventory, request: &Request) -> Result<Plan, Error> {
    let resolved = request.resolve(inventory)?;
    roles::check(inventory)?;
    check_scale(inventory, resolved.mesh.as_ref())?;
    let mut overrides = Overrides::new(&request.replicate, &request.shard)?;
    let mut rules = Rules::default();
    let mut components = Vec::new();
    let mut extents = Vec::new();
    for (spec, (layout, parts)) in inventory.components.iter().zip(&resolved.layouts) {
        let cut = cuts(parts);
        let verdicts = overrides.decide(spec, cut)?;
        let mesh = resolved.mesh.as_ref().filter(|_| cut);
        let placed = match mesh {
            None => Placed::whole(spec.tensors.len()),
            Some(mesh) => {
                let mut draft = Draft::new(layout, mesh, spec, &verdicts);
                for part in parts {
                    (part.place)(&mut draft)?;
                }
                draft.finish()?
            }
        };
        let decisions = rules.decide(spec, layout, &verdicts, &placed, mesh);
        let component = Component::new(spec, layout, placed, decisions);
        let index = index32(components.len());
        extents.extend(component.extents(index, mesh)?);
        components.push(component);
    }
    overrides.check_used(resolved.layouts.iter().any(|(_, parts)| cuts(parts)))?;
    let total = extents.iter().try_fold(0u64, |total, extent| {
        total
            .checked_add(extent.len)
            .filter(|&total| i64::try_from(total).is_ok())
    });
    if total.is_none() {
        let component = inventory
            .components
            .last()
            .map(|spec| spec.name.clone())
            .unwrap_or_default();
        return Err(Error::TotalSize { component });
    }
    let bound = extents.iter().any(|extent| extent.owners != Owners::All);
    Ok(Plan {
        mesh: resolved.mesh.filter(|_| bound),
        layout: request.layout.clone(),
        resolved: ResolvedPlan {
            rules: rules.rows,
            replicate: request.replicate.clone(),
            shard: request.shard.clone(),
            align: None,
            file: None,
        },
        components,
        extents,
    })
}

fn check_scale(inventory: &Inventory, mesh: Option<&Mesh>) -> Result<(), Error> {
    let ranks = mesh.map_or(1, |mesh| u64::from(mesh.ranks()));
    let tensors: u64 = inventory
        .components
        .iter()
        .map(|spec| u64::try_from(spec.tensors.len()).unwrap_or(u64::MAX))
        .sum();
    let slices = u128::from(tensors) * u128::from(ranks);
    if slices > u128::from(MAX_SLICES) {
        return Err(Error::TooManySlices {
            tensors,
            ranks,
            slices,
            max: MAX_SLICES,
        });
    }
    Ok(())
}

impl Plan {
    /// The grid of ranks; none for a plan that fits any number of ranks.
    #[must_use]
    pub fn mesh(&self) -> Option<&Mesh> {
        self.mesh.as_ref()
    }

    /// The number of ranks; none for a plan that fits any number.
    #[must_use]
    pub fn ranks(&self) -> Option<u32> {
        self.mesh.as_ref().map(Mesh::ranks)
    }

    /// The layout of the pack.
    #[must_use]
    pub fn layout(&self) -> &str {
        &self.layout
    }

    /// The layout of a component.
    #[must_use]
    pub fn component_layout(&self, component: u32) -> Option<&str> {
        self.components
            .get(index(component))
            .map(|found| found.layout.as_str())
    }

    /// The plan in words; alignment and plan file are left for the writer to fill in.
    #[must_use]
    pub fn resolved(&self) -> &ResolvedPlan {
        &self.resolved
    }

    /// The extents in file order: by component, those of most owners first.
    #[must_use]
    pub fn extents(&self) -> &[PlannedExtent] {
        &self.extents
    }

    /// What was decided on a tensor, if the component has it.
    #[must_use]
    pub fn decision(&self, component: u32, tensor: u32) -> Option<Decision> {
        self.components
            .get(index(component))?
            .decisions
            .get(index(tensor))
            .copied()
    }

    /// The slices of an extent in the order of their offsets, without checksums.
    pub fn slices(&self, extent: usize) -> Result<Vec<Slice>, Error> {
        let none = || Error::NoExtent {
            index: extent,
            count: self.extents.len(),
        };
        let found = self.extents.get(extent).ok_or_else(none)?;
        let component = self
            .components
            .get(index(found.component))
            .ok_or_else(none)?;
        let mesh = self.mesh.as_ref().filter(|_| found.owners != Owners::All);
        component.slices(found, mesh)
    }

    /// The indices of the extents that a rank holds.
    pub fn extents_of(&self, rank: u32) -> impl Iterator<Item = usize> + '_ {
        let holds = move |extent: &PlannedExtent| owners::contains(&extent.owners, rank);
        self.extents
            .iter()
            .enumerate()
            .filter(move |(_, extent)| holds(extent))
            .map(|(at, _)| at)
    }

    /// Bytes of a rank's slices, fill included, alignment padding not.
    #[must_use]
    pub fn rank_bytes(&self, rank: u32) -> u64 {
        self.extents_of(rank)
            .filter_map(|at| self.extents.get(at))
            .map(|extent| extent.bytes)
            .sum()
    }

    /// [`Plan::rank_bytes`] of every rank, at once; empty for a plan that fits any number of ranks.
    #[must_use]
    pub fn bytes_by_rank(&self) -> Vec<u64> {
        let mut sums = vec![0; index(self.ranks().unwrap_or(0))];
        for extent in &self.extents {
            if extent.owners == Owners::All {
                sums.iter_mut().for_each(|sum| *sum += extent.bytes);
            }
            for rank in owners::ranks(&extent.owners) {
                if let Some(sum) = sums.get_mut(index(rank)) {
                    *sum += extent.bytes;
                }
            }
        }
        sums
    }
}

impl Component {
    fn new(spec: &ComponentSpec, layout: &str, placed: Placed, decisions: Vec<Decision>) -> Self {
        let mut known: HashMap<(u32, DType, &[u64]), u32> = HashMap::new();
        let mut classes = Vec::new();
        let class_of = spec
            .tensors
            .iter()
            .zip(&placed.list_of)
            .map(|(tensor, &list)| {
                *known
                    .entry((list, tensor.dtype, &tensor.shape))
                    .or_insert_with(|| {
                        classes.push(Class {
                            list,
                            dtype: tensor.dtype,
                            shape: tensor.shape.clone(),
                            example: tensor.names.first().cloned().unwrap_or_default(),
                        });
                        index32(classes.len() - 1)
                    })
            })
            .collect();
        Self {
            name: spec.name.clone(),
            layout: layout.to_owned(),
            lists: placed.lists,
            classes,
            class_of,
            decisions,
        }
    }

    /// Groups tensors by who holds them, and places each group's slices.
    fn extents(&self, component: u32, mesh: Option<&Mesh>) -> Result<Vec<PlannedExtent>, Error> {
        if self.class_of.is_empty() {
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
                Reverse(owners::count(&extent.owners).unwrap_or(u64::MAX)),
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
        for &class in &self.class_of {
            let Some(bytes) = sizes.get(index(class)).copied().flatten() else {
                continue;
            };
            let too_big = || Error::TotalSize {
                component: self.name.clone(),
            };
            let offset = place(sums.len, bytes).ok_or_else(too_big)?;
            sums.len = offset.checked_add(bytes).ok_or_else(too_big)?;
            sums.bytes += bytes;
            sums.slice_count += 1;
        }
        Ok(sums)
    }

    fn slices(&self, extent: &PlannedExtent, mesh: Option<&Mesh>) -> Result<Vec<Slice>, Error> {
        let coords = mesh
            .and_then(|mesh| mesh.coords(extent.witness))
            .unwrap_or_default();
        let mut slices = Vec::with_capacity(index(extent.slice_count));
        let mut end = 0;
        for (tensor, &class) in self.class_of.iter().enumerate() {
            let Some(class) = self.classes.get(index(class)) else {
                continue;
            };
            if extent.lists.binary_search(&class.list).is_err() {
                continue;
            }
            let cut = self.cut(class, mesh, &coords);
            let made = cut
                .content(index32(tensor))
                .and_then(|made| Ok((made, cut.bytes(extent.witness)?)));
            let ((content, shape), bytes) =
                made.map_err(|why| self.cannot_cut(class, mesh, why))?;
            let too_big = || Error::TotalSize {
                component: self.name.clone(),
            };
            let offset = place(end, bytes).ok_or_else(too_big)?;
            end = offset.checked_add(bytes).ok_or_else(too_big)?;
            slices.push(Slice {
                content,
                kind: SliceKind::Value,
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

    fn cannot_cut(&self, class: &Class, mesh: Option<&Mesh>, why: crate::Fault) -> Error {
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
        .filter_map(|ranks| Some((owners::from_ranks(ranks), *ranks.first()?)))
        .collect()
}

/// Where a slice of `bytes` lies behind the one that ends at `end`.
fn place(end: u64, bytes: u64) -> Option<u64> {
    let align = if bytes >= spec::SLICE_PAGE {
        spec::SLICE_PAGE
    } else {
        spec::SLICE_ALIGN
    };
    end.checked_next_multiple_of(align)
}

/// The rules that at least one tensor fell under.
#[derive(Default)]
struct Rules {
    rows: Vec<ResolvedRule>,
}

impl Rules {
    fn decide(
        &mut self,
        spec: &ComponentSpec,
        layout: &str,
        verdicts: &[Verdict],
        placed: &Placed,
        mesh: Option<&Mesh>,
    ) -> Vec<Decision> {
        let mut known: HashMap<(u32, &str), u32> = HashMap::new();
        verdicts
            .iter()
            .zip(&placed.list_of)
            .map(|(verdict, &list)| {
                let rule = *known.entry((list, &verdict.reason)).or_insert_with(|| {
                    let placements = placed.lists.get(index(list)).map_or(&[][..], Vec::as_slice);
                    self.rows.push(ResolvedRule {
                        component: spec.name.clone(),
                        placements: texts(placements, mesh),
                        reason: format!("{layout}: {}", verdict.reason),
                    });
                    index32(self.rows.len() - 1)
                });
                Decision {
                    role: verdict.role,
                    rule,
                }
            })
            .collect()
    }
}

fn texts(placements: &[Placement], mesh: Option<&Mesh>) -> Vec<String> {
    match mesh {
        Some(mesh) if !placements.is_empty() => placements
            .iter()
            .map(|placement| placement.text(mesh))
            .collect(),
        _ => vec!["Replicate".to_owned()],
    }
}

/// An index of the file as one of memory. A file's index is below the length of a list in memory.
fn index(at: u32) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

/// An index of memory as one of the file. [`MAX_SLICES`] bounds the number of tensors, and with it all
/// that is counted here.
fn index32(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
