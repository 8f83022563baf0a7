//! What `torch.save` writes.

use std::sync::Arc;

use crate::{Error, OpenOptions, detect::Container, file::SourceReader, opened::Opened};

/// Reads one file that `torch.save` wrote.
pub(crate) fn open(
    file: Arc<SourceReader>,
    kind: Container,
    source_index: usize,
    options: &OpenOptions,
) -> Result<Opened, Error> {
    let _unused = (source_index, options);
    Err(Error::UnsupportedFormat {
        path: file.path().to_owned(),
        what: kind.name().to_owned(),
        remedy: None,
    })
}
