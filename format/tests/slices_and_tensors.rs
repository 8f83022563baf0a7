//! Slices that do not fit the tensors they hold.

mod common;

use common::{place, slice, tensors};
use wpack_format::{
    BoxPart, Content, DType, Error, Fill, FlatPart, PartFault, Slice, SliceKind, SliceTable,
    Tensor, TensorTable,
};

fn part(slice: u64, part: u64, fault: PartFault) -> Error {
    Error::Part { slice, part, fault }
}

#[test]
fn slices_must_fit_their_tensors() {
    let value = |content, dtype, shape: &[u64]| slice(content, dtype, shape);
    let cut = |tensor, start: &[u64], size: &[u64]| Content::Boxes {
        tensor,
        dim: 0,
        parts: vec![BoxPart::Box {
            start: start.to_vec(),
            size: size.to_vec(),
        }],
    };
    let range = |tensor, start, len| Content::Flat {
        parts: vec![FlatPart::Range { tensor, start, len }],
    };
    let outside = |tensor| part(0, 0, PartFault::Outside(tensor));
    let packed = part(0, 0, PartFault::SubByte);
    let whole = |tensor| Content::Whole { tensor };
    let cases: Vec<(Slice, Error)> = vec![
        (
            value(whole(0), DType::Bf16, &[4, 3]),
            Error::WholeShape {
                slice: 0,
                tensor: 0,
            },
        ),
        (
            value(whole(0), DType::Bf16, &[12]),
            Error::WholeShape {
                slice: 0,
                tensor: 0,
            },
        ),
        (
            value(whole(0), DType::F16, &[3, 4]),
            Error::SliceType {
                slice: 0,
                tensor: 0,
                expected: DType::Bf16,
                found: DType::F16,
            },
        ),
        (
            value(whole(9), DType::F16, &[3, 4]),
            part(0, 0, PartFault::Tensor(9)),
        ),
        (
            value(cut(0, &[1, 0], &[3, 4]), DType::Bf16, &[3, 4]),
            outside(0),
        ),
        (
            value(cut(0, &[4, 0], &[0, 4]), DType::Bf16, &[0, 4]),
            outside(0),
        ),
        (value(cut(0, &[0], &[3]), DType::Bf16, &[3]), outside(0)),
        (value(range(0, 6, 7), DType::Bf16, &[7]), outside(0)),
        (value(range(2, 0, 2), DType::F32, &[2]), outside(2)),
        (value(range(1, 1, 2), DType::F4, &[2]), packed.clone()),
        (
            value(cut(1, &[0, 1], &[4, 2]), DType::F4, &[4, 2]),
            packed.clone(),
        ),
        (value(cut(1, &[0, 0], &[4, 1]), DType::F4, &[4, 1]), packed),
    ];
    for (slice, error) in cases {
        assert_eq!(slice.check(&tensors()[..]), Err(error.clone()));
        let mut slices = [slice];
        let end = place(&mut slices);
        let table = SliceTable::decode(SliceTable::encode(&slices), 1, end, 10).unwrap();
        let tensors = TensorTable::decode(TensorTable::encode(&tensors()), 3).unwrap();
        assert_eq!(table.check_tensors(&tensors), Err(error));
    }
    let good = [
        value(cut(0, &[3, 0], &[0, 4]), DType::Bf16, &[0, 4]),
        value(cut(1, &[0, 2], &[4, 2]), DType::F4, &[4, 2]),
        value(cut(1, &[1, 0], &[2, 8]), DType::F4, &[2, 8]),
        value(range(1, 2, 4), DType::F4, &[4]),
        value(range(2, 1, 0), DType::F32, &[0]),
    ];
    for slice in good {
        assert_eq!(slice.check(&tensors()[..]), Ok(()), "{slice:?}");
    }
    let mut master = value(whole(0), DType::F32, &[3, 4]);
    master.kind = SliceKind::Master;
    assert_eq!(master.check(&tensors()[..]), Ok(()));
}

/// A row of three halves is no whole number of bytes, so rows cannot be cut out but all together.
#[test]
fn packed_rows_are_cut_at_whole_bytes() {
    let mut odd: Tensor = tensors().remove(1);
    (odd.shape, odd.stored_shape) = (vec![4, 3], vec![6]);
    let boxes = |dim, shape: &[u64], parts: &[([u64; 2], [u64; 2])]| {
        let of = |(start, size): &([u64; 2], [u64; 2])| BoxPart::Box {
            start: start.to_vec(),
            size: size.to_vec(),
        };
        let parts = parts.iter().map(of).collect();
        slice(
            Content::Boxes {
                tensor: 0,
                dim,
                parts,
            },
            DType::F4,
            shape,
        )
        .check(&[odd.clone()][..])
    };
    let packed = |part_index| Err(part(0, part_index, PartFault::SubByte));
    assert_eq!(boxes(0, &[2, 3], &[([2, 0], [2, 3])]), Ok(()));
    assert_eq!(boxes(0, &[2, 3], &[([1, 0], [2, 3])]), packed(0));
    assert_eq!(
        boxes(0, &[2, 3], &[([0, 0], [1, 3]), ([1, 0], [1, 3])]),
        packed(0)
    );
    // Runs of the tensor are whole bytes, rows of the slice are not.
    assert_eq!(
        boxes(1, &[2, 4], &[([0, 0], [2, 2]), ([2, 0], [2, 2])]),
        packed(0)
    );
    let fill = |size| {
        let first = BoxPart::Box {
            start: vec![0, 0],
            size: vec![2, 3],
        };
        let parts = vec![
            first,
            BoxPart::Fill {
                size,
                value: Fill::ZERO,
            },
        ];
        let content = Content::Boxes {
            tensor: 0,
            dim: 0,
            parts,
        };
        slice(content, DType::F4, &[2 + size, 3]).check(&[odd.clone()][..])
    };
    assert_eq!(fill(2), Ok(()));
    assert_eq!(fill(4), Ok(()));
    assert!(fill(1).is_err());
}
