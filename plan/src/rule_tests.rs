//! Rules against values computed by the frameworks' own functions.

use super::*;

fn cut(rule: &Rule, n: u64, parts: u64) -> Vec<Vec<(u64, u64)>> {
    (0..parts)
        .map(|index| {
            let mut out = Vec::new();
            rule.intervals(n, parts, index, &mut |piece| out.push((piece.lo, piece.hi)))
                .unwrap();
            out
        })
        .collect()
}

fn sizes(rule: &Rule, n: u64, parts: u64) -> Vec<u64> {
    (0..parts)
        .map(|index| rule.len(n, parts, index).unwrap())
        .collect()
}

#[test]
fn chunk_is_torch_chunk() {
    assert_eq!(sizes(&Rule::Chunk, 10, 4), [3, 3, 3, 1]);
    assert_eq!(sizes(&Rule::Chunk, 9, 4), [3, 3, 3, 0]);
    assert_eq!(sizes(&Rule::Chunk, 5, 4), [2, 2, 1, 0]);
    assert_eq!(sizes(&Rule::Chunk, 1, 4), [1, 0, 0, 0]);
    assert_eq!(sizes(&Rule::Chunk, 0, 3), [0, 0, 0]);
    assert_eq!(sizes(&Rule::Chunk, u64::MAX, 2), [1 << 63, (1 << 63) - 1]);
}

#[test]
fn balanced_is_array_split() {
    assert_eq!(sizes(&Rule::Balanced, 10, 4), [3, 3, 2, 2]);
    assert_eq!(sizes(&Rule::Balanced, 3, 4), [1, 1, 1, 0]);
}

#[test]
fn even_refuses_a_remainder() {
    assert_eq!(sizes(&Rule::Even, 12, 4), [3, 3, 3, 3]);
    assert_eq!(
        Rule::Even.len(10, 4, 0),
        Err(Fault::NotDivisible { len: 10, parts: 4 })
    );
}

#[test]
fn strided_is_dtensors() {
    // _StridedShard(0, split_factor=2) of 9 elements over 4: [0,1,5], [2,3,6], [4,7], [8].
    let got = cut(&Rule::Strided(2), 9, 4);
    assert_eq!(
        got,
        [
            vec![(0, 2), (5, 6)],
            vec![(2, 4), (6, 7)],
            vec![(4, 5), (7, 8)],
            vec![(8, 9)]
        ]
    );
    assert_eq!(
        Rule::Strided(0).len(4, 2, 0),
        Err(Fault::Factor { factor: 0 })
    );
    assert!(Rule::Strided(u64::MAX).len(u64::MAX, 2, 0).is_err());
}

#[test]
fn blocks_and_replicated_heads() {
    // Query of 4 heads, key of 1 head, both of 2 elements, over 4 ranks: vLLM's fused QKV.
    let kv = Rule::KvReplicated {
        heads: 1,
        head_dim: 2,
    };
    let fused = Rule::Blocks(vec![(8, Rule::Even), (2, kv.clone())]);
    assert_eq!(cut(&fused, 10, 4)[1], [(2, 4), (8, 10)]);
    assert_eq!(kv.replicas(4), 4);
    assert_eq!(fused.replicas(4), 1);
    assert_eq!(
        cut(
            &Rule::KvReplicated {
                heads: 2,
                head_dim: 3
            },
            6,
            4
        )[2],
        [(3, 6)]
    );
    assert_eq!(
        fused.len(11, 4, 0),
        Err(Fault::Mismatch {
            len: 11,
            expected: 10
        })
    );
    let odd = Rule::KvReplicated {
        heads: 3,
        head_dim: 1,
    };
    assert_eq!(
        odd.len(3, 2, 0),
        Err(Fault::NotDivisible { len: 3, parts: 2 })
    );
    assert_eq!(
        odd.len(3, 4, 0),
        Err(Fault::NotDivisible { len: 4, parts: 3 })
    );
}

#[test]
fn explicit_bounds_are_checked() {
    assert_eq!(sizes(&Rule::Explicit(vec![0, 4, 4, 7]), 7, 3), [4, 0, 3]);
    assert_eq!(
        Rule::Explicit(vec![0, 7]).len(7, 3, 0),
        Err(Fault::Bounds {
            found: 1,
            expected: 3
        })
    );
    assert_eq!(
        Rule::Explicit(vec![0, 5, 4, 7]).len(7, 3, 0),
        Err(Fault::Descending)
    );
    assert_eq!(
        Rule::Explicit(vec![0, 5, 6]).len(7, 2, 0),
        Err(Fault::Mismatch {
            len: 7,
            expected: 6
        })
    );
    assert_eq!(
        Rule::Explicit(vec![]).len(7, 2, 0),
        Err(Fault::Bounds {
            found: 0,
            expected: 2
        })
    );
}

#[test]
fn composition_cuts_what_is_left() {
    // 8 rows, strided over tp=2, then chunked over 2: the concatenation [0,1,4,5] is halved.
    let held = [Interval { lo: 0, hi: 2 }, Interval { lo: 4, hi: 6 }];
    let got = compose(&held, &Rule::Chunk, 2, 1).unwrap();
    assert_eq!(got, [Interval { lo: 4, hi: 6 }]);
    let got = compose(&held, &Rule::Explicit(vec![0, 1, 4]), 2, 1).unwrap();
    assert_eq!(got, [Interval { lo: 1, hi: 2 }, Interval { lo: 4, hi: 6 }]);
}
