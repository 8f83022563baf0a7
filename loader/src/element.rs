//! Rust types for element types.

use wpack_format::DType;
use zerocopy::{FromBytes, Immutable};

use crate::Error;

// A pack is little-endian and so are the views.
#[cfg(not(target_endian = "little"))]
compile_error!("wpack-loader gives typed views of little-endian bytes and needs such a host");

mod sealed {
    pub trait Sealed {}
}

/// A Rust type whose values are the elements of one or more [`DType`]s, any bits being valid.
pub trait Element: FromBytes + Immutable + sealed::Sealed + Sized {
    /// True if elements of `dtype` are values of this type.
    fn is(dtype: DType) -> bool;
}

macro_rules! element {
    ($($type:ty: $($dtype:ident)|+;)+) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            fn is(dtype: DType) -> bool {
                matches!(dtype, $(DType::$dtype)|+)
            }
        }
    )+};
}

element! {
    u8: U8 | Bool | F8E4M3 | F8E5M2 | F8E4M3Fnuz | F8E5M2Fnuz | F8E8M0 | Bits1x8 | Bits2x4
        | Bits4x2 | Bits8;
    i8: I8;
    u16: U16 | Bits16;
    i16: I16;
    u32: U32;
    i32: I32;
    u64: U64;
    i64: I64;
    half::f16: F16;
    half::bf16: Bf16;
    f32: F32;
    f64: F64;
    [half::f16; 2]: C32;
    [f32; 2]: C64;
    [f64; 2]: C128;
}

/// Bytes as elements.
pub(crate) fn elements<T: Element>(dtype: DType, bytes: &[u8]) -> Result<&[T], Error> {
    if !T::is(dtype) {
        return Err(Error::WrongType {
            type_name: std::any::type_name::<T>(),
            found: dtype,
        });
    }
    <[T]>::ref_from_bytes(bytes).map_err(|_| Error::Unaligned {
        align: align_of::<T>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_alignment_are_checked() {
        let words = [1.5_f32, -2.0];
        let bytes = zerocopy::IntoBytes::as_bytes(&words);
        assert_eq!(elements::<f32>(DType::F32, bytes).unwrap(), words);
        assert_eq!(elements::<[f32; 2]>(DType::C64, bytes).unwrap(), [words]);
        assert_eq!(
            elements::<u32>(DType::F32, bytes).unwrap_err().code(),
            "wrong-type"
        );
        let odd = bytes.get(1..5).unwrap();
        assert_eq!(
            elements::<f32>(DType::F32, odd).unwrap_err().code(),
            "unaligned"
        );
        assert_eq!(elements::<u8>(DType::F8E4M3, odd).unwrap(), odd);
    }
}
