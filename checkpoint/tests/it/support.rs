//! What the tests of this crate share.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;
use wpack_checkpoint::{Checkpoint, Component, Error, Input, OpenOptions, open};

/// A folder that is removed when it is dropped.
pub(crate) struct Folder(TempDir);

impl Default for Folder {
    fn default() -> Self {
        Self(TempDir::new().expect("a temporary folder"))
    }
}

impl Folder {
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// The path of a name in it, as text.
    pub(crate) fn join(&self, name: &str) -> String {
        self.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    /// Writes a file and the folders above it.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        fs::write(&path, bytes).expect("a file");
        path
    }

    /// Writes a safetensors file with one `U8` tensor of one byte per name.
    pub(crate) fn weights(&self, name: &str, tensors: &[&str]) -> PathBuf {
        self.write(name, weights(tensors))
    }
}

/// A safetensors file with one `U8` tensor of one byte per name; the byte is its place.
pub(crate) fn weights(tensors: &[&str]) -> Vec<u8> {
    let entries: Vec<String> = tensors
        .iter()
        .enumerate()
        .map(|(at, name)| {
            let end = at + 1;
            format!(r#"{name:?}:{{"dtype":"U8","shape":[1],"data_offsets":[{at},{end}]}}"#)
        })
        .collect();
    let data: Vec<u8> = (0..tensors.len())
        .map(|at| u8::try_from(at % 256).unwrap_or(0))
        .collect();
    file(&format!("{{{}}}", entries.join(",")), &data)
}

/// A safetensors file of a header and data.
pub(crate) fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

pub(crate) fn open_all(inputs: &[&str]) -> Result<Checkpoint, Error> {
    let inputs: Vec<Input> = inputs.iter().map(|text| Input::parse(text)).collect();
    open(&inputs, &OpenOptions::default())
}

/// The class of the error.
pub(crate) fn code(result: Result<Checkpoint, Error>) -> &'static str {
    match result {
        Ok(_) => "opened",
        Err(error) => error.code(),
    }
}

/// `component: tensor tensor`, one a line.
pub(crate) fn show(checkpoint: &Checkpoint) -> String {
    let line = |component: &Component| {
        let names = component
            .tensors
            .iter()
            .flat_map(|tensor| tensor.names.clone());
        format!(
            "{}: {}",
            component.name,
            names.collect::<Vec<_>>().join(" ")
        )
    };
    checkpoint
        .components
        .iter()
        .map(line)
        .collect::<Vec<_>>()
        .join("\n")
}

/// `component/path`, one a line; those of no component last.
pub(crate) fn small_files(checkpoint: &Checkpoint) -> String {
    let mut lines = Vec::new();
    for component in &checkpoint.components {
        for file in &component.files {
            lines.push(format!("{}: {}", component.name, file.path));
        }
    }
    lines.extend(
        checkpoint
            .files
            .iter()
            .map(|file| format!("-: {}", file.path)),
    );
    lines.join("\n")
}

/// Codes of the warnings.
pub(crate) fn warnings(checkpoint: &Checkpoint) -> Vec<&'static str> {
    checkpoint
        .warnings
        .iter()
        .map(|warning| warning.code)
        .collect()
}
