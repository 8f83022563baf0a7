//! Small files beside weights: what a framework needs to build the model and its tokenizer.

use std::path::Path;

use crate::{Error, SmallFile, Warning, file::SourceReader, names::parse_index};

use super::listing::Listing;

/// Most bytes of one small file. The tokenizers of large vocabularies take 17 to 34 MB.
pub(crate) const FILE_LIMIT: u64 = 40 << 20;
/// Most bytes of all small files of a checkpoint.
pub(crate) const TOTAL_LIMIT: u64 = 128 << 20;
/// Most small files of a checkpoint.
const COUNT_LIMIT: u64 = 1024;
/// Deepest folder below the given one.
const DEPTH_LIMIT: usize = 3;

/// What may still be taken.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes: u64,
    files: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            bytes: TOTAL_LIMIT,
            files: COUNT_LIMIT,
        }
    }
}

/// Whether a file is carried along, by its name.
fn is_small_file(name: &str) -> bool {
    let extension = name
        .rsplit_once('.')
        .map(|(_, extension)| extension.to_ascii_lowercase());
    match extension.as_deref() {
        Some("json") => parse_index(name).is_none(),
        Some("jinja" | "model" | "tiktoken" | "yaml" | "yml") => true,
        Some("txt") => matches!(name, "merges.txt" | "vocab.txt"),
        _ => false,
    }
}

/// Small files of one folder.
pub(super) fn beside(
    listing: &Listing,
    budget: &mut Budget,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<SmallFile>, Error> {
    let mut files = Vec::new();
    collect(listing, "", &listing.path, budget, warnings, &mut files)?;
    Ok(files)
}

/// Small files of folders below `root` and of what is below them, with paths from `root`.
pub(super) fn below(
    root: &Path,
    folders: &[(String, &Path)],
    budget: &mut Budget,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<SmallFile>, Error> {
    let mut files = Vec::new();
    let mut open: Vec<(String, Listing, usize)> = Vec::new();
    for (name, path) in folders.iter().rev() {
        open.push((format!("{name}/"), Listing::read(path)?, 1));
    }
    while let Some((prefix, listing, depth)) = open.pop() {
        collect(&listing, &prefix, root, budget, warnings, &mut files)?;
        if depth < DEPTH_LIMIT {
            for (name, path) in listing.folders.iter().rev() {
                open.push((format!("{prefix}{name}/"), Listing::read(path)?, depth + 1));
            }
        }
    }
    Ok(files)
}

fn collect(
    listing: &Listing,
    prefix: &str,
    root: &Path,
    budget: &mut Budget,
    warnings: &mut Vec<Warning>,
    files: &mut Vec<SmallFile>,
) -> Result<(), Error> {
    for (name, path) in listing.files.iter().filter(|file| is_small_file(&file.0)) {
        let mut leave_out = |why: String| {
            let message = format!("{prefix}{name} is not carried along: {why}");
            warnings.push(Warning {
                code: "small-file-left-out",
                message,
            });
        };
        if path.file_name().and_then(|name| name.to_str()).is_none()
            || name.contains(|c: char| c.is_control() || c == '\\')
        {
            leave_out("its name is not portable".to_owned());
            continue;
        }
        if leads_outside(path, root) {
            leave_out("it is a link that leads out of the folder".to_owned());
            continue;
        }
        let file = SourceReader::open(path)?;
        let limit = FILE_LIMIT.min(budget.bytes);
        if file.size() > limit || budget.files == 0 {
            leave_out(format!(
                "{} bytes are over the limit of {limit}",
                file.size()
            ));
            continue;
        }
        budget.bytes -= file.size();
        budget.files -= 1;
        let bytes = file.head(file.size())?;
        files.push(SmallFile {
            path: format!("{prefix}{name}"),
            bytes,
        });
    }
    Ok(())
}

/// Whether a link leads to a file outside of `root` that is no blob of a Hugging Face cache. Small
/// files are copied into the pack whole: a folder must not be able to name a stranger's file.
fn leads_outside(path: &Path, root: &Path) -> bool {
    let (Ok(target), Ok(root)) = (path.canonicalize(), root.canonicalize()) else {
        return true;
    };
    let is_blob = target
        .parent()
        .is_some_and(|folder| folder.ends_with("blobs"));
    !target.starts_with(root) && !is_blob
}
