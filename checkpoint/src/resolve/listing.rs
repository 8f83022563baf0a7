//! What lies in a folder, in a fixed order.

use std::path::{Path, PathBuf};

use crate::{Error, file::base_name};

/// Most entries of a folder that are looked at.
const ENTRY_LIMIT: u64 = 100_000;

/// Files and folders with names, in ascending order; links are what they lead to.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) path: PathBuf,
    pub(super) files: Vec<(String, PathBuf)>,
    pub(super) folders: Vec<(String, PathBuf)>,
}

impl Listing {
    /// Reads one level. Names that start with a dot are left out.
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let io = |source| Error::Io {
            path: path.to_owned(),
            source,
        };
        let mut listing = Self {
            path: path.to_owned(),
            ..Self::default()
        };
        let mut seen = 0_u64;
        for entry in std::fs::read_dir(path).map_err(io)? {
            let entry = entry.map_err(io)?.path();
            seen += 1;
            if seen > ENTRY_LIMIT {
                return Err(Error::ResourceLimit {
                    path: path.to_owned(),
                    what: "entries of the folder".to_owned(),
                    found: u128::from(seen),
                    limit: ENTRY_LIMIT,
                });
            }
            let name = base_name(&entry);
            if name.starts_with('.') {
                continue;
            }
            // A link that leads nowhere is neither; whoever needs the file will miss it.
            if entry.is_dir() {
                listing.folders.push((name, entry));
            } else if entry.is_file() {
                listing.files.push((name, entry));
            }
        }
        listing.files.sort();
        listing.folders.sort();
        Ok(listing)
    }

    /// The file of this name.
    pub(super) fn file(&self, name: &str) -> Option<&Path> {
        let found = self.files.iter().find(|(file, _)| file == name)?;
        Some(&found.1)
    }

    /// The folder of this name.
    pub(super) fn folder(&self, name: &str) -> Option<&Path> {
        let found = self.folders.iter().find(|(folder, _)| folder == name)?;
        Some(&found.1)
    }
}

/// The folder that a path lies in.
pub(super) fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
