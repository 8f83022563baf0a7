//! Parts that several reports have in common, and the sums in them.

use std::collections::BTreeMap;

use serde::Serialize;
use wpack_format::DType;

/// One axis of the mesh.
#[derive(Clone, Debug, Serialize)]
pub struct Axis {
    /// Name.
    pub name: String,
    /// Ranks along it.
    pub size: u32,
}

/// Tensors of one component, summed up.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tally {
    /// Tensors, each stored once.
    pub tensors: u64,
    /// Further names of the same tensors.
    pub ties: u64,
    /// Elements of all tensors.
    pub elements: u64,
    /// Bytes of all tensors.
    pub bytes: u64,
    /// The same by element type, the largest first.
    pub dtypes: Vec<DTypeTally>,
}

/// Tensors of one element type.
#[derive(Clone, Debug, Serialize)]
pub struct DTypeTally {
    /// Name of the type, as safetensors spells it.
    pub dtype: &'static str,
    /// Tensors.
    pub tensors: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Tally {
    /// Sums up tensors, each given by its number of names, its type and its shape.
    pub fn of<'a>(tensors: impl Iterator<Item = (usize, DType, &'a [u64])>) -> Self {
        let mut tally = Self::default();
        let mut dtypes: BTreeMap<DType, (u64, u64)> = BTreeMap::new();
        for (names, dtype, shape) in tensors {
            let elements = elements(shape);
            let bytes = dtype.bytes(elements).unwrap_or(u64::MAX);
            tally.tensors = tally.tensors.saturating_add(1);
            tally.ties = tally.ties.saturating_add(names.saturating_sub(1) as u64);
            tally.elements = tally.elements.saturating_add(elements);
            tally.bytes = tally.bytes.saturating_add(bytes);
            let of_type = dtypes.entry(dtype).or_default();
            of_type.0 = of_type.0.saturating_add(1);
            of_type.1 = of_type.1.saturating_add(bytes);
        }
        tally.dtypes = dtypes
            .into_iter()
            .map(|(dtype, (tensors, bytes))| DTypeTally {
                dtype: dtype.name(),
                tensors,
                bytes,
            })
            .collect();
        tally.dtypes.sort_by_key(|row| std::cmp::Reverse(row.bytes));
        tally
    }
}

/// Elements of a shape; more than 64 bits hold is as good as all of them.
#[must_use]
pub fn elements(shape: &[u64]) -> u64 {
    if shape.contains(&0) {
        return 0;
    }
    shape
        .iter()
        .fold(1, |product, &n| product.saturating_mul(n))
}

/// Who holds an extent.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Owners {
    /// `"all"`: every rank of any world size.
    All(&'static str),
    /// Runs of ranks.
    Ranks(Vec<RankRun>),
}

/// `count` ranks from `first`, `step` apart.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RankRun {
    /// The lowest.
    pub first: u32,
    /// How many.
    pub count: u32,
    /// Distance between two.
    pub step: u32,
}

impl From<&wpack_format::Owners> for Owners {
    fn from(owners: &wpack_format::Owners) -> Self {
        match owners {
            wpack_format::Owners::All => Self::All("all"),
            wpack_format::Owners::Ranks(runs) => Self::Ranks(
                runs.iter()
                    .map(|run| RankRun {
                        first: run.first,
                        count: run.count,
                        step: run.step,
                    })
                    .collect(),
            ),
        }
    }
}

