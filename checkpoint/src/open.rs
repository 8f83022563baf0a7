//! Opens inputs: every header is read and checked before anything is written anywhere.

use crate::{
    Checkpoint, Error, Input, OpenOptions, merge::Merge, resolve::resolve, values::odd_booleans,
};

/// Opens one or several inputs as one checkpoint.
///
/// Inputs of one component are merged; a name that occurs twice in it is an error. Headers are read
/// and checked against the length of each file, and no tensor is given that its file cannot back.
/// Of the data, only boolean tensors of at most [`crate::BOOL_SCAN_LIMIT`] bytes are looked at.
pub fn open(inputs: &[Input], options: &OpenOptions) -> Result<Checkpoint, Error> {
    let resolved = resolve(inputs)?;
    let mut merge = Merge::new(resolved.warnings);
    for unit in resolved.units {
        merge.add(unit, options)?;
    }
    merge.add_files(resolved.files);
    let mut checkpoint = merge.finish();
    let odd = odd_booleans(&checkpoint)?;
    checkpoint.warnings.extend(odd);
    Ok(checkpoint)
}
