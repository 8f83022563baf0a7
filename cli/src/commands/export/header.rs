//! The header of a safetensors file, and where each tensor goes.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use wpack_format::{DType, Tensor};

use crate::Error;

const METADATA: &str = "__metadata__";

/// A file laid out.
#[derive(Debug)]
pub(super) struct Placed {
    /// Length and header, padded to 8 bytes.
    pub(super) header: Vec<u8>,
    /// First byte in the file, for each tensor and each of its names: the format has no ties.
    pub(super) places: Vec<Vec<u64>>,
    /// Bytes of each tensor.
    pub(super) lens: Vec<u64>,
    /// Bytes of the file.
    pub(super) file_len: u64,
}

/// Lays a file out: tensors of wide elements first, so that each lies at a multiple of its element.
pub(super) fn place(
    component: &str,
    tensors: &[Tensor],
    metadata: &BTreeMap<String, String>,
) -> Result<Placed, Error> {
    let mut order: Vec<(usize, &Tensor)> = tensors.iter().enumerate().collect();
    order.sort_by_key(|(_, tensor)| std::cmp::Reverse(tensor.dtype.bits()));
    let mut entries = Map::new();
    let mut places = vec![Vec::new(); tensors.len()];
    let mut lens = vec![0; tensors.len()];
    // Readers take `format` to choose a framework; a checkpoint that was no safetensors has none.
    let format = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    let metadata = if metadata.is_empty() {
        &format
    } else {
        metadata
    };
    entries.insert(METADATA.to_owned(), json!(metadata));
    let mut end = 0u64;
    for (at, tensor) in order {
        let len = tensor
            .dtype
            .bytes(crate::report::elements(&tensor.shape))
            .unwrap_or(u64::MAX);
        let first = tensor
            .names
            .first()
            .map(|name| name.name.as_str())
            .unwrap_or_default();
        let refuse = |why: String| Error::NotExportable {
            component: component.to_owned(),
            tensor: first.to_owned(),
            why,
        };
        if !has_name(tensor.dtype) {
            return Err(refuse(format!(
                "safetensors has no type for {}",
                tensor.dtype
            )));
        }
        for name in &tensor.names {
            let begin = end;
            end = end
                .checked_add(len)
                .ok_or_else(|| refuse("too many bytes".to_owned()))?;
            if name.name == METADATA {
                return Err(refuse(
                    "safetensors keeps this name for its metadata".to_owned(),
                ));
            }
            let entry = json!({
                "dtype": tensor.dtype.name(),
                "shape": tensor.shape,
                "data_offsets": [begin, end],
            });
            entries.insert(name.name.clone(), entry);
            if let Some(places) = places.get_mut(at) {
                places.push(begin);
            }
        }
        if let Some(slot) = lens.get_mut(at) {
            *slot = len;
        }
    }
    let mut text = Value::Object(entries).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut header = (text.len() as u64).to_le_bytes().to_vec();
    header.append(&mut text);
    let data = header.len() as u64;
    for place in places.iter_mut().flatten() {
        *place = place.saturating_add(data);
    }
    Ok(Placed {
        header,
        places,
        lens,
        file_len: end.saturating_add(data),
    })
}

/// Whether safetensors can name the type.
fn has_name(dtype: DType) -> bool {
    !matches!(
        dtype,
        DType::C32
            | DType::C128
            | DType::Bits1x8
            | DType::Bits2x4
            | DType::Bits4x2
            | DType::Bits8
            | DType::Bits16
    )
}
