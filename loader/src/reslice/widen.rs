//! Master copies in fp32 of weights of another type, as conversion casts them: binary values to the
//! nearest even, a NaN made quiet with the upper bits of its payload.

use half::f16;
use wpack_format::DType;

/// Bytes of an element of a type of which masters are made; none for other types.
pub(super) fn width(from: DType) -> Option<usize> {
    match from {
        DType::F16 | DType::Bf16 => Some(2),
        DType::F32 => Some(4),
        DType::F64 => Some(8),
        _ => None,
    }
}

/// Writes elements as fp32; `to` has four bytes for each.
pub(super) fn widen(from: DType, elements: &[u8], to: &mut [u8]) {
    let Some(width) = width(from) else { return };
    let (to, _) = to.as_chunks_mut::<4>();
    for (bytes, to) in elements.chunks_exact(width).zip(to) {
        let mut bits = [0; 8];
        if let Some(low) = bits.get_mut(..width) {
            low.copy_from_slice(bytes);
        }
        *to = of(from, u64::from_le_bytes(bits)).to_le_bytes();
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "bits are masked, and rounding is the purpose"
)]
fn of(from: DType, bits: u64) -> u32 {
    match from {
        DType::Bf16 => (bits as u32) << 16,
        DType::F16 => {
            let half = bits as u16;
            if half & 0x7fff > 0x7c00 {
                let (sign, payload) = (u32::from(half & 0x8000), u32::from(half & 0x3ff));
                sign << 16 | 0x7fc0_0000 | payload << 13
            } else {
                f16::from_bits(half).to_f32().to_bits()
            }
        }
        DType::F64 => {
            if bits & (u64::MAX >> 1) > 0x7ff << 52 {
                (bits >> 32) as u32 & 0x8000_0000 | 0x7fc0_0000 | (bits >> 29) as u32 & 0x7f_ffff
            } else {
                (f64::from_bits(bits) as f32).to_bits()
            }
        }
        _ => bits as u32,
    }
}