impl Owners {
    /// For people: `all`, `3`, `0-3`, `0,2,4,6`, `0-30/2`.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::All(all) => (*all).to_owned(),
            Self::Ranks(runs) => {
                let mut parts = Vec::new();
                for run in runs {
                    let last = u64::from(run.first)
                        + u64::from(run.step) * u64::from(run.count.saturating_sub(1));
                    parts.push(match (run.count, run.step) {
                        (0 | 1, _) => run.first.to_string(),
                        (2, _) => format!("{},{last}", run.first),
                        (_, 1) => format!("{}-{last}", run.first),
                        (_, step) => format!("{}-{last}/{step}", run.first),
                    });
                }
                parts.join(",")
            }
        }
    }

    /// The ranks below `limit`; of every rank where the owners are all.
    fn ranks(&self, limit: u32) -> Box<dyn Iterator<Item = u32> + '_> {
        match self {
            Self::All(_) => Box::new(0..limit),
            Self::Ranks(runs) => Box::new(runs.iter().flat_map(move |run| {
                let step = usize::try_from(run.step.max(1)).unwrap_or(usize::MAX);
                let count = usize::try_from(run.count).unwrap_or(usize::MAX);
                (run.first..limit).step_by(step).take(count)
            })),
        }
    }

    fn number(&self, ranks: u32) -> u64 {
        match self {
            Self::All(_) => u64::from(ranks),
            Self::Ranks(runs) => runs.iter().map(|run| u64::from(run.count)).sum(),
        }
    }
}

/// An extent.
#[derive(Clone, Debug, Serialize)]
pub struct Extent {
    /// Its place in the extent table.
    pub index: u32,
    /// Component it belongs to.
    pub component: String,
    /// Who holds it.
    pub owners: Owners,
    /// First byte in the file; absent before a plan has placed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Bytes, without the padding behind.
    pub bytes: u64,
    /// Slices in it.
    pub slices: u32,
}

/// What one rank holds.
#[derive(Clone, Debug, Serialize)]
pub struct Rank {
    /// The rank.
    pub rank: u32,
    /// Bytes of its extents: what it reads, and what its device needs for weights.
    pub bytes: u64,
    /// Of those, bytes that another rank holds too.
    pub shared_bytes: u64,
    /// Its extents.
    pub extents: Vec<u32>,
}

/// Host memory of a node.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    /// Ranks on the node.
    pub ranks_per_node: u32,
    /// File pages that all ranks of the node keep together when they map the pack: the union of
    /// their extents, once. The largest node counts.
    pub mapped_bytes: u64,
    /// What as many private copies of the whole model take.
    pub private_copies_bytes: u64,
}

/// Who holds how much.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sharing {
    /// Bytes of all extents.
    pub extent_bytes: u64,
    /// Of those, bytes that every rank holds.
    pub every_rank_bytes: u64,
    /// Of those, bytes that several ranks hold, but not every one.
    pub some_ranks_bytes: u64,
    /// Of those, bytes that one rank holds alone.
    pub one_rank_bytes: u64,
    /// Rank by rank, the first 4096; empty for a pack that fits any number of ranks.
    pub ranks: Vec<Rank>,
    /// Host memory of a node, for some numbers of ranks on it.
    pub memory: Vec<Memory>,
}

/// Ranks that are listed one by one.
const LISTED_RANKS: u32 = 4096;

impl Sharing {
    /// Sums up extents for a mesh of `ranks` ranks, or for any number of them. `model_bytes` are all
    /// tensors, whole.
    #[must_use]
    pub fn of(extents: &[Extent], ranks: Option<u32>, model_bytes: u64) -> Self {
        let mut sharing = Self::default();
        let limit = ranks.unwrap_or(0).min(LISTED_RANKS);
        let mut rows: Vec<Rank> = (0..limit)
            .map(|rank| Rank {
                rank,
                bytes: 0,
                shared_bytes: 0,
                extents: Vec::new(),
            })
            .collect();
        for extent in extents {
            let number = match (&extent.owners, ranks) {
                (Owners::All(_), None) => u64::MAX,
                (owners, _) => owners.number(ranks.unwrap_or(u32::MAX)),
            };
            let alone = number <= 1;
            let every = number >= ranks.map_or(u64::MAX, u64::from);
            let sum = if every {
                &mut sharing.every_rank_bytes
            } else if alone {
                &mut sharing.one_rank_bytes
            } else {
                &mut sharing.some_ranks_bytes
            };
            *sum = sum.saturating_add(extent.bytes);
            sharing.extent_bytes = sharing.extent_bytes.saturating_add(extent.bytes);
            for rank in extent.owners.ranks(limit) {
                if let Some(row) = usize::try_from(rank)
                    .ok()
                    .and_then(|rank| rows.get_mut(rank))
                {
                    row.bytes = row.bytes.saturating_add(extent.bytes);
                    row.extents.push(extent.index);
                    if !alone {
                        row.shared_bytes = row.shared_bytes.saturating_add(extent.bytes);
                    }
                }
            }
        }
        sharing.ranks = rows;
        sharing.memory = node_sizes(ranks)
            .into_iter()
            .map(|k| Memory {
                ranks_per_node: k,
                mapped_bytes: sharing.largest_node(extents, k),
                private_copies_bytes: model_bytes.saturating_mul(u64::from(k)),
            })
            .collect();
        sharing
    }

