//! How a tensor lies on axes of the mesh.

use crate::mesh::{Axes, Mesh};
use crate::rule::Rule;

/// One step of laying a tensor out. Steps act in the order of their list, each on what the one before
/// left; an axis that no step names holds the same at every coordinate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Placement {
    /// A dimension is cut over the axes.
    Shard {
        /// Over which axes.
        axes: Axes,
        /// The dimension.
        dim: u32,
        /// How.
        rule: Rule,
    },
    /// The flattened tensor, or the flat group it belongs to, is cut into equal parts of
    /// `ceil(n / ranks)`, the tail filled with zeros.
    FlatShard {
        /// Over which axes.
        axes: Axes,
        /// The group in words; none for a tensor alone.
        group: Option<String>,
    },
    /// Some coordinates hold all, the others nothing.
    Owned {
        /// On which axes.
        axes: Axes,
        /// The coordinates.
        at: Vec<u64>,
    },
}

/// What decides which coordinates hold the same, whatever they hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Spread<'p> {
    /// Runs of so many coordinates hold the same.
    Cut(&'p Axes, u64),
    /// These coordinates hold the same, the others nothing.
    Owned(&'p Axes, &'p [u64]),
}

impl Placement {
    /// The axes it lies on.
    pub(crate) fn axes(&self) -> &Axes {
        match self {
            Self::Shard { axes, .. } | Self::FlatShard { axes, .. } | Self::Owned { axes, .. } => {
                axes
            }
        }
    }

    /// A number per coordinate, equal exactly where the coordinates hold the same bytes; none where
    /// they hold nothing of the tensor.
    pub(crate) fn group(&self, mesh: &Mesh, coords: &[u32]) -> Option<u64> {
        let here = self.axes().at(mesh, coords);
        match self.spread(mesh) {
            Spread::Cut(_, replicas) => Some(here / replicas),
            Spread::Owned(_, at) => at.contains(&here).then_some(0),
        }
    }

    /// What [`Placement::group`] depends on.
    pub(crate) fn spread(&self, mesh: &Mesh) -> Spread<'_> {
        match self {
            Self::Shard { axes, rule, .. } => Spread::Cut(axes, rule.replicas(axes.size(mesh))),
            Self::FlatShard { axes, .. } => Spread::Cut(axes, 1),
            Self::Owned { axes, at } => Spread::Owned(axes, at),
        }
    }

    /// The same for any flat group: what the size of a part depends on.
    pub(crate) fn unnamed(&self) -> Self {
        match self {
            Self::FlatShard { axes, .. } => Self::FlatShard {
                axes: axes.clone(),
                group: None,
            },
            other => other.clone(),
        }
    }

    /// The text that the resolved plan keeps.
    pub(crate) fn text(&self, mesh: &Mesh) -> String {
        let axes = self.axes().name(mesh);
        match self {
            Self::Shard { dim, rule, .. } => format!("{axes}: Shard({dim}, {rule})"),
            Self::FlatShard { group: None, .. } => format!("{axes}: FlatShard(fill 0)"),
            Self::FlatShard {
                group: Some(group), ..
            } => format!("{axes}: FlatShard({group})"),
            Self::Owned { at, .. } => {
                let at: Vec<String> = at.iter().map(u64::to_string).collect();
                format!("{axes}: Owned({})", at.join(", "))
            }
        }
    }
}

/// The texts of a list; one that cuts nothing says so.
pub(crate) fn texts(placements: &[Placement], mesh: Option<&Mesh>) -> Vec<String> {
    match mesh {
        Some(mesh) if !placements.is_empty() => placements
            .iter()
            .map(|placement| placement.text(mesh))
            .collect(),
        _ => vec!["Replicate".to_owned()],
    }
}
