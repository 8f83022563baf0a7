//! The named grid of ranks.

use std::fmt;
use std::str::FromStr;

use wpack_format::MeshAxis;

use crate::{Error, axis_order};

/// The most ranks a plan takes.
pub const MAX_RANKS: u32 = 1 << 17;

/// A named grid of ranks: rank is the row-major index of its coordinates, the last axis varies
/// fastest.
///
/// ```
/// let mesh: wpack_plan::Mesh = "dp=2,fsdp=4".parse()?;
/// assert_eq!(mesh.ranks(), 8);
/// assert_eq!(mesh.coords(6), Some(vec![1, 2]));
/// # Ok::<(), wpack_plan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mesh {
    axes: Vec<MeshAxis>,
    ranks: u32,
}

impl Mesh {
    /// A mesh of named axes, at least one, none of size 0.
    pub fn new(axes: Vec<MeshAxis>) -> Result<Self, Error> {
        let text = display(&axes);
        let fail = |why: String| {
            Err(Error::MeshSyntax {
                text: text.clone(),
                why,
            })
        };
        if axes.is_empty() {
            return fail("it has no axis".into());
        }
        let mut ranks: u128 = 1;
        for (index, axis) in axes.iter().enumerate() {
            let mut letters = axis.name.chars();
            let starts = letters.next().is_some_and(|c| c.is_ascii_alphabetic());
            if !starts || !letters.all(|c| c.is_ascii_alphanumeric() || c == '_') {
                let name = &axis.name;
                return fail(format!(
                    "`{name}` is no axis name (letters, digits and `_`, a letter first)"
                ));
            }
            if axes.iter().take(index).any(|other| other.name == axis.name) {
                return fail(format!("axis `{}` stands twice", axis.name));
            }
            if axis.size == 0 {
                return fail(format!("axis `{}` has size 0", axis.name));
            }
            ranks = ranks.saturating_mul(u128::from(axis.size));
        }
        match u32::try_from(ranks) {
            Ok(count) if count <= MAX_RANKS => Ok(Self { axes, ranks: count }),
            _ => Err(Error::TooManyRanks {
                ranks,
                max: MAX_RANKS,
            }),
        }
    }

    /// A mesh of one axis.
    pub fn line(name: &str, ranks: u32) -> Result<Self, Error> {
        if ranks == 0 {
            return Err(Error::NoRanks);
        }
        Self::new(vec![MeshAxis {
            name: name.to_owned(),
            size: ranks,
        }])
    }

    /// Reads `name=size,name=size`. Behind `project:` the axes may come in any order and are put into
    /// that of the project: `megatron:tp=2,pp=4` is `pp=4,tp=2`. Projects are transformers, accelerate,
    /// megatron, vllm, deepspeed and xdit.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let fail = |why: String| Error::MeshSyntax {
            text: text.to_owned(),
            why,
        };
        let (project, list) = match text.split_once(':') {
            Some((project, list)) => (Some(project.trim()), list),
            None => (None, text),
        };
        let mut axes = Vec::new();
        for part in list.split(',') {
            let part = part.trim();
            let Some((name, size)) = part.split_once('=') else {
                return Err(fail(format!("`{part}` is not name=size")));
            };
            let size = size
                .trim()
                .parse::<u32>()
                .map_err(|_| fail(format!("`{}` is no number of ranks", size.trim())))?;
            axes.push(MeshAxis {
                name: name.trim().to_owned(),
                size,
            });
        }
        if let Some(project) = project {
            axis_order::sort(project, &mut axes).map_err(fail)?;
        }
        Self::new(axes)
    }

    /// The axes, the last varies fastest.
    #[must_use]
    pub fn axes(&self) -> &[MeshAxis] {
        &self.axes
    }

    /// The number of ranks.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The coordinates of a rank, one per axis; none if the mesh has no such rank.
    #[must_use]
    pub fn coords(&self, rank: u32) -> Option<Vec<u32>> {
        if rank >= self.ranks {
            return None;
        }
        let mut rest = rank;
        let mut coords: Vec<u32> = self
            .axes
            .iter()
            .rev()
            .map(|axis| {
                let at = rest % axis.size;
                rest /= axis.size;
                at
            })
            .collect();
        coords.reverse();
        Some(coords)
    }

    /// The index of an axis.
    #[must_use]
    pub fn axis(&self, name: &str) -> Option<usize> {
        self.axes.iter().position(|axis| axis.name == name)
    }
}

