//! How one dimension is cut: which intervals of it a coordinate holds.

use std::fmt;

use crate::error::Fault;

/// Elements `lo..hi` of a dimension; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) lo: u64,
    pub(crate) hi: u64,
}

/// The most pieces that one rule makes of one dimension.
const MAX_PIECES: u64 = 1 << 16;

/// A rule that cuts a dimension of `n` elements into parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// `torch.chunk`: parts of `ceil(n / parts)`, trailing parts short or empty. DTensor, FSDP2.
    Chunk,
    /// Equal parts; refused where `n` does not divide. Megatron, vLLM.
    Even,
    /// Sizes that differ by one at most, the longer first: `numpy.array_split`.
    Balanced,
    /// Cut into this many blocks as [`Rule::Chunk`] does, then each block by [`Rule::Chunk`]: DTensor's
    /// `_StridedShard`.
    Strided(u64),
    /// Blocks of these sizes, each cut by its own rule, the pieces one after the other: fused weights.
    Blocks(Vec<(u64, Rule)>),
    /// Key or value heads: as [`Rule::Even`] while there are at least as many heads as parts, else
    /// each head is held by `parts / heads` neighbours.
    KvReplicated {
        /// Heads.
        heads: u64,
        /// Elements of a head.
        head_dim: u64,
    },
    /// Part `i` is `bounds[i]..bounds[i + 1]`.
    Explicit(Vec<u64>),
}

impl Rule {
    /// Calls `each` with the intervals that part `index` of `parts` holds of `n` elements, in order.
    pub(crate) fn intervals(
        &self,
        n: u64,
        parts: u64,
        index: u64,
        each: &mut dyn FnMut(Interval),
    ) -> Result<(), Fault> {
        let mut emit = |lo: u64, hi: u64| {
            if lo < hi {
                each(Interval { lo, hi });
            }
        };
        match self {
            Self::Chunk => {
                let chunk = n.div_ceil(parts);
                let lo = chunk.saturating_mul(index).min(n);
                emit(lo, lo.saturating_add(chunk).min(n));
            }
            Self::Even => {
                if !n.is_multiple_of(parts) {
                    return Err(Fault::NotDivisible { len: n, parts });
                }
                let chunk = n / parts;
                emit(chunk * index, chunk * index + chunk);
            }
            Self::Balanced => {
                let (each, longer) = (n / parts, n % parts);
                let lo = index * each + index.min(longer);
                emit(lo, lo + each + u64::from(index < longer));
            }
            Self::Strided(factor) => {
                if *factor == 0 || *factor > MAX_PIECES {
                    return Err(Fault::Factor { factor: *factor });
                }
                let block = n.div_ceil(*factor);
                let mut start = 0;
                while start < n {
                    let size = block.min(n - start);
                    Self::Chunk.intervals(size, parts, index, &mut |piece| {
                        emit(start + piece.lo, start + piece.hi);
                    })?;
                    start += size;
                }
            }
            Self::Blocks(blocks) => {
                let sum = blocks
                    .iter()
                    .try_fold(0u64, |sum, block| sum.checked_add(block.0));
                if sum != Some(n) {
                    return Err(Fault::Mismatch {
                        len: n,
                        expected: sum.unwrap_or(u64::MAX),
                    });
                }
                let mut start = 0;
                for (size, rule) in blocks {
                    rule.intervals(*size, parts, index, &mut |piece| {
                        emit(start + piece.lo, start + piece.hi);
                    })?;
                    start += size;
                }
            }
            Self::KvReplicated { heads, head_dim } => {
                if heads.checked_mul(*head_dim) != Some(n) {
                    let expected = heads.saturating_mul(*head_dim);
                    return Err(Fault::Mismatch { len: n, expected });
                }
                if parts <= *heads {
                    if !heads.is_multiple_of(parts) {
                        return Err(Fault::NotDivisible { len: *heads, parts });
                    }
                    return Self::Even.intervals(n, parts, index, each);
                }
                if *heads == 0 || !parts.is_multiple_of(*heads) {
                    return Err(Fault::NotDivisible {
                        len: parts,
                        parts: *heads,
                    });
                }
                let head = index / (parts / heads);
                emit(head * head_dim, (head + 1) * head_dim);
            }
            Self::Explicit(bounds) => {
                let found = u64::try_from(bounds.len())
                    .unwrap_or(u64::MAX)
                    .saturating_sub(1);
                if found != parts {
                    return Err(Fault::Bounds {
                        found,
                        expected: parts,
                    });
                }
                if bounds
                    .windows(2)
                    .any(|pair| matches!(pair, [a, b] if a > b))
                {
                    return Err(Fault::Descending);
                }
                if bounds.first() != Some(&0) || bounds.last() != Some(&n) {
                    let expected = bounds.last().copied().unwrap_or(0);
                    return Err(Fault::Mismatch { len: n, expected });
                }
                let at = usize::try_from(index).unwrap_or(usize::MAX);
                if let Some([lo, hi]) = bounds.get(at..).and_then(|rest| rest.first_chunk()) {
                    emit(*lo, *hi);
                }
            }
        }
        Ok(())
    }

    /// The number of elements that part `index` holds.
    pub(crate) fn len(&self, n: u64, parts: u64, index: u64) -> Result<u64, Fault> {
        let mut sum = 0;
        self.intervals(n, parts, index, &mut |piece| sum += piece.hi - piece.lo)?;
        Ok(sum)
    }

    /// How many neighbouring parts hold the same: part `index` is equal to part `index / replicas`.
    pub(crate) fn replicas(&self, parts: u64) -> u64 {
        match self {
            Self::KvReplicated { heads, .. } if *heads > 0 && parts > *heads => parts / heads,
            Self::Blocks(blocks) => blocks
                .iter()
                .fold(0, |all, (_, rule)| gcd(all, rule.replicas(parts)))
                .max(1),
            _ => 1,
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chunk => f.write_str("chunk"),
            Self::Even => f.write_str("even"),
            Self::Balanced => f.write_str("balanced"),
            Self::Strided(factor) => write!(f, "strided({factor})"),
            Self::Blocks(blocks) => {
                f.write_str("blocks(")?;
                for (index, (size, rule)) in blocks.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{size}: {rule}")?;
                }
                f.write_str(")")
            }
            Self::KvReplicated { heads, head_dim } => {
                write!(f, "kv_replicated({heads}, {head_dim})")
            }
            Self::Explicit(bounds) => write!(f, "explicit{bounds:?}"),
        }
    }
}

/// Applies `rule` to the concatenation of `held`: how a dimension is cut that was cut before.
pub(crate) fn compose(
    held: &[Interval],
    rule: &Rule,
    parts: u64,
    index: u64,
) -> Result<Vec<Interval>, Fault> {
    let n = held.iter().map(|piece| piece.hi - piece.lo).sum();
    let mut out: Vec<Interval> = Vec::new();
    rule.intervals(n, parts, index, &mut |cut| {
        let mut start = 0;
        for piece in held {
            let end = start + (piece.hi - piece.lo);
            let (lo, hi) = (cut.lo.max(start), cut.hi.min(end));
            if lo < hi {
                let (lo, hi) = (piece.lo + (lo - start), piece.lo + (hi - start));
                match out.last_mut() {
                    Some(last) if last.hi == lo => last.hi = hi,
                    _ => out.push(Interval { lo, hi }),
                }
            }
            start = end;
        }
    })?;
    Ok(out)
}

#[cfg(test)]
#[path = "rule_tests.rs"]
mod tests;
