//! Element types: everything that safetensors and PyTorch can store.

use core::fmt;

/// The type of one tensor element.
///
/// Names are those of safetensors where it has one. The discriminant is the code in the file; codes
/// are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u16)]
pub enum DType {
    /// One byte, 0 or 1; other values are kept as they are.
    Bool = 1,
    /// Unsigned 8 bits.
    U8 = 2,
    /// Signed 8 bits.
    I8 = 3,
    /// Unsigned 16 bits.
    U16 = 4,
    /// Signed 16 bits.
    I16 = 5,
    /// Unsigned 32 bits.
    U32 = 6,
    /// Signed 32 bits.
    I32 = 7,
    /// Unsigned 64 bits.
    U64 = 8,
    /// Signed 64 bits.
    I64 = 9,
    /// IEEE binary16.
    F16 = 10,
    /// bfloat16.
    Bf16 = 11,
    /// IEEE binary32.
    F32 = 12,
    /// IEEE binary64.
    F64 = 13,
    /// Complex of two binary16.
    C32 = 14,
    /// Complex of two binary32.
    C64 = 15,
    /// Complex of two binary64.
    C128 = 16,
    /// 4 exponent and 3 mantissa bits, finite only, one NaN per sign (`float8_e4m3fn`).
    F8E4M3 = 17,
    /// 5 exponent and 2 mantissa bits with infinities (`float8_e5m2`).
    F8E5M2 = 18,
    /// As E4M3 with no negative zero and one NaN (`float8_e4m3fnuz`).
    F8E4M3Fnuz = 19,
    /// As E5M2 with no negative zero, no infinities and one NaN (`float8_e5m2fnuz`).
    F8E5M2Fnuz = 20,
    /// A power of two, the scale of a block (`float8_e8m0fnu`).
    F8E8M0 = 21,
    /// 6 bits: 2 exponent, 3 mantissa.
    F6E2M3 = 22,
    /// 6 bits: 3 exponent, 2 mantissa.
    F6E3M2 = 23,
    /// 4 bits: 2 exponent, 1 mantissa; two in a byte, low half first (`float4_e2m1fn_x2`).
    F4 = 24,
    /// PyTorch `bits1x8`: one opaque byte.
    Bits1x8 = 25,
    /// PyTorch `bits2x4`: one opaque byte.
    Bits2x4 = 26,
    /// PyTorch `bits4x2`: one opaque byte.
    Bits4x2 = 27,
    /// PyTorch `bits8`: one opaque byte.
    Bits8 = 28,
    /// PyTorch `bits16`: two opaque bytes.
    Bits16 = 29,
}

/// Code, name and width of every type; the order is that of the codes.
const TABLE: [(DType, &str, u32); 29] = [
    (DType::Bool, "BOOL", 8),
    (DType::U8, "U8", 8),
    (DType::I8, "I8", 8),
    (DType::U16, "U16", 16),
    (DType::I16, "I16", 16),
    (DType::U32, "U32", 32),
    (DType::I32, "I32", 32),
    (DType::U64, "U64", 64),
    (DType::I64, "I64", 64),
    (DType::F16, "F16", 16),
    (DType::Bf16, "BF16", 16),
    (DType::F32, "F32", 32),
    (DType::F64, "F64", 64),
    (DType::C32, "C32", 32),
    (DType::C64, "C64", 64),
    (DType::C128, "C128", 128),
    (DType::F8E4M3, "F8_E4M3", 8),
    (DType::F8E5M2, "F8_E5M2", 8),
    (DType::F8E4M3Fnuz, "F8_E4M3FNUZ", 8),
    (DType::F8E5M2Fnuz, "F8_E5M2FNUZ", 8),
    (DType::F8E8M0, "F8_E8M0", 8),
    (DType::F6E2M3, "F6_E2M3", 6),
    (DType::F6E3M2, "F6_E3M2", 6),
    (DType::F4, "F4", 4),
    (DType::Bits1x8, "BITS1X8", 8),
    (DType::Bits2x4, "BITS2X4", 8),
    (DType::Bits4x2, "BITS4X2", 8),
    (DType::Bits8, "BITS8", 8),
    (DType::Bits16, "BITS16", 16),
];

impl DType {
    /// Every type, in the order of the codes.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.0)
    }

    /// The code in the file.
    #[must_use]
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// The type of a code in a file, if this version knows it.
    #[must_use]
    #[inline]
    pub fn from_code(code: u16) -> Option<Self> {
        let row = TABLE.get(usize::from(code).checked_sub(1)?)?;
        Some(row.0)
    }

    /// The name, as safetensors spells it where it has one.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The type of a name, exactly as [`DType::name`] spells it. `F8_E4M3FN` is `F8_E4M3`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let name = if name == "F8_E4M3FN" { "F8_E4M3" } else { name };
        TABLE.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// Bits of one element.
    #[must_use]
    #[inline]
    pub fn bits(self) -> u32 {
        self.row().2
    }

    /// Bytes of `elements` elements; `None` if they are no whole number of bytes or overflow.
    #[must_use]
    #[inline]
    pub fn bytes(self, elements: u64) -> Option<u64> {
        let bits = u128::from(elements) * u128::from(self.bits());
        if bits % 8 == 0 {
            u64::try_from(bits / 8).ok()
        } else {
            None
        }
    }

    /// Floating point (complex included): what a framework takes for a parameter.
    #[must_use]
    pub fn is_floating(self) -> bool {
        use DType::{
            Bf16, C32, C64, C128, F4, F6E2M3, F6E3M2, F8E4M3, F8E4M3Fnuz, F8E5M2, F8E5M2Fnuz,
            F8E8M0, F16, F32, F64,
        };
        matches!(
            self,
            Bf16 | C32
                | C64
                | C128
                | F4
                | F6E2M3
                | F6E3M2
                | F8E4M3
                | F8E4M3Fnuz
                | F8E5M2
                | F8E5M2Fnuz
                | F8E8M0
                | F16
                | F32
                | F64
        )
    }

    #[inline]
    fn row(self) -> &'static (Self, &'static str, u32) {
        &TABLE[usize::from(self.code()) - 1]
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_name_lead_back() {
        for dtype in DType::all() {
            assert_eq!(DType::from_code(dtype.code()), Some(dtype));
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
        }
        assert_eq!(DType::from_code(0), None);
        assert_eq!(DType::from_code(30), None);
        assert_eq!(DType::from_name("F8_E4M3FN"), Some(DType::F8E4M3));
    }

    #[test]
    fn sub_byte_sizes_are_whole_bytes_or_none() {
        assert_eq!(DType::F4.bytes(4), Some(2));
        assert_eq!(DType::F4.bytes(3), None);
        assert_eq!(DType::F6E2M3.bytes(4), Some(3));
        assert_eq!(DType::F64.bytes(u64::MAX), None);
    }
}
