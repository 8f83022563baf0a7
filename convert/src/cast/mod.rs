//! Element type conversion, bit for bit as `torch.Tensor.to` of torch 2.11 does it on a CPU.
//!
//! Sources are all real types that torch can compute with, targets all its real floating types.
//!
//! * Rounding is to nearest, ties to even. The 8-bit and 16-bit targets are reached by way of binary32,
//!   as in torch, so binary64 and wide integers are rounded twice.
//! * Too large a value becomes infinity where the target has one, else its NaN. Nothing saturates.
//! * `F8_E8M0` drops the sign and rounds to a power of two as torch does.
//! * NaN payloads: torch does not agree with itself there, the result depends on instruction set, stride
//!   and the place in the array. This module gives what the vector code of AVX2 and later gives in
//!   the body of a contiguous array. `tests/cast` compares the two.
//!
//! Conversions to integers and bool are not offered: torch leaves values out of range undefined.

mod float8;
mod half_width;
mod kernel;
#[cfg(test)]
mod tests;

use wpack_format::DType;

use crate::Error;

/// True when [`convert_elements`] can convert `from` to `to`.
#[must_use]
pub fn is_supported(from: DType, to: DType) -> bool {
    from == to || (is_source(from) && is_target(to))
}

/// True for the types that [`convert_elements`] converts to: the real floating types of whole bytes.
#[must_use]
pub fn is_target(dtype: DType) -> bool {
    matches!(
        dtype,
        DType::F16
            | DType::Bf16
            | DType::F32
            | DType::F64
            | DType::F8E4M3
            | DType::F8E5M2
            | DType::F8E4M3Fnuz
            | DType::F8E5M2Fnuz
            | DType::F8E8M0
    )
}

fn is_source(dtype: DType) -> bool {
    is_target(dtype)
        || matches!(
            dtype,
            DType::Bool
                | DType::U8
                | DType::I8
                | DType::U16
                | DType::I16
                | DType::U32
                | DType::I32
                | DType::U64
                | DType::I64
        )
}

/// Converts the little-endian elements of `src` into those of `dst`.
///
/// # Errors
///
/// [`Error::CastUnsupported`] for a pair that torch leaves undefined or that is no cast of real numbers,
/// [`Error::CastLength`] when the two slices do not hold the same whole number of elements.
///
/// ```
/// use wpack_convert::cast::convert_elements;
/// use wpack_format::DType;
///
/// let mut out = [0; 2];
/// convert_elements(DType::F32, DType::Bf16, &1.0f32.to_le_bytes(), &mut out)?;
/// assert_eq!(out, [0x80, 0x3f]);
/// # Ok::<(), wpack_convert::Error>(())
/// ```
pub fn convert_elements(from: DType, to: DType, src: &[u8], dst: &mut [u8]) -> Result<(), Error> {
    let (from_width, to_width) = (width(from), width(to));
    if !is_supported(from, to) {
        return Err(Error::CastUnsupported { from, to });
    }
    let whole = src.len().is_multiple_of(from_width) && dst.len().is_multiple_of(to_width);
    if !whole || src.len() / from_width != dst.len() / to_width {
        return Err(Error::CastLength {
            from,
            to,
            source_len: src.len(),
            target_len: dst.len(),
        });
    }
    if from == to {
        dst.copy_from_slice(src);
    } else {
        kernel::convert(from, to, src, dst);
    }
    Ok(())
}

/// Bytes of an element of a supported type; 1 for the others, which are refused.
fn width(dtype: DType) -> usize {
    match dtype.bits() {
        16 => 2,
        32 => 4,
        64 => 8,
        128 => 16,
        _ => 1,
    }
}
