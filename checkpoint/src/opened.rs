//! What the reader of one file gives.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    Error, OpenOptions, Skipped, Tensor, Warning,
    detect::{Container, detect},
    file::SourceReader,
    safetensors, torch,
};

/// One file, read and checked.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    /// Name of the container, see [`Container::name`].
    pub(crate) container: &'static str,
    /// Path of the state dict inside the object, dots between keys; empty for the object itself.
    pub(crate) root: String,
    /// Tensors in the order of the container; `source` is the index that was passed in.
    pub(crate) tensors: Vec<Tensor>,
    /// Text metadata of the container.
    pub(crate) metadata: BTreeMap<String, String>,
    /// Non-tensor values left out.
    pub(crate) skipped: Vec<Skipped>,
    /// Things noticed.
    pub(crate) warnings: Vec<Warning>,
}

/// Reads the file for what its content says it is.
pub(crate) fn open_file(
    file: &Arc<SourceReader>,
    source_index: usize,
    options: &OpenOptions,
) -> Result<Opened, Error> {
    let container = detect(file)?;
    let mut opened = match container {
        Container::Safetensors => safetensors::open(Arc::clone(file), source_index),
        Container::TorchZip | Container::TorchLegacy | Container::TorchTar => {
            torch::open(Arc::clone(file), container, source_index, options)
        }
    }?;
    // Among many files a warning is of no use without the name of its own.
    let name = file.base_name();
    for warning in &mut opened.warnings {
        if !warning.message.contains(&name) {
            warning.message = format!("{name}: {}", warning.message);
        }
    }
    if let Some(warning) = container.extension_warning(file.path()) {
        opened.warnings.insert(0, warning);
    }
    Ok(opened)
}
