//! Opens inputs: every header is read and checked before anything is written anywhere.

use std::path::Path;

use crate::{
    Checkpoint, Component, Error, Input, OpenOptions, SourceFile, file::SourceReader,
    opened::open_file,
};

/// Name of the component that nobody named.
const DEFAULT_COMPONENT: &str = "model";

/// Opens one or several inputs as one checkpoint.
///
/// Inputs of one component are merged; a name that occurs twice in it is an error. Reads headers
/// only, checks them against the length of each file, and gives no tensor that its file cannot back.
pub fn open(inputs: &[Input], options: &OpenOptions) -> Result<Checkpoint, Error> {
    let mut checkpoint = Checkpoint::default();
    for input in inputs {
        let file = SourceReader::open(Path::new(&input.path))?;
        let opened = open_file(&file, checkpoint.sources.len(), options)?;
        checkpoint.sources.push(SourceFile {
            path: file.path().to_owned(),
            size: file.size(),
        });
        checkpoint.warnings.extend(opened.warnings);
        checkpoint.components.push(Component {
            name: input
                .component
                .clone()
                .unwrap_or_else(|| DEFAULT_COMPONENT.to_owned()),
            container: opened.container.to_owned(),
            root: opened.root,
            tensors: opened.tensors,
            metadata: opened.metadata,
            files: Vec::new(),
            skipped: opened.skipped,
        });
    }
    Ok(checkpoint)
}
