//! Framework tensors over mapped memory, in a loop that costs about a microsecond for each.

use pyo3::{
    intern,
    prelude::*,
    types::{PyDict, PyTuple},
};
use wpack_format::DType;

use crate::{
    dlpack::{Span, plain_capsule},
    shard::Slot,
    view::{BYTE, element_type},
};

/// How elements of one type reach the framework.
enum Way<'py> {
    /// Its DLPack import knows the type, in every supported version.
    Direct,
    /// As bytes, then viewed as this type of the framework.
    Viewed(Bound<'py, PyAny>),
    /// The framework has no such type.
    Missing,
}

/// Makes tensors.
pub(crate) struct Converter<'py> {
    convert: Bound<'py, PyAny>,
    /// By the type's code.
    ways: Vec<Way<'py>>,
}

impl<'py> Converter<'py> {
    /// `convert` takes a capsule; `dtypes` maps the pack's names to the framework's types.
    pub(crate) fn new(convert: &Bound<'py, PyAny>, dtypes: &Bound<'py, PyDict>) -> PyResult<Self> {
        let mut ways = vec![Way::Missing];
        for dtype in DType::all() {
            ways.push(match dtypes.get_item(dtype.name())? {
                None => Way::Missing,
                Some(_) if is_direct(dtype) => Way::Direct,
                Some(ours) => Way::Viewed(ours),
            });
        }
        Ok(Self {
            convert: convert.clone(),
            ways,
        })
    }

    /// The tensor of a slot over its memory, with a storage of its own.
    pub(crate) fn tensor(&self, slot: &Slot, span: Span) -> PyResult<Bound<'py, PyAny>> {
        let py = self.convert.py();
        match self.ways.get(usize::from(slot.dtype.code())) {
            Some(Way::Direct) => {
                let dtype = element_type(slot.dtype).unwrap_or(BYTE);
                self.convert
                    .call1((plain_capsule(py, span, dtype, &slot.shape)?,))
            }
            Some(Way::Viewed(dtype)) => {
                let width = i64::from(slot.dtype.bits().div_ceil(8));
                let mut shape = slot.shape.clone();
                let scalar = shape.is_empty() && width > 1;
                match shape.last_mut() {
                    Some(last) => *last = last.saturating_mul(width),
                    None if scalar => shape.push(width),
                    None => {}
                }
                let bytes = self
                    .convert
                    .call1((plain_capsule(py, span, BYTE, &shape)?,))?;
                let tensor = bytes.call_method1(intern!(py, "view"), (dtype,))?;
                if scalar {
                    return tensor.call_method1(intern!(py, "view"), (PyTuple::empty(py),));
                }
                Ok(tensor)
            }
            Some(Way::Missing) | None => {
                let torch = py.import(intern!(py, "wpack._torch"))?;
                let key = slot.keys.first().map_or("", String::as_str);
                let error =
                    torch.call_method1(intern!(py, "unsupported"), (slot.dtype.name(), key))?;
                Err(PyErr::from_value(error))
            }
        }
    }
}

/// Types that torch 2.5 and everything since import through DLPack under their own code.
fn is_direct(dtype: DType) -> bool {
    matches!(
        dtype,
        DType::Bool
            | DType::U8
            | DType::I8
            | DType::I16
            | DType::I32
            | DType::I64
            | DType::F16
            | DType::Bf16
            | DType::F32
            | DType::F64
            | DType::C64
            | DType::C128
    )
}

/// A dict in the making.
pub(crate) struct Dict<'py> {
    converter: Converter<'py>,
    dict: Bound<'py, PyDict>,
}

impl<'py> Dict<'py> {
    pub(crate) fn new(converter: Converter<'py>) -> Self {
        let dict = PyDict::new(converter.convert.py());
        Self { converter, dict }
    }

    /// Adds a slot's tensor under all its keys: ties are tensors of their own over one storage.
    pub(crate) fn insert(&mut self, slot: &Slot, span: Span) -> PyResult<()> {
        let tensor = self.converter.tensor(slot, span)?;
        let Some((first, ties)) = slot.keys.split_first() else {
            return Ok(());
        };
        self.dict.set_item(first, &tensor)?;
        for key in ties {
            self.dict
                .set_item(key, tensor.call_method0(intern!(tensor.py(), "detach"))?)?;
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Bound<'py, PyDict> {
        self.dict
    }
}
