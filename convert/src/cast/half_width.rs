//! The 16-bit types and binary64: to and from the bits of binary32. NaN are handled by hand, since what
//! a processor makes of their payloads differs between machines.

const F32_INFINITY: u32 = 0xff << 23;

#[expect(
    clippy::cast_possible_truncation,
    reason = "callers pass values of 16 bits"
)]
#[inline]
const fn low(value: u32) -> u16 {
    value as u16
}

/// bfloat16, nearest even; every NaN becomes `nan`.
#[inline]
pub(super) const fn bf16_from(bits: u32, nan: u16) -> u16 {
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    if bits & 0x7fff_ffff > F32_INFINITY {
        nan
    } else {
        low(rounded)
    }
}

#[inline]
pub(super) const fn bf16_to(half: u16) -> u32 {
    (half as u32) << 16
}

/// binary16, nearest even; a NaN is made quiet and keeps the upper bits of its payload.
#[inline]
pub(super) const fn f16_from(bits: u32) -> u16 {
    let magnitude = bits & 0x7fff_ffff;
    let magic = (127 - 15 + 23 - 10 + 1) << 23;
    let subnormal = (f32::from_bits(magnitude) + f32::from_bits(magic))
        .to_bits()
        .wrapping_sub(magic);
    let odd = (magnitude >> 13) & 1;
    let normal = magnitude
        .wrapping_sub(112 << 23)
        .wrapping_add(0xfff)
        .wrapping_add(odd)
        >> 13;
    let nan = 0x7e00 | (magnitude >> 13 & 0x1ff);
    let value = if magnitude > F32_INFINITY {
        nan
    } else if magnitude >= 143 << 23 {
        0x7c00
    } else if magnitude < 113 << 23 {
        subnormal
    } else {
        normal
    };
    low(value | (bits >> 16 & 0x8000))
}

/// A NaN is made quiet.
#[inline]
pub(super) const fn f16_to(half: u16) -> u32 {
    let half = half as u32;
    let sign = (half & 0x8000) << 16;
    let shifted = (half & 0x7fff) << 13;
    let subnormal = (f32::from_bits(shifted | 113 << 23) - f32::from_bits(113 << 23)).to_bits();
    let special = shifted | F32_INFINITY;
    let quiet = if half & 0x3ff == 0 { 0 } else { 0x40_0000 };
    let value = if half & 0x7c00 == 0x7c00 {
        special | quiet
    } else if half & 0x7c00 == 0 {
        subnormal
    } else {
        shifted + (112 << 23)
    };
    sign | value
}

/// binary64; a NaN is made quiet and keeps its payload.
#[inline]
pub(super) fn f64_from(bits: u32) -> u64 {
    let nan = u64::from(bits >> 31) << 63 | 0x7ff8 << 48 | u64::from(bits & 0x7f_ffff) << 29;
    if bits & 0x7fff_ffff > F32_INFINITY {
        nan
    } else {
        f64::from(f32::from_bits(bits)).to_bits()
    }
}

/// binary64 to binary32, nearest even; a NaN is made quiet and keeps the upper bits of its payload.
#[expect(
    clippy::cast_possible_truncation,
    reason = "bits are masked, and rounding is the purpose"
)]
#[inline]
pub(super) fn f64_to(bits: u64) -> u32 {
    let nan = (bits >> 32) as u32 & 0x8000_0000 | 0x7fc0_0000 | (bits >> 29) as u32 & 0x7f_ffff;
    if bits & (u64::MAX >> 1) > 0x7ff << 52 {
        nan
    } else {
        (f64::from_bits(bits) as f32).to_bits()
    }
}
