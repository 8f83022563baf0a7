//! The 8-bit floating types: to and from the bits of binary32, as in torch's `torch/headeronly/util/Float8_*.h`.

const F32_INFINITY: u32 = 0xff << 23;

/// A NaN as torch's `fnuz` and `e8m0` types widen to it; it is a signalling one.
const TORCH_NAN: u32 = 0x7f80_0001;

/// Magnitude of a type with `mantissa` bits, exponent bias `bias` and binary32 bits `magnitude`, rounded
/// to nearest even; does not look at overflow.
#[inline]
const fn round(magnitude: u32, bias: u32, mantissa: u32) -> u32 {
    // Adding this power of two makes the sum's last bit the least subnormal of the target.
    let magic = (127 - bias + 23 - mantissa + 1) << 23;
    let subnormal = (f32::from_bits(magnitude) + f32::from_bits(magic))
        .to_bits()
        .wrapping_sub(magic);
    let drop = 23 - mantissa;
    let odd = (magnitude >> drop) & 1;
    let normal = magnitude
        .wrapping_sub((127 - bias) << 23)
        .wrapping_add((1 << (drop - 1)) - 1)
        .wrapping_add(odd)
        >> drop;
    if magnitude < (127 - bias + 1) << 23 {
        subnormal
    } else {
        normal
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "callers pass values of 8 bits"
)]
#[inline]
const fn byte(value: u32) -> u8 {
    value as u8
}

/// `Float8_e4m3fn(float)`: 480 and above, infinities and NaN become the NaN of the sign.
#[inline]
pub(super) const fn e4m3_from(bits: u32) -> u8 {
    let magnitude = bits & 0x7fff_ffff;
    let value = if magnitude >= 1087 << 20 {
        0x7f
    } else {
        round(magnitude, 7, 3)
    };
    byte(value | (bits >> 31) << 7)
}

/// `Float8_e5m2(float)`: 65536 and above become infinity.
#[inline]
pub(super) const fn e5m2_from(bits: u32) -> u8 {
    let magnitude = bits & 0x7fff_ffff;
    let value = if magnitude > F32_INFINITY {
        0x7f
    } else if magnitude >= 143 << 23 {
        0x7c
    } else {
        round(magnitude, 15, 2)
    };
    byte(value | (bits >> 31) << 7)
}

#[inline]
const fn fnuz_from(bits: u32, bias: u32, mantissa: u32, first_too_large: u32) -> u8 {
    let magnitude = bits & 0x7fff_ffff;
    let value = round(magnitude, bias, mantissa);
    if magnitude >= first_too_large {
        0x80
    } else if value == 0 {
        0
    } else {
        byte(value | (bits >> 31) << 7)
    }
}

/// `Float8_e4m3fnuz(float)`: 256 and above, infinities and NaN become the one NaN.
#[inline]
pub(super) const fn e4m3fnuz_from(bits: u32) -> u8 {
    fnuz_from(bits, 8, 3, 0x87 << 23)
}

/// `Float8_e5m2fnuz(float)`: 65536 and above, infinities and NaN become the one NaN.
#[inline]
pub(super) const fn e5m2fnuz_from(bits: u32) -> u8 {
    fnuz_from(bits, 16, 2, 0x8f << 23)
}

/// `Float8_e8m0fnu(float)`: the sign is dropped. A tie goes up unless the exponent field is zero.
#[inline]
pub(super) const fn e8m0_from(bits: u32) -> u8 {
    let exponent = (bits >> 23) & 0xff;
    let fraction = bits & 0x7f_ffff;
    let up = fraction > 0x40_0000 || (fraction == 0x40_0000 && exponent > 0);
    if exponent == 0xff {
        0xff
    } else {
        byte(exponent + up as u32)
    }
}

/// Bits of binary32 of a byte of a type with sign, `8 - 1 - mantissa` exponent bits and no special values.
const fn widen(byte: u8, bias: u32, mantissa: u32) -> u32 {
    let sign = (byte as u32 >> 7) << 31;
    let magnitude = byte as u32 & 0x7f;
    let exponent = magnitude >> mantissa;
    let fraction = magnitude & ((1 << mantissa) - 1);
    if exponent != 0 {
        sign | (exponent + 127 - bias) << 23 | fraction << (23 - mantissa)
    } else if fraction == 0 {
        sign
    } else {
        let shift = fraction.leading_zeros() - (31 - mantissa);
        let fraction = (fraction << shift) & ((1 << mantissa) - 1);
        sign | (1 + 127 - bias - shift) << 23 | fraction << (23 - mantissa)
    }
}

const fn e4m3_to(byte: u8) -> u32 {
    if byte & 0x7f == 0x7f {
        (byte as u32 >> 7) << 31 | 0x7ff0_0000
    } else {
        widen(byte, 7, 3)
    }
}

const fn e5m2_to(byte: u8) -> u32 {
    if byte & 0x7f >= 0x7c {
        let fraction = byte as u32 & 3;
        // The type is the upper half of binary16, whose widening makes a NaN quiet.
        let quiet = if fraction == 0 { 0 } else { 0x40_0000 };
        (byte as u32 >> 7) << 31 | F32_INFINITY | fraction << 21 | quiet
    } else {
        widen(byte, 15, 2)
    }
}

const fn fnuz_to(byte: u8, bias: u32, mantissa: u32) -> u32 {
    if byte == 0x80 {
        TORCH_NAN
    } else {
        widen(byte, bias, mantissa)
    }
}

const fn e8m0_to(byte: u8) -> u32 {
    match byte {
        0 => 0x0040_0000,
        0xff => TORCH_NAN,
        _ => (byte as u32) << 23,
    }
}

macro_rules! table {
    ($name:ident, $doc:literal, |$byte:ident| $bits:expr) => {
        #[doc = $doc]
        pub(super) static $name: [u32; 256] = {
            let mut table = [0; 256];
            let mut index = 0u32;
            while index < 256 {
                let $byte = byte(index);
                table[index as usize] = $bits;
                index += 1;
            }
            table
        };
    };
}

table!(E4M3, "Bits of binary32 of every `F8_E4M3`.", |b| e4m3_to(b));
table!(E5M2, "Bits of binary32 of every `F8_E5M2`.", |b| e5m2_to(b));
table!(E4M3FNUZ, "Bits of binary32 of every `F8_E4M3FNUZ`.", |b| {
    fnuz_to(b, 8, 3)
});
table!(E5M2FNUZ, "Bits of binary32 of every `F8_E5M2FNUZ`.", |b| {
    fnuz_to(b, 16, 2)
});
table!(E8M0, "Bits of binary32 of every `F8_E8M0`.", |b| e8m0_to(b));
