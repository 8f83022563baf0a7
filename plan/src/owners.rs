//! Sets of ranks as the format writes them.

use wpack_format::{Owners, RankRun};

/// The one way to write an ascending list of ranks: each run takes as many as lie at one distance.
pub(crate) fn from_ranks(ranks: &[u32]) -> Owners {
    let mut runs: Vec<RankRun> = Vec::new();
    for &rank in ranks {
        let fits = runs.last_mut().is_some_and(|run| {
            let step = if run.count == 1 {
                rank - run.first
            } else {
                run.step
            };
            let next = u64::from(run.first) + u64::from(step) * u64::from(run.count);
            if next != u64::from(rank) {
                return false;
            }
            run.step = step;
            run.count += 1;
            true
        });
        if !fits {
            runs.push(RankRun {
                first: rank,
                count: 1,
                step: 1,
            });
        }
    }
    Owners::Ranks(runs)
}

/// How many ranks; none stands for all.
pub(crate) fn count(owners: &Owners) -> Option<u64> {
    match owners {
        Owners::All => None,
        Owners::Ranks(runs) => Some(runs.iter().map(|run| u64::from(run.count)).sum()),
    }
}

/// Whether a rank is among them.
pub(crate) fn contains(owners: &Owners, rank: u32) -> bool {
    match owners {
        Owners::All => true,
        Owners::Ranks(runs) => runs.iter().any(|run| {
            rank.checked_sub(run.first).is_some_and(|ahead| {
                ahead % run.step.max(1) == 0 && ahead / run.step.max(1) < run.count
            })
        }),
    }
}

/// The ranks, ascending; none for all.
pub(crate) fn ranks(owners: &Owners) -> impl Iterator<Item = u32> + '_ {
    let runs = match owners {
        Owners::All => &[][..],
        Owners::Ranks(runs) => runs.as_slice(),
    };
    runs.iter()
        .flat_map(|run| (0..run.count).map(|index| run.first + index * run.step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_lead_back_to_the_ranks() {
        for list in [
            vec![0],
            vec![0, 1, 2, 3],
            vec![1, 3, 5],
            vec![0, 1, 4, 5, 8, 9],
            vec![0, 3, 4],
            vec![2, 7, 8, 9, 131_071],
        ] {
            let owners = from_ranks(&list);
            assert_eq!(ranks(&owners).collect::<Vec<_>>(), list);
            assert_eq!(count(&owners), Some(list.len() as u64));
            for rank in 0..12 {
                assert_eq!(
                    contains(&owners, rank),
                    list.contains(&rank),
                    "{owners:?} {rank}"
                );
            }
        }
        assert!(contains(&Owners::All, u32::MAX));
    }
}