    /// The union of extents of `k` consecutive ranks, for the node where it is largest.
    fn largest_node(&self, extents: &[Extent], k: u32) -> u64 {
        if self.ranks.is_empty() {
            return self.extent_bytes;
        }
        let node_len = usize::try_from(k).unwrap_or(usize::MAX).max(1);
        let mut largest = 0;
        for node in self.ranks.chunks(node_len) {
            let mut held: Vec<u32> = node.iter().flat_map(|rank| rank.extents.clone()).collect();
            held.sort_unstable();
            held.dedup();
            let bytes = held
                .iter()
                .filter_map(|&index| extents.get(usize::try_from(index).ok()?))
                .fold(0u64, |sum, extent| sum.saturating_add(extent.bytes));
            largest = largest.max(bytes);
        }
        largest
    }
}

/// Numbers of ranks on a node worth a row: powers of two up to 8, and the whole mesh if it is smaller.
fn node_sizes(ranks: Option<u32>) -> Vec<u32> {
    let ranks = ranks.unwrap_or(8).max(1);
    let mut sizes: Vec<u32> = [1, 2, 4, 8].into_iter().filter(|&k| k <= ranks).collect();
    if ranks < 8 && !sizes.contains(&ranks) {
        sizes.push(ranks);
    }
    sizes
}

/// A rule of the plan, and what fell under it.
#[derive(Clone, Debug, Serialize)]
pub struct Rule {
    /// Component.
    pub component: String,
    /// Placements in order, one text for each operation; empty keeps the tensor whole on every rank.
    pub placements: Vec<String>,
    /// Why.
    pub reason: String,
    /// Tensors under it.
    pub tensors: u64,
    /// Their bytes, whole.
    pub bytes: u64,
}

/// Placements in one line.
#[must_use]
pub fn placements_of(placements: &[String]) -> String {
    if placements.is_empty() {
        "replicated".to_owned()
    } else {
        placements.join("; ")
    }
}

/// A source file.
#[derive(Clone, Debug, Serialize)]
pub struct Source {
    /// Base name.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
    /// SHA-256, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// A small file carried along.
#[derive(Clone, Debug, Serialize)]
pub struct File {
    /// Component it belongs to; absent for the pack's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// Path within it.
    pub path: String,
    /// Bytes.
    pub bytes: u64,
    /// SHA-256, for packs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// What was done to names and values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Transform {
    /// Path of the state dict inside the checkpoint's object.
    pub root: String,
    /// Globs of names kept.
    pub include: Vec<String>,
    /// Globs of names left out.
    pub exclude: Vec<String>,
    /// Prefixes removed.
    pub strip_prefix: Vec<String>,
    /// Prefix added.
    pub add_prefix: String,
    /// Expressions and replacements.
    pub rename: Vec<[String; 2]>,
    /// Type that floating tensors were cast to.
    pub dtype: Option<String>,
}

impl From<&wpack_format::Transform> for Transform {
    fn from(transform: &wpack_format::Transform) -> Self {
        Self {
            root: transform.root.clone(),
            include: transform.include.clone(),
            exclude: transform.exclude.clone(),
            strip_prefix: transform.strip_prefix.clone(),
            add_prefix: transform.add_prefix.clone(),
            rename: transform
                .rename
                .iter()
                .map(|(from, to)| [from.clone(), to.clone()])
                .collect(),
            dtype: transform.dtype.clone(),
        }
    }
}

impl Transform {
    /// For people; nothing when nothing was done.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut line = |what: &str, value: &str| {
            if !value.is_empty() {
                lines.push(format!("{what} {value}"));
            }
        };
        line("root", &self.root);
        line("include", &self.include.join(" "));
        line("exclude", &self.exclude.join(" "));
        line("strip prefix", &self.strip_prefix.join(" "));
        line("add prefix", &self.add_prefix);
        for [from, to] in &self.rename {
            line("rename", &format!("{from}={to}"));
        }
        line("cast to", self.dtype.as_deref().unwrap_or_default());
        lines
    }
}

