//! The one look at data: booleans that are neither 0 nor 1.

use wpack_format::DType;

use crate::{Checkpoint, Error, Tensor, Warning, error};

/// Most bytes of a boolean tensor that [`crate::open`] looks at.
pub const BOOL_SCAN_LIMIT: u64 = 1 << 20;
/// Most bytes looked at in all.
const TOTAL_LIMIT: u64 = 16 << 20;

/// A warning if a boolean has another byte than 0 or 1: frameworks disagree on what it means, so
/// the bytes are kept and the user is told.
pub(crate) fn odd_booleans(checkpoint: &Checkpoint) -> Result<Option<Warning>, Error> {
    let mut left = TOTAL_LIMIT;
    let mut odd = Vec::new();
    for component in &checkpoint.components {
        for tensor in &component.tensors {
            let len = tensor.bytes.len();
            if tensor.dtype != DType::Bool || len > BOOL_SCAN_LIMIT.min(left) {
                continue;
            }
            left -= len;
            if is_odd(tensor)? {
                odd.extend(tensor.names.first().cloned());
            }
        }
    }
    let message = || format!("bytes other than 0 and 1 are kept in {}", error::list(&odd));
    Ok((!odd.is_empty()).then(|| Warning {
        code: "bool-not-0-1",
        message: message(),
    }))
}

fn is_odd(tensor: &Tensor) -> Result<bool, Error> {
    let mut buffer = [0; 8192];
    let len = tensor.bytes.len();
    let mut at = 0;
    while at < len {
        let step = usize::try_from(len - at)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let Some(part) = buffer.get_mut(..step) else {
            break;
        };
        tensor.bytes.read_at(at, part)?;
        if part.iter().any(|byte| *byte > 1) {
            return Ok(true);
        }
        at = at.saturating_add(u64::try_from(step).unwrap_or(u64::MAX));
    }
    Ok(false)
}
