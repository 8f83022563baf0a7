//! Extents: contiguous byte ranges that a set of ranks holds in common.

use alloc::vec::Vec;

use crate::{TableRef, error::OwnersFault};

/// One row of the extent table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Index of the component.
    pub component: u32,
    /// Who holds it.
    pub owners: Owners,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes, without the padding behind.
    pub len: u64,
    /// Number of slices.
    pub slice_count: u32,
    /// Where its slice table lies, and its digests.
    pub slices: TableRef,
    /// Where its block table lies, and its digests.
    pub blocks: TableRef,
}

/// The ranks that hold an extent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owners {
    /// Every rank of any world size.
    All,
    /// The ranks of these runs: ascending, without overlap, not empty.
    ///
    /// A set of ranks has one form, that of [`Owners::from_ranks`]; a reader refuses others.
    Ranks(Vec<RankRun>),
}

/// `count` ranks from `first`, `step` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RankRun {
    /// The lowest rank.
    pub first: u32,
    /// How many.
    pub count: u32,
    /// Distance between two; 1 when `count` is 1.
    pub step: u32,
}

impl RankRun {
    /// The highest rank; may exceed 32 bits in a run that no file holds.
    fn last(self) -> u64 {
        u64::from(self.first) + u64::from(self.count.saturating_sub(1)) * u64::from(self.step)
    }

    fn contains(self, rank: u32) -> bool {
        rank.checked_sub(self.first).is_some_and(|distance| {
            distance.checked_rem(self.step) == Some(0)
                && distance
                    .checked_div(self.step)
                    .is_some_and(|steps| steps < self.count)
        })
    }
}

impl Owners {
    /// The owners of ascending ranks: each run takes as many as it can. `None` without ranks, or if
    /// they do not ascend.
    ///
    /// ```
    /// use wpack_format::{Owners, RankRun};
    ///
    /// let owners = Owners::from_ranks([1, 5, 9, 10]);
    /// let runs = vec![
    ///     RankRun { first: 1, count: 3, step: 4 },
    ///     RankRun { first: 10, count: 1, step: 1 },
    /// ];
    /// assert_eq!(owners, Some(Owners::Ranks(runs)));
    /// ```
    #[must_use]
    pub fn from_ranks(ranks: impl IntoIterator<Item = u32>) -> Option<Self> {
        let mut runs: Vec<RankRun> = Vec::new();
        for rank in ranks {
            let Some(run) = runs.last_mut() else {
                runs.push(RankRun {
                    first: rank,
                    count: 1,
                    step: 1,
                });
                continue;
            };
            if u64::from(rank) <= run.last() {
                return None;
            }
            if run.count == 1 {
                *run = RankRun {
                    first: run.first,
                    count: 2,
                    step: rank - run.first,
                };
            } else if u64::from(rank) == run.last() + u64::from(run.step) {
                run.count += 1;
            } else {
                runs.push(RankRun {
                    first: rank,
                    count: 1,
                    step: 1,
                });
            }
        }
        if runs.is_empty() {
            None
        } else {
            Some(Self::Ranks(runs))
        }
    }

    /// True if `rank` is among them.
    #[must_use]
    pub fn contains(&self, rank: u32) -> bool {
        match self {
            Self::All => true,
            Self::Ranks(runs) => runs.iter().any(|run| run.contains(rank)),
        }
    }

    /// The ranks in ascending order, of a world of `world` ranks.
    pub fn ranks(&self, world: u32) -> impl Iterator<Item = u32> + '_ {
        let all = match self {
            Self::All => 0..world,
            Self::Ranks(_) => 0..0,
        };
        let named = self.runs().iter().flat_map(|run| {
            (0..run.count).filter_map(|i| i.checked_mul(run.step)?.checked_add(run.first))
        });
        all.chain(named.filter(move |rank| *rank < world))
    }

    /// How many of `world` ranks they are.
    #[must_use]
    pub fn count(&self, world: u32) -> u64 {
        match self {
            Self::All => world.into(),
            Self::Ranks(runs) => runs.iter().map(|run| u64::from(run.count)).sum(),
        }
    }

    /// The highest rank named; `None` for all ranks.
    #[must_use]
    pub fn max_rank(&self) -> Option<u32> {
        self.runs()
            .iter()
            .filter_map(|run| u32::try_from(run.last()).ok())
            .max()
    }

    /// The runs; none for all ranks.
    #[must_use]
    pub fn runs(&self) -> &[RankRun] {
        match self {
            Self::All => &[],
            Self::Ranks(runs) => runs,
        }
    }

    /// Runs are well-formed, ascend, stay within the mesh and are the shortest form.
    pub(crate) fn check(&self, ranks: u32) -> Result<(), (usize, OwnersFault)> {
        let mut before: Option<RankRun> = None;
        for (i, run) in self.runs().iter().enumerate() {
            if run.count == 0 || run.step == 0 || (run.count == 1 && run.step != 1) {
                return Err((i, OwnersFault::Empty));
            }
            if run.last() >= ranks.into() {
                return Err((
                    i,
                    OwnersFault::Rank {
                        rank: run.last(),
                        ranks: ranks.into(),
                    },
                ));
            }
            if let Some(before) = before {
                if u64::from(run.first) <= before.last() {
                    return Err((i, OwnersFault::Order));
                }
                if before.count == 1
                    || before.last() + u64::from(before.step) == u64::from(run.first)
                {
                    return Err((i, OwnersFault::NotCanonical));
                }
            }
            before = Some(*run);
        }
        Ok(())
    }
}

/// Digests of one block of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// CRC-32C of its bytes.
    pub crc32c: u32,
    /// SHA-256 of its bytes.
    pub sha256: [u8; 32],
}

impl Block {
    /// The digests of a block's bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self {
            crc32c: crate::crc32c(bytes),
            sha256: crate::sha256(bytes),
        }
    }
}