/// Something noticed.
#[derive(Clone, Debug, Serialize)]
pub struct WarningText {
    /// Stable name.
    pub code: String,
    /// The facts.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(index: u32, bytes: u64, owners: Owners) -> Extent {
        Extent {
            index,
            component: "model".to_owned(),
            owners,
            offset: None,
            bytes,
            slices: 1,
        }
    }

    fn run(first: u32, count: u32, step: u32) -> Owners {
        Owners::Ranks(vec![RankRun { first, count, step }])
    }

    #[test]
    fn a_node_keeps_the_union_once() {
        let extents = [
            extent(0, 100, Owners::All("all")),
            extent(1, 10, run(0, 2, 2)),
            extent(2, 20, run(1, 2, 2)),
            extent(3, 5, run(3, 1, 1)),
        ];
        let sharing = Sharing::of(&extents, Some(4), 1000);
        assert_eq!(sharing.extent_bytes, 135);
        assert_eq!(
            (
                sharing.every_rank_bytes,
                sharing.some_ranks_bytes,
                sharing.one_rank_bytes
            ),
            (100, 30, 5)
        );
        let bytes: Vec<_> = sharing
            .ranks
            .iter()
            .map(|r| (r.bytes, r.shared_bytes))
            .collect();
        assert_eq!(bytes, [(110, 110), (120, 120), (110, 110), (125, 120)]);
        let memory: Vec<_> = sharing
            .memory
            .iter()
            .map(|m| (m.ranks_per_node, m.mapped_bytes, m.private_copies_bytes))
            .collect();
        assert_eq!(memory, [(1, 125, 1000), (2, 135, 2000), (4, 135, 4000)]);
    }

    #[test]
    fn a_pack_for_any_number_of_ranks_is_all_shared() {
        let sharing = Sharing::of(&[extent(0, 7, Owners::All("all"))], None, 7);
        assert_eq!((sharing.every_rank_bytes, sharing.ranks.len()), (7, 0));
        assert!(sharing.memory.iter().all(|row| row.mapped_bytes == 7));
    }

    #[test]
    fn a_mesh_past_counting_lists_no_more_than_the_limit() {
        let extents = [extent(0, 7, run(0, u32::MAX, 1))];
        assert_eq!(Sharing::of(&extents, Some(u32::MAX), 7).ranks.len(), 4096);
    }

    #[test]
    fn owners_in_words() {
        assert_eq!(run(3, 1, 1).text(), "3");
        assert_eq!(run(0, 2, 4).text(), "0,4");
        assert_eq!(run(0, 4, 1).text(), "0-3");
        assert_eq!(run(1, 4, 2).text(), "1-7/2");
        assert_eq!(Owners::All("all").text(), "all");
    }

    #[test]
    fn tallies_survive_shapes_past_64_bits() {
        let tally = Tally::of(
            [
                (1, DType::F32, &[u64::MAX, 3][..]),
                (2, DType::F32, &[0, 5]),
            ]
            .into_iter(),
        );
        assert_eq!(
            (tally.tensors, tally.ties, tally.elements),
            (2, 1, u64::MAX)
        );
        assert_eq!(elements(&[]), 1);
    }
}
