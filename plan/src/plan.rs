//! The plan: who holds what, and where it lies in its extent.

use std::collections::BTreeMap;

use wpack_format::{Owners, ResolvedPlan, Role, Slice};

use crate::component::Component;
use crate::draft::{Draft, Placed};
use crate::index::{index, index32};
use crate::layouts;
use crate::mesh::Mesh;
use crate::roles::{self, Overrides};
use crate::rules::Rules;
use crate::{Error, Inventory, Request};

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
    pub(crate) witness: u32,
    /// The spreads whose tensors it holds, ascending.
    pub(crate) spreads: Vec<u32>,
}

/// What was decided on a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether layouts may cut it.
    pub role: Role,
    /// Index into [`ResolvedPlan::rules`].
    pub rule: u32,
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
    let mut noted: BTreeMap<(&'static str, String), bool> = BTreeMap::new();
    for (spec, layout) in inventory.components.iter().zip(&resolved.layouts) {
        let cut = layout.axis.is_some();
        let verdicts = overrides.decide(spec, cut)?;
        let mesh = resolved.mesh.as_ref().filter(|_| cut);
        let mut placed = match mesh {
            None => {
                if layout.parts.iter().any(|part| part.name == "rules") {
                    let options = request.options.of(&spec.name);
                    layouts::check_whole(spec, &layout.text, options, &verdicts)?;
                }
                Placed::whole(spec.tensors.len())
            }
            Some(mesh) => {
                let mut draft = Draft::new(
                    &layout.text,
                    mesh,
                    spec,
                    request.options.of(&spec.name),
                    &verdicts,
                );
                for part in &layout.parts {
                    (part.place)(&mut draft)?;
                }
                draft.finish()?
            }
        };
        for (option, pattern, used) in placed.noted.drain(..) {
            *noted.entry((option, pattern)).or_default() |= used;
        }
        let decisions = rules.decide(spec, &layout.text, &verdicts, &placed, mesh);
        let component = Component::new(spec, &layout.text, placed, decisions, mesh);
        let index = index32(components.len());
        extents.extend(component.extents(index, mesh)?);
        components.push(component);
    }
    if !request.unused_patterns {
        overrides.check_used(resolved.layouts.iter().any(|layout| layout.axis.is_some()))?;
        // A pattern may speak of one component and not of another.
        if let Some(((option, pattern), _)) = noted.into_iter().find(|(_, used)| !used) {
            return Err(Error::PatternUnused {
                option,
                pattern,
                of: "of the components that it is for".into(),
            });
        }
    }
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
        let holds = move |extent: &PlannedExtent| extent.owners.contains(rank);
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
        let world = self.ranks().unwrap_or(0);
        let mut sums = vec![0; index(world)];
        for extent in &self.extents {
            for rank in extent.owners.ranks(world) {
                if let Some(sum) = sums.get_mut(index(rank)) {
                    *sum += extent.bytes;
                }
            }
        }
        sums
    }
}
