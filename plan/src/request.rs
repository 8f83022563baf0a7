//! What is asked of a plan.

use std::collections::BTreeMap;

use crate::layouts::{self, Layout};
use crate::{Error, Inventory, Mesh, Options};

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
    /// What layouts must know of the model.
    pub options: Options,
    /// Whether patterns that no tensor falls under are let be. They are an error where somebody just
    /// wrote them; those of a pack that is cut again may be of use to its own layout alone.
    pub unused_patterns: bool,
}

/// The layouts of every component, and the mesh if one of them needs it.
pub(crate) struct Resolved {
    pub(crate) layouts: Vec<ComponentLayout>,
    pub(crate) mesh: Option<Mesh>,
}

/// The layout of one component.
pub(crate) struct ComponentLayout {
    pub(crate) text: String,
    pub(crate) parts: Vec<&'static Layout>,
    /// The axis it cuts over; none where every rank holds all of it.
    pub(crate) axis: Option<String>,
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
        layouts::find(&self.layout)?;
        let layouts = self.component_layouts.values();
        layouts
            .map(|layout| layouts::find(layout))
            .collect::<Result<Vec<_>, _>>()?;
        let named = self.component_layouts.keys();
        for component in named.chain(self.options.components.keys()) {
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
        let layouts: Vec<ComponentLayout> = inventory
            .components
            .iter()
            .map(|component| {
                let own = self.component_layouts.get(&component.name);
                let text = own.unwrap_or(&self.layout);
                let parts = layouts::find(text)?;
                let options = self.options.of(&component.name);
                let axis = parts.iter().find_map(|part| part.axis(options));
                let axis = axis.map(str::to_owned);
                Ok(ComponentLayout {
                    text: text.clone(),
                    parts,
                    axis,
                })
            })
            .collect::<Result<_, Error>>()?;
        let first = layouts
            .iter()
            .find_map(|layout| Some((&layout.text, layout.axis.as_deref()?)));
        let mesh = match (first, &self.mesh, self.ranks) {
            (None, ..) => None,
            (Some(_), Some(mesh), _) => Some(mesh.clone()),
            (Some((_, axis)), None, Some(ranks)) => Some(Mesh::line(axis, ranks)?),
            (Some((layout, axis)), None, None) => {
                return Err(Error::RanksMissing {
                    layout: layout.clone(),
                    axis: axis.to_owned(),
                });
            }
        };
        Ok(Resolved { layouts, mesh })
    }
}
