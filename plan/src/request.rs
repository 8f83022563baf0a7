//! What is asked of a plan.

use std::collections::BTreeMap;

use crate::layouts::{self, Layout};
use crate::{Error, Inventory, Mesh};

/// How tensors are to be laid out over how many ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The grid of ranks.
    pub mesh: Option<Mesh>,
    /// The number of ranks, where no mesh is given; must agree with it where one is.
    pub ranks: Option<u32>,
    /// The layout of every component that has none of its own.
    pub layout: String,
    /// Layouts by component.
    pub component_layouts: BTreeMap<String, String>,
    /// Globs of tensor names that are kept whole on every rank.
    pub replicate: Vec<String>,
    /// Globs of tensor names that are cut though a checkpoint does not show them to be parameters.
    pub shard: Vec<String>,
}

/// The layouts of every component, and the mesh if one of them needs it.
pub(crate) struct Resolved {
    pub(crate) layouts: Vec<(String, Vec<&'static Layout>)>,
    pub(crate) mesh: Option<Mesh>,
}

impl Request {
    pub(crate) fn resolve(&self, inventory: &Inventory) -> Result<Resolved, Error> {
        if self.ranks == Some(0) {
            return Err(Error::NoRanks);
        }
        if let (Some(mesh), Some(ranks)) = (&self.mesh, self.ranks)
            && mesh.ranks() != ranks
        {
            return Err(Error::RanksDisagree {
                mesh: mesh.to_string(),
                found: mesh.ranks(),
                expected: ranks,
            });
        }
        let default = layouts::find(&self.layout)?;
        for (component, layout) in &self.component_layouts {
            layouts::find(layout)?;
            if !inventory
                .components
                .iter()
                .any(|known| known.name == *component)
            {
                return Err(Error::UnknownComponent {
                    component: component.clone(),
                    known: inventory
                        .components
                        .iter()
                        .map(|known| known.name.clone())
                        .collect(),
                });
            }
        }
        let layouts = inventory
            .components
            .iter()
            .map(
                |component| match self.component_layouts.get(&component.name) {
                    Some(layout) => Ok((layout.clone(), layouts::find(layout)?)),
                    None => Ok((self.layout.clone(), default.clone())),
                },
            )
            .collect::<Result<Vec<_>, Error>>()?;
        // The pack's own layout names the axis, else the first component's that cuts.
        let own = (self.layout.clone(), default);
        let used = |layout: &&(String, Vec<&'static Layout>)| {
            layouts.iter().any(|(name, _)| *name == layout.0)
        };
        let axis = std::iter::once(&own)
            .filter(used)
            .chain(&layouts)
            .find_map(|(name, parts)| {
                parts
                    .iter()
                    .find_map(|part| part.axis)
                    .map(|axis| (name, axis))
            });
        let mesh = match (axis, &self.mesh, self.ranks) {
            (None, ..) => None,
            (Some(_), Some(mesh), _) => Some(mesh.clone()),
            (Some((_, axis)), None, Some(ranks)) => Some(Mesh::line(axis, ranks)?),
            (Some((layout, axis)), None, None) => {
                return Err(Error::RanksMissing {
                    layout: layout.clone(),
                    axis,
                });
            }
        };
        Ok(Resolved { layouts, mesh })
    }
}

/// Whether any of the layouts cuts.
pub(crate) fn cuts(layouts: &[&'static Layout]) -> bool {
    layouts.iter().any(|layout| layout.axis.is_some())
}
