//! Gathering against a plain reference, and reads that cross pieces.

use std::io::Write as _;

use proptest::prelude::*;
use tempfile::NamedTempFile;

use super::*;
use crate::file::SourceReader;

/// A storage over `data`, and the file that has to live as long.
fn storage(data: &[u8]) -> (Arc<Storage>, NamedTempFile) {
    let mut file = NamedTempFile::new().expect("a temporary file");
    file.write_all(data).expect("written");
    let source = SourceReader::open(file.path()).expect("opened");
    let len = u64::try_from(data.len()).expect("small");
    (
        Arc::new(Storage::stored(source, "data/0".to_owned(), 0, len, None)),
        file,
    )
}

/// The logical bytes by the definition of a view.
fn by_definition(
    data: &[u8],
    start: usize,
    width: usize,
    shape: &[u64],
    strides: &[u64],
) -> Vec<u8> {
    let mut out = Vec::new();
    let total: u64 = shape.iter().product();
    for flat in 0..total {
        let (mut rest, mut at) = (flat, 0);
        for (&size, &stride) in shape.iter().zip(strides).rev() {
            at += usize::try_from((rest % size) * stride).expect("small");
            rest /= size;
        }
        let from = start + at * width;
        out.extend_from_slice(&data[from..from + width]);
    }
    out
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| u8::try_from(at * 7 % 251).expect("below 251"))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_view_and_any_range_are_as_defined(
        dims in proptest::collection::vec((0_u64..6, 0_u64..40), 0..5),
        width in prop_oneof![Just(1_usize), Just(2), Just(4), Just(8), Just(16)],
        start in 0_usize..20,
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 4),
    ) {
        let (shape, strides): (Vec<u64>, Vec<u64>) = dims.into_iter().unzip();
        let last: u64 = shape.iter().zip(&strides).map(|(size, stride)| size.saturating_sub(1) * stride).sum();
        let start = start * width;
        let data = pattern(start + usize::try_from(last + 1).expect("small") * width);
        let (storage, _file) = storage(&data);
        let view = View::new(
            storage,
            u64::try_from(start).expect("small"),
            u64::try_from(width).expect("small"),
            &shape,
            &strides,
            Change::default(),
        );
        let expected = by_definition(&data, start, width, &shape, &strides);
        prop_assert_eq!(view.len(), u64::try_from(expected.len()).expect("small"));
        let mut whole = vec![0; expected.len()];
        view.read_at(0, &mut whole).expect("inside");
        prop_assert_eq!(&whole, &expected);
        for pair in cuts.chunks(2) {
            let (a, b) = (pair[0].index(expected.len() + 1), pair[1].index(expected.len() + 1));
            let (from, to) = (a.min(b), a.max(b));
            let mut part = vec![0; to - from];
            view.read_at(u64::try_from(from).expect("small"), &mut part).expect("inside");
            prop_assert_eq!(&part[..], &expected[from..to]);
        }
        if let Some(place) = view.place() {
            let place = usize::try_from(place).expect("small");
            prop_assert_eq!(&data[place..place + expected.len()], &expected[..]);
        }
        let mut past = [0; 1];
        view.read_at(view.len(), &mut past).expect_err("past the end");
    }
}

#[test]
fn views_larger_than_the_window_are_read_in_pieces() {
    let rows = 1500_u64;
    let columns = 1200_u64;
    let width = 4;
    let len = usize::try_from(rows * columns * width).expect("small");
    let data = pattern(len);
    assert!(data.len() > usize::try_from(WINDOW).expect("small"));
    let (storage, _file) = storage(&data);
    for (shape, strides) in [
        ([columns, rows], [1, columns]),
        ([rows, columns / 2], [columns, 2]),
        ([columns / 100, rows], [100, columns]),
    ] {
        let view = View::new(
            Arc::clone(&storage),
            0,
            width,
            &shape,
            &strides,
            Change::default(),
        );
        let mut out = vec![0; usize::try_from(view.len()).expect("small")];
        view.read_at(0, &mut out).expect("inside");
        assert!(
            out == by_definition(&data, 0, 4, &shape, &strides),
            "{shape:?} {strides:?}"
        );
    }
}

#[test]
fn an_expanded_scalar_costs_one_read() {
    let (storage, _file) = storage(&[1, 2]);
    let view = View::new(
        storage,
        0,
        2,
        &[1 << 20, 1 << 20],
        &[0, 0],
        Change::default(),
    );
    assert_eq!(view.len(), 1 << 41);
    let mut out = [0; 6];
    view.read_at((1 << 40) + 1, &mut out).expect("inside");
    assert_eq!(out, [2, 1, 2, 1, 2, 1]);
}

#[test]
fn bytes_are_changed_by_units() {
    let complex = [1, 2, 3, 4, 5, 6, 7, 8];
    let change = |swap, sign, imaginary, real| {
        let mut bytes = complex;
        Change {
            swap,
            sign,
            imaginary,
            real,
        }
        .apply(&mut bytes);
        bytes
    };
    assert_eq!(change(0, 0, false, false), complex);
    assert_eq!(change(4, 0, false, false), [4, 3, 2, 1, 8, 7, 6, 5]);
    assert_eq!(change(2, 0, false, false), [2, 1, 4, 3, 6, 5, 8, 7]);
    assert_eq!(change(0, 4, true, false), [1, 2, 3, 4, 5, 6, 7, 0x88]);
    assert_eq!(change(0, 4, false, true), [1, 2, 3, 0x84, 5, 6, 7, 8]);
    assert_eq!(change(0, 4, false, false), [1, 2, 3, 0x84, 5, 6, 7, 0x88]);
    // Swapped first: the sign is in the last byte of a little-endian unit.
    assert_eq!(change(4, 4, true, false), [4, 3, 2, 1, 8, 7, 6, 0x85]);
}
