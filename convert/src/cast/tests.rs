//! Casts against independent code. Torch itself is asked in `tests/tests/cast.rs`.

use wpack_format::DType;

use super::{convert_elements, is_supported, is_target};
use crate::Error;

fn cast<const N: usize, const M: usize>(from: DType, to: DType, value: [u8; N]) -> [u8; M] {
    let mut out = [0; M];
    convert_elements(from, to, &value, &mut out).unwrap();
    out
}

#[test]
fn halves_agree_with_the_half_crate() {
    for bits in 0..=u16::MAX {
        let from = bits.to_le_bytes();
        let expected = half::f16::from_bits(bits).to_f32_const();
        let found = f32::from_le_bytes(cast(DType::F16, DType::F32, from));
        assert!(found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan()));
        let expected = half::bf16::from_bits(bits).to_f32_const();
        let found = f32::from_le_bytes(cast(DType::Bf16, DType::F32, from));
        assert!(found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan()));
    }
    for step in 0..1 << 20 {
        let value = f32::from_bits(step * 4093);
        let found = half::f16::from_le_bytes(cast(DType::F32, DType::F16, value.to_le_bytes()));
        let expected = half::f16::from_f32_const(value);
        assert!(
            found.to_bits() == expected.to_bits() || value.is_nan(),
            "{value}"
        );
        let found = half::bf16::from_le_bytes(cast(DType::F32, DType::Bf16, value.to_le_bytes()));
        let expected = half::bf16::from_f32_const(value);
        assert!(
            found.to_bits() == expected.to_bits() || value.is_nan(),
            "{value}"
        );
    }
}

#[test]
fn every_value_survives_a_wider_type() {
    let narrow = [
        DType::F8E4M3,
        DType::F8E5M2,
        DType::F8E4M3Fnuz,
        DType::F8E5M2Fnuz,
        DType::F8E8M0,
    ];
    for dtype in narrow {
        for byte in 0..=u8::MAX {
            let wide: [u8; 4] = cast(dtype, DType::F32, [byte]);
            if f32::from_le_bytes(wide).is_nan() {
                continue;
            }
            assert_eq!(
                cast::<4, 1>(DType::F32, dtype, wide),
                [byte],
                "{dtype} {byte:#x}"
            );
        }
    }
}

#[test]
fn overflow_is_never_saturated() {
    let huge = 1e30f32.to_le_bytes();
    assert_eq!(cast(DType::F32, DType::F8E4M3, huge), [0x7f]);
    assert_eq!(cast(DType::F32, DType::F8E5M2, huge), [0x7c]);
    assert_eq!(cast(DType::F32, DType::F8E4M3Fnuz, huge), [0x80]);
    assert_eq!(cast(DType::F32, DType::F8E5M2Fnuz, huge), [0x80]);
    assert_eq!(cast(DType::F32, DType::F16, huge), 0x7c00u16.to_le_bytes());
    assert_eq!(
        cast(DType::F64, DType::F32, 1e300f64.to_le_bytes()),
        f32::INFINITY.to_le_bytes()
    );
}

#[test]
fn what_torch_leaves_open_is_refused() {
    for from in DType::all() {
        for to in DType::all() {
            if from != to && !is_target(to) {
                assert!(!is_supported(from, to), "{from} to {to}");
            }
        }
    }
    let refused = convert_elements(DType::F32, DType::U8, &[0; 4], &mut [0]);
    assert!(matches!(refused, Err(Error::CastUnsupported { .. })));
    let refused = convert_elements(DType::F4, DType::F32, &[0; 1], &mut [0; 4]);
    assert!(matches!(refused, Err(Error::CastUnsupported { .. })));
}

#[test]
fn lengths_must_agree() {
    for (source, target) in [(4, 4), (3, 2), (6, 3), (8, 2)] {
        let (source, mut target) = (vec![0; source], vec![0; target]);
        let refused = convert_elements(DType::F32, DType::Bf16, &source, &mut target);
        assert!(matches!(refused, Err(Error::CastLength { .. })));
    }
    convert_elements(DType::F32, DType::Bf16, &[], &mut []).unwrap();
}
