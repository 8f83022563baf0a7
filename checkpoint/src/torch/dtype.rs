//! Element types by the names that PyTorch gives them.
//!
//! Names: `torch/storage.py` (`_dtype_to_storage_type_map`, `_new_dtypes`) of PyTorch 2.11.

use wpack_format::DType;

/// The type of a `torch.*` name: none for names that are no types, `Some(None)` for types whose
/// bytes mean nothing by themselves.
fn lookup(name: &str) -> Option<Option<DType>> {
    Some(Some(match name {
        "bool" => DType::Bool,
        "uint8" => DType::U8,
        "int8" => DType::I8,
        "uint16" => DType::U16,
        "int16" | "short" => DType::I16,
        "uint32" => DType::U32,
        "int32" | "int" => DType::I32,
        "uint64" => DType::U64,
        "int64" | "long" => DType::I64,
        "float16" | "half" => DType::F16,
        "bfloat16" => DType::Bf16,
        "float32" | "float" => DType::F32,
        "float64" | "double" => DType::F64,
        "complex32" | "chalf" => DType::C32,
        "complex64" | "cfloat" => DType::C64,
        "complex128" | "cdouble" => DType::C128,
        "float8_e4m3fn" => DType::F8E4M3,
        "float8_e5m2" => DType::F8E5M2,
        "float8_e4m3fnuz" => DType::F8E4M3Fnuz,
        "float8_e5m2fnuz" => DType::F8E5M2Fnuz,
        "float8_e8m0fnu" => DType::F8E8M0,
        "float4_e2m1fn_x2" => DType::F4,
        "bits1x8" => DType::Bits1x8,
        "bits2x4" => DType::Bits2x4,
        "bits4x2" => DType::Bits4x2,
        "bits8" => DType::Bits8,
        "bits16" => DType::Bits16,
        "quint8" | "qint8" | "qint32" | "quint4x2" | "quint2x4" => return Some(None),
        _ => {
            let small = name
                .strip_prefix("uint")
                .or_else(|| name.strip_prefix("int"));
            return matches!(small, Some("1" | "2" | "3" | "4" | "5" | "6" | "7")).then_some(None);
        }
    }))
}

/// Whether `torch.NAME` is an element type.
pub(crate) fn is_dtype(name: &str) -> bool {
    lookup(name).is_some()
}

/// The element type `torch.NAME`, if its values can be kept.
pub(super) fn dtype(name: &str) -> Option<DType> {
    lookup(name).flatten()
}

/// What a storage class holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Elements of one type.
    Typed(DType),
    /// Elements of a quantized type: bytes per element.
    Quantized(u64),
    /// Bytes.
    Untyped,
}

impl Class {
    /// Of the name of a storage class.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name.strip_suffix("Storage")? {
            "Untyped" | "" | "_Untyped" => Self::Untyped,
            "QInt8" | "QUInt8" | "QUInt4x2" | "QUInt2x4" => Self::Quantized(1),
            "QInt32" => Self::Quantized(4),
            "Bool" => Self::Typed(DType::Bool),
            "Byte" => Self::Typed(DType::U8),
            "Char" => Self::Typed(DType::I8),
            "Short" => Self::Typed(DType::I16),
            "Int" => Self::Typed(DType::I32),
            "Long" => Self::Typed(DType::I64),
            "Half" => Self::Typed(DType::F16),
            "BFloat16" => Self::Typed(DType::Bf16),
            "Float" => Self::Typed(DType::F32),
            "Double" => Self::Typed(DType::F64),
            "ComplexFloat" => Self::Typed(DType::C64),
            "ComplexDouble" => Self::Typed(DType::C128),
            _ => return None,
        })
    }

    /// Bytes of one of the elements that the number of elements counts.
    pub(super) fn width(self) -> u64 {
        match self {
            Self::Typed(dtype) => width(dtype),
            Self::Quantized(bytes) => bytes,
            Self::Untyped => 1,
        }
    }
}

/// Bytes of one element as PyTorch stores it: a packed pair of 4-bit values is one.
pub(super) fn width(dtype: DType) -> u64 {
    u64::from(dtype.bits()).div_ceil(8)
}

/// Bytes of what a byte order applies to: half of a complex number.
pub(super) fn swap_width(dtype: DType) -> usize {
    match dtype {
        DType::C32 | DType::U16 | DType::I16 | DType::F16 | DType::Bf16 | DType::Bits16 => 2,
        DType::C64 | DType::U32 | DType::I32 | DType::F32 => 4,
        DType::C128 | DType::U64 | DType::I64 | DType::F64 => 8,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_is_known_by_one_name_of_its_own() {
        for name in [
            "float4_e2m1fn_x2",
            "bits16",
            "chalf",
            "uint64",
            "float8_e8m0fnu",
        ] {
            assert!(dtype(name).is_some(), "{name}");
        }
        for name in ["int4", "uint7", "qint8"] {
            assert!(is_dtype(name) && dtype(name).is_none(), "{name}");
        }
        for name in ["int9", "Tensor", "int0", ""] {
            assert!(!is_dtype(name), "{name}");
        }
    }

    #[test]
    fn storage_classes() {
        assert_eq!(
            Class::from_name("HalfStorage"),
            Some(Class::Typed(DType::F16))
        );
        assert_eq!(Class::from_name("UntypedStorage"), Some(Class::Untyped));
        assert_eq!(Class::from_name("QInt32Storage").map(Class::width), Some(4));
        assert_eq!(Class::from_name("TypedStorage"), None);
        assert_eq!(width(DType::F4), 1);
        assert_eq!(width(DType::C128), 16);
    }
}
