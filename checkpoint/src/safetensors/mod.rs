//! The reader of safetensors files.
//!
//! The `safetensors` crate keeps the last of two equal keys, and its errors do not tell a cut file
//! from one with bytes behind. So the header is read here.

mod header;

use std::{path::Path, sync::Arc};

use wpack_format::DType;

use crate::{
    Error, Tensor, Warning,
    error::Name,
    file::{FileRange, SourceReader},
    opened::Opened,
};

use header::{Entry, Header};

/// Most bytes of a header, as in the reference implementation.
pub(crate) const HEADER_LIMIT: u64 = 100_000_000;
/// Most dimensions of a tensor; numpy stops there too.
pub(crate) const DIMENSION_LIMIT: usize = 64;
/// Bytes of the length field in front of the header.
const LENGTH_FIELD: u64 = 8;

/// Reads and checks the header; no tensor data.
pub(crate) fn open(file: Arc<SourceReader>, source_index: usize) -> Result<Opened, Error> {
    let (header, data_start) = read_header(&file)?;
    let path = file.path();
    let mut spans = header
        .entries
        .into_iter()
        .map(|entry| Span::new(entry, path))
        .collect::<Result<Vec<_>, _>>()?;
    // Tensors without bytes come before the one that begins where they do.
    spans.sort_by_key(|span| (span.begin, span.end));
    check_cover(&spans, path, data_start, file.size())?;

    let mut opened = Opened {
        container: "safetensors",
        metadata: header.metadata,
        ..Opened::default()
    };
    if spans.is_empty() {
        opened.warnings.push(Warning {
            code: "no-tensors",
            message: format!("{} holds no tensors", file.base_name()),
        });
    }
    opened.tensors.reserve_exact(spans.len());
    for span in spans {
        let offset = data_start.saturating_add(span.begin);
        let bytes = FileRange::new(Arc::clone(&file), offset, span.end - span.begin, &span.name)?;
        opened.tensors.push(Tensor {
            names: vec![span.name],
            dtype: span.dtype,
            stored_shape: stored_shape(span.dtype, &span.shape),
            shape: span.shape,
            source: source_index,
            bytes: Arc::new(bytes),
        });
    }
    Ok(opened)
}

/// Reads length field and header; gives where the data begin, too.
fn read_header(file: &SourceReader) -> Result<(Header, u64), Error> {
    let mut field = [0; 8];
    file.read_exact_at(0, &mut field, "the length field in front")?;
    let len = u64::from_le_bytes(field);
    if len > HEADER_LIMIT {
        let path = file.path().to_owned();
        return Err(Error::HeaderTooLarge {
            path,
            len,
            limit: HEADER_LIMIT,
        });
    }
    let text = file.read_vec(LENGTH_FIELD, len, "the header")?;
    let header = header::parse(file.path(), &text)?;
    Ok((header, LENGTH_FIELD + len))
}

/// A tensor whose size fits its shape and type: `end - begin` bytes, `begin <= end`.
struct Span {
    name: String,
    dtype: DType,
    shape: Vec<u64>,
    begin: u64,
    end: u64,
}

impl Span {
    fn new(entry: Entry, path: &Path) -> Result<Self, Error> {
        let Entry {
            name,
            dtype,
            shape,
            data_offsets: [begin, end],
        } = entry;
        let bad = |what: String| Error::BadHeader {
            path: path.to_owned(),
            what,
        };
        if name.chars().any(char::is_control) {
            return Err(bad(format!(
                "control character in the name {}",
                Name(&name)
            )));
        }
        let shown = Name(&name);
        let Some(dtype) = DType::from_name(&dtype) else {
            return Err(Error::UnsupportedDtype {
                path: path.to_owned(),
                tensor: name,
                dtype,
            });
        };
        if shape.len() > DIMENSION_LIMIT {
            return Err(bad(format!(
                "{shown} has {} dimensions, over the limit of {DIMENSION_LIMIT}",
                shape.len()
            )));
        }
        let elements = elements(&shape).ok_or_else(|| {
            bad(format!(
                "the dimensions {shape:?} of {shown}, zeros left out, multiply to more than 2^63-1"
            ))
        })?;
        let bytes = dtype.bytes(elements).ok_or_else(|| {
            bad(format!(
                "{elements} elements of {dtype} of {shown} are no whole number of bytes"
            ))
        })?;
        if begin > end {
            return Err(bad(format!(
                "{shown} begins at data offset {begin} and ends at {end}"
            )));
        }
        if end - begin != bytes {
            return Err(bad(format!(
                "{shown} needs {bytes} bytes for {dtype} {shape:?}, its data offsets {begin} to {end} give {}",
                end - begin
            )));
        }
        Ok(Self {
            name,
            dtype,
            shape,
            begin,
            end,
        })
    }
}

/// Elements of a shape; none if the dimensions, zeros left out, multiply to more than `i64::MAX`:
/// then no partial product overflows, in whatever order a reader takes them.
fn elements(shape: &[u64]) -> Option<u64> {
    let limit = i64::MAX.unsigned_abs();
    let product = shape.iter().try_fold(1_u64, |product, dim| {
        product
            .checked_mul((*dim).max(1))
            .filter(|product| *product <= limit)
    })?;
    Some(if shape.contains(&0) { 0 } else { product })
}

/// Every byte behind the header belongs to exactly one tensor. `spans` ascend.
fn check_cover(spans: &[Span], path: &Path, data_start: u64, size: u64) -> Result<(), Error> {
    let mut expected = 0;
    let mut before: Option<&Span> = None;
    for span in spans {
        if span.begin > expected {
            return Err(Error::Hole {
                path: path.to_owned(),
                tensor: span.name.clone(),
                expected,
                found: span.begin,
            });
        }
        if span.begin < expected {
            return Err(Error::Overlap {
                path: path.to_owned(),
                a: before.map(|before| before.name.clone()).unwrap_or_default(),
                b: span.name.clone(),
                end: expected,
                begin: span.begin,
            });
        }
        expected = span.end;
        before = Some(span);
    }
    let end = data_start.saturating_add(expected);
    if end > size {
        let last = before.map(|span| span.name.as_str()).unwrap_or_default();
        return Err(Error::Truncated {
            path: path.to_owned(),
            what: format!("the last tensor {}", Name(last)),
            need: end,
            have: size,
        });
    }
    if end < size {
        return Err(Error::TrailingBytes {
            path: path.to_owned(),
            end,
            size,
        });
    }
    Ok(())
}

/// The shape as torch has it: two `F4` elements are one element of `float4_e2m1fn_x2`.
fn stored_shape(dtype: DType, shape: &[u64]) -> Vec<u64> {
    let mut stored = shape.to_vec();
    if dtype == DType::F4
        && let Some(last) = stored.last_mut()
        && *last % 2 == 0
    {
        *last /= 2;
    }
    stored
}