impl FromStr for Mesh {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&display(&self.axes))
    }
}

fn display(axes: &[MeshAxis]) -> String {
    let parts: Vec<String> = axes
        .iter()
        .map(|axis| format!("{}={}", axis.name, axis.size))
        .collect();
    parts.join(",")
}

/// Some axes of a mesh taken as one, the last varies fastest: what a placement cuts over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Axes(Vec<usize>);

impl Axes {
    /// The axes of these indices; indices the mesh does not have count as size 1.
    pub(crate) fn new(indices: Vec<usize>) -> Self {
        Self(indices)
    }

    /// Whether the mesh's axis of this index is one of them.
    pub(crate) fn has(&self, axis: usize) -> bool {
        self.0.contains(&axis)
    }

    /// Ranks along them together.
    pub(crate) fn size(&self, mesh: &Mesh) -> u64 {
        self.sizes(mesh).map(u64::from).product()
    }

    /// Where the coordinates of a rank lie along them.
    pub(crate) fn at(&self, mesh: &Mesh, coords: &[u32]) -> u64 {
        self.0
            .iter()
            .zip(self.sizes(mesh))
            .fold(0, |at, (&axis, size)| {
                at * u64::from(size) + u64::from(coords.get(axis).copied().unwrap_or(0))
            })
    }

    /// Their names, as placements print them.
    pub(crate) fn name(&self, mesh: &Mesh) -> String {
        let names: Vec<&str> = self
            .0
            .iter()
            .filter_map(|&axis| mesh.axes.get(axis))
            .map(|a| a.name.as_str())
            .collect();
        names.join("*")
    }

    fn sizes<'m>(&'m self, mesh: &'m Mesh) -> impl Iterator<Item = u32> + 'm {
        self.0
            .iter()
            .map(|&axis| mesh.axes.get(axis).map_or(1, |a| a.size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_axis_varies_fastest() {
        let mesh = Mesh::parse(" dp=2, fsdp=3 ").unwrap();
        assert_eq!(mesh.ranks(), 6);
        assert_eq!(mesh.to_string(), "dp=2,fsdp=3");
        let all: Vec<_> = (0..6).map(|rank| mesh.coords(rank).unwrap()).collect();
        assert_eq!(all, [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]);
        assert_eq!(mesh.coords(6), None);
        let both = Axes::new(vec![1, 0]);
        assert_eq!(both.size(&mesh), 6);
        assert_eq!(both.at(&mesh, &[1, 2]), 5);
        assert_eq!(both.at(&mesh, &[1, 0]), 1);
        assert_eq!(both.name(&mesh), "fsdp*dp");
    }

    #[test]
    fn refuses_what_is_no_mesh() {
        for text in [
            "",
            "dp",
            "dp=",
            "dp=0",
            "dp=-1",
            "dp=2,dp=2",
            "=2",
            "2=2",
            "d p=2",
            "dp=5000000000",
        ] {
            let error = Mesh::parse(text).unwrap_err();
            assert_eq!(error.code(), "mesh-syntax", "{text}: {error}");
            assert!(error.hint().is_some());
        }
        for text in [
            "dp=4294967295",
            "a=65536,b=65536,c=65536,d=65536,e=65536,f=65536,g=65536,h=65536,i=65536",
        ] {
            assert_eq!(
                Mesh::parse(text).unwrap_err().code(),
                "too-many-ranks",
                "{text}"
            );
        }
        assert_eq!(Mesh::line("dp", 0).unwrap_err(), Error::NoRanks);
    }
}
