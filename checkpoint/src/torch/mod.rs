//! What `torch.save` writes: the zip of 1.6 and later, the stream before, the tar before that.
//!
//! Read from PyTorch 0.1.10 to 2.11: `torch/serialization.py`, `torch/_utils.py`,
//! `torch/_tensor.py`, `torch/storage.py`, `caffe2/serialize/inline_container.cc`.

mod archive;
mod blocks;
mod coverage;
mod dense;
mod dtype;
mod gather;
mod legacy;
mod load;
mod locate;
mod names;
mod object;
mod partition;
mod record;
mod root;
mod storages;
mod survey;
mod tar;
mod tensor;
mod walk;
mod zip;

pub(crate) use dtype::is_dtype;

use std::sync::Arc;

use crate::{Error, OpenOptions, detect::Container, file::SourceReader, opened::Opened};

/// What to do with one process's part of a sharded state dict.
pub(crate) const SHARDED_REMEDY: &str = "save a full state dict on rank 0: \
    torch.distributed.checkpoint.state_dict.get_model_state_dict(model, \
    options=StateDictOptions(full_state_dict=True, cpu_offload=True))";

/// What to do with a distributed checkpoint.
const DCP_REMEDY: &str = "merge the folder first: \
    python -m torch.distributed.checkpoint.format_utils dcp_to_torch FOLDER OUT.pt";

/// What to do with a DeepSpeed checkpoint.
const ZERO_REMEDY: &str = "merge the folder first: python zero_to_fp32.py FOLDER OUT, the script \
    that DeepSpeed left beside the checkpoint (run zero_to_fp32.py)";

/// Reads one file that `torch.save` wrote.
pub(crate) fn open(
    file: Arc<SourceReader>,
    kind: Container,
    source_index: usize,
    options: &OpenOptions,
) -> Result<Opened, Error> {
    let loaded = match kind {
        Container::TorchLegacy => legacy::load(&file)?,
        Container::TorchTar => tar::load(&file)?,
        Container::TorchZip | Container::Safetensors => zip::load(&file, options)?,
    };
    load::finish(&file, kind, loaded, source_index, options)
}

/// Memory that the objects of a pickle may take, in proportion to the file that it is in.
fn memory_for(file: &SourceReader) -> u64 {
    file.size().saturating_mul(32).saturating_add(4 << 20)
}

/// Bytes that views and decompression may come to, in proportion to the file.
fn output_limit(file: &SourceReader, options: &OpenOptions) -> u64 {
    options
        .output_limit
        .unwrap_or_else(|| file.size().saturating_mul(16).saturating_add(64 << 20))
}
