//! One tensor of a shard for consumers other than torch: DLPack and numpy's array interface.

use pyo3::{
    exceptions::{PyBufferError, PyValueError},
    prelude::*,
    types::{PyBytes, PyDict, PyTuple},
};
use wpack_format::DType;

use crate::dlpack::{CPU, ElementType, Span, plain_capsule, versioned_capsule};

/// DLPack's codes for kinds of elements.
mod kind {
    pub(super) const INT: u8 = 0;
    pub(super) const UINT: u8 = 1;
    pub(super) const FLOAT: u8 = 2;
    pub(super) const BFLOAT: u8 = 4;
    pub(super) const COMPLEX: u8 = 5;
    pub(super) const BOOL: u8 = 6;
    pub(super) const F8_E4M3FN: u8 = 10;
    pub(super) const F8_E4M3FNUZ: u8 = 11;
    pub(super) const F8_E5M2: u8 = 12;
    pub(super) const F8_E5M2FNUZ: u8 = 13;
    pub(super) const F8_E8M0FNU: u8 = 14;
}

/// The element type as DLPack 1.1 names it; none for packed types, whose elements are no whole bytes.
/// Plain bits are unsigned integers: DLPack's opaque code stands for handles, and no consumer takes it.
pub(crate) fn element_type(dtype: DType) -> Option<ElementType> {
    let code = match dtype {
        DType::Bool => kind::BOOL,
        DType::U8
        | DType::U16
        | DType::U32
        | DType::U64
        | DType::Bits1x8
        | DType::Bits2x4
        | DType::Bits4x2
        | DType::Bits8
        | DType::Bits16 => kind::UINT,
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => kind::INT,
        DType::F16 | DType::F32 | DType::F64 => kind::FLOAT,
        DType::Bf16 => kind::BFLOAT,
        DType::C32 | DType::C64 | DType::C128 => kind::COMPLEX,
        DType::F8E4M3 => kind::F8_E4M3FN,
        DType::F8E5M2 => kind::F8_E5M2,
        DType::F8E4M3Fnuz => kind::F8_E4M3FNUZ,
        DType::F8E5M2Fnuz => kind::F8_E5M2FNUZ,
        DType::F8E8M0 => kind::F8_E8M0FNU,
        _ => return None,
    };
    Some(ElementType {
        code,
        bits: u8::try_from(dtype.bits()).ok()?,
        lanes: 1,
    })
}

/// Unsigned bytes.
pub(crate) const BYTE: ElementType = ElementType {
    code: kind::UINT,
    bits: 8,
    lanes: 1,
};

/// numpy's type string; packed types are bytes, plain bits unsigned integers, types that numpy lacks are
/// raw records of their width.
fn type_string(dtype: DType) -> String {
    let bytes = dtype.bits() / 8;
    match dtype {
        DType::Bool => "|b1".to_owned(),
        DType::U8
        | DType::F4
        | DType::F6E2M3
        | DType::F6E3M2
        | DType::Bits1x8
        | DType::Bits2x4
        | DType::Bits4x2
        | DType::Bits8 => "|u1".to_owned(),
        DType::I8 => "|i1".to_owned(),
        DType::U16 | DType::U32 | DType::U64 | DType::Bits16 => format!("<u{bytes}"),
        DType::I16 | DType::I32 | DType::I64 => format!("<i{bytes}"),
        DType::F16 | DType::F32 | DType::F64 => format!("<f{bytes}"),
        DType::C64 | DType::C128 => format!("<c{bytes}"),
        _ => format!("|V{bytes}"),
    }
}

/// One tensor of a shard, over the pack's own memory.
///
/// Works without torch: `numpy.asarray(view)`, `numpy.from_dlpack(view)`, `jax.numpy.from_dlpack(view)` and
/// any other DLPack consumer see the mapping itself, which lives as long as what they made of it.
#[pyclass(frozen, module = "wpack")]
pub(crate) struct View {
    pub(crate) span: Span,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<i64>,
}

#[pymethods]
impl View {
    /// Element type, as safetensors names it: `"BF16"`.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    /// Elements per dimension; two packed fp4 values count as one.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// Bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.span.len()
    }

    /// True where the pack was opened with `read_only=True`: a write would end the process.
    #[getter]
    fn read_only(&self) -> bool {
        self.span.is_read_only()
    }

    /// A copy of the bytes.
    fn bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        PyBytes::new_with(py, self.span.len(), |into| {
            self.span.copy_to(into);
            Ok(())
        })
    }

    /// numpy's array interface, version 3. Types that numpy lacks (bfloat16, fp8) come as raw records of
    /// their width, packed fp4 as bytes, and torch's bits as unsigned integers.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", PyTuple::new(py, &self.shape)?)?;
        interface.set_item("typestr", type_string(self.dtype))?;
        interface.set_item("data", (self.span.address(), self.span.is_read_only()))?;
        Ok(interface)
    }

    /// Device of the memory: the CPU.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (CPU, 0)
    }

    /// A DLPack capsule, versioned if the consumer's `max_version` is 1.0 or later.
    ///
    /// Raises:
    ///     BufferError: a copy was asked for, another device, or read-only memory by a consumer that cannot
    ///         know it is.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stream.is_some() {
            return Err(PyValueError::new_err("memory of the CPU has no stream"));
        }
        if copy == Some(true) {
            return Err(PyBufferError::new_err(
                "wpack hands out its own memory; copy it afterwards",
            ));
        }
        if dl_device.is_some_and(|device| device != (CPU, 0)) {
            return Err(PyBufferError::new_err(
                "the memory is on the CPU and is not moved",
            ));
        }
        let dtype = element_type(self.dtype).unwrap_or(BYTE);
        if max_version.is_some_and(|(major, _)| major >= 1) {
            versioned_capsule(py, self.span.clone(), dtype, &self.shape)
        } else if self.span.is_read_only() {
            Err(PyBufferError::new_err(
                "the pack is open read-only, which DLPack before 1.0 cannot say; open it without read_only",
            ))
        } else {
            plain_capsule(py, self.span.clone(), dtype, &self.shape)
        }
    }

    fn __repr__(&self) -> String {
        format!(
            "wpack.View(dtype={}, shape={:?}, nbytes={})",
            self.dtype,
            self.shape,
            self.span.len()
        )
    }
}
