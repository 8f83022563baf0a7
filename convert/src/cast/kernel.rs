//! One loop for each pair of types, so that each is compiled (and as a rule vectorised) by itself.

use wpack_format::DType;

use super::{float8, half_width};

/// NaN of bfloat16 as torch narrows binary32 and binary64 to it in vectors.
const BF16_NAN_VECTOR: u16 = 0xffff;
/// NaN of bfloat16 as torch gives it otherwise.
const BF16_NAN: u16 = 0x7fc0;

/// Converts as many elements as both slices hold. The pair must be supported.
#[expect(clippy::cast_precision_loss, reason = "rounding is the purpose")]
pub(super) fn convert(from: DType, to: DType, src: &[u8], dst: &mut [u8]) {
    /// Widths and a way to binary32 for sources whose values all go through it.
    macro_rules! by_f32 {
        ($width:literal, $nan:expr, |$bytes:ident| $bits:expr) => {
            encode(
                to,
                src,
                dst,
                $nan,
                |$bytes: [u8; $width]| $bits,
                |$bytes: [u8; $width]| half_width::f64_from($bits),
            )
        };
    }
    /// For integers: exact in binary64 or rounded once on the way there, and once to binary32.
    macro_rules! integer {
        ($width:literal, |$bytes:ident| $value:expr) => {
            encode(
                to,
                src,
                dst,
                BF16_NAN,
                |$bytes: [u8; $width]| {
                    let value = $value as f32;
                    value.to_bits()
                },
                |$bytes: [u8; $width]| {
                    let value = $value as f64;
                    value.to_bits()
                },
            )
        };
    }
    match from {
        DType::Bool => integer!(1, |b| u8::from(b != [0])),
        DType::U8 => integer!(1, |b| u8::from_le_bytes(b)),
        DType::I8 => integer!(1, |b| i8::from_le_bytes(b)),
        DType::U16 => integer!(2, |b| u16::from_le_bytes(b)),
        DType::I16 => integer!(2, |b| i16::from_le_bytes(b)),
        DType::U32 => integer!(4, |b| u32::from_le_bytes(b)),
        DType::I32 => integer!(4, |b| i32::from_le_bytes(b)),
        DType::U64 => integer!(8, |b| u64::from_le_bytes(b)),
        DType::I64 => integer!(8, |b| i64::from_le_bytes(b)),
        DType::F16 => by_f32!(2, BF16_NAN, |b| half_width::f16_to(u16::from_le_bytes(b))),
        DType::Bf16 => by_f32!(2, BF16_NAN, |b| half_width::bf16_to(u16::from_le_bytes(b))),
        DType::F32 => by_f32!(4, BF16_NAN_VECTOR, |b| u32::from_le_bytes(b)),
        DType::F64 => encode(
            to,
            src,
            dst,
            BF16_NAN_VECTOR,
            |b: [u8; 8]| half_width::f64_to(u64::from_le_bytes(b)),
            u64::from_le_bytes,
        ),
        DType::F8E4M3 => by_f32!(1, BF16_NAN, |b| look_up(&float8::E4M3, b)),
        DType::F8E5M2 => by_f32!(1, BF16_NAN, |b| look_up(&float8::E5M2, b)),
        DType::F8E4M3Fnuz => by_f32!(1, BF16_NAN, |b| look_up(&float8::E4M3FNUZ, b)),
        DType::F8E5M2Fnuz => by_f32!(1, BF16_NAN, |b| look_up(&float8::E5M2FNUZ, b)),
        DType::F8E8M0 => by_f32!(1, BF16_NAN, |b| look_up(&float8::E8M0, b)),
        _ => debug_assert!(false, "{from} is no source"),
    }
}

fn encode<const N: usize>(
    to: DType,
    src: &[u8],
    dst: &mut [u8],
    bf16_nan: u16,
    to_f32: impl Fn([u8; N]) -> u32,
    to_f64: impl Fn([u8; N]) -> u64,
) {
    match to {
        DType::F16 => map(src, dst, |b| half_width::f16_from(to_f32(b)).to_le_bytes()),
        DType::Bf16 => map(src, dst, |b| {
            half_width::bf16_from(to_f32(b), bf16_nan).to_le_bytes()
        }),
        DType::F32 => map(src, dst, |b| to_f32(b).to_le_bytes()),
        DType::F64 => map(src, dst, |b| to_f64(b).to_le_bytes()),
        DType::F8E4M3 => map(src, dst, |b| [float8::e4m3_from(to_f32(b))]),
        DType::F8E5M2 => map(src, dst, |b| [float8::e5m2_from(to_f32(b))]),
        DType::F8E4M3Fnuz => map(src, dst, |b| [float8::e4m3fnuz_from(to_f32(b))]),
        DType::F8E5M2Fnuz => map(src, dst, |b| [float8::e5m2fnuz_from(to_f32(b))]),
        DType::F8E8M0 => map(src, dst, |b| [float8::e8m0_from(to_f32(b))]),
        _ => debug_assert!(false, "{to} is no target"),
    }
}

fn map<const N: usize, const M: usize>(src: &[u8], dst: &mut [u8], f: impl Fn([u8; N]) -> [u8; M]) {
    let (src, dst) = (src.as_chunks::<N>().0, dst.as_chunks_mut::<M>().0);
    for (from, to) in src.iter().zip(dst) {
        *to = f(*from);
    }
}

fn look_up(table: &[u32; 256], [byte]: [u8; 1]) -> u32 {
    table[usize::from(byte)]
}
