//! The class of an error, and what to do about it.

use super::Error;

/// Limits that an option raises.
const OUTPUT_LIMITS: [&str; 2] = [
    "bytes of all tensors",
    "bytes that compressed records expand to",
];

impl Error {
    /// Stable kebab-case class.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "io",
            Self::NoInput { .. } => "no-input",
            Self::SeveralComponents { .. } => "several-components",
            Self::NotACheckpoint { .. } => "not-a-checkpoint",
            Self::UnsupportedFormat { .. } => "unsupported-format",
            Self::Truncated { .. } => "truncated",
            Self::TrailingBytes { .. } => "trailing-bytes",
            Self::HeaderTooLarge { .. } => "header-too-large",
            Self::BadHeader { .. } => "bad-header",
            Self::DuplicateKey { .. } => "duplicate-key",
            Self::Hole { .. } => "hole",
            Self::Overlap { .. } => "overlap",
            Self::SizeMismatch { .. } => "size-mismatch",
            Self::OutOfBounds { .. } => "out-of-bounds",
            Self::Corrupt { .. } => "corrupt",
            Self::AmbiguousArchive { .. } => "ambiguous-archive",
            Self::AmbiguousRoot { .. } => "ambiguous-root",
            Self::NoSuchRoot { .. } => "no-such-root",
            Self::BadIndex { .. } => "bad-index",
            Self::MissingShard { .. } => "missing-shard",
            Self::MissingTensor { .. } => "missing-tensor",
            Self::MissingStorage { .. } => "missing-storage",
            Self::NameCollision { .. } => "name-collision",
            Self::NoTensors { .. } => "no-tensors",
            Self::Partitioned { .. } => "partitioned",
            Self::ResourceLimit { .. } => "resource-limit",
            Self::UnsafePath { .. } => "unsafe-path",
            Self::MalformedPickle { .. } => "malformed-pickle",
            Self::UnsafePickle { .. } => "unsafe-pickle",
            Self::UnsupportedDtype { .. } => "unsupported-dtype",
            Self::UnsupportedEndian { .. } => "unsupported-endian",
            Self::UnsupportedLayout { .. } => "unsupported-layout",
            Self::UnsupportedObject { .. } => "unsupported-object",
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Io { .. } => return None,
            Self::NoInput { .. } => {
                "give a weight file, its folder, its index file or a quoted glob; a component's name goes in front: dit=PATH"
            }
            Self::NoTensors { .. } => "give the file that holds the weights",
            Self::SeveralComponents { .. } => {
                "give the folder without a name, or each file or sub-folder with its own"
            }
            Self::NotACheckpoint { found, .. } => found.remedy(),
            Self::UnsupportedFormat { remedy, .. } => {
                return Some(remedy.clone().unwrap_or_else(|| SAVE_ANEW.to_owned()));
            }
            Self::Partitioned { remedy, .. } => remedy,
            Self::Truncated { .. } => "the file is incomplete: download or copy it again",
            Self::TrailingBytes { .. } => {
                "the file was appended to or padded: download it again, or save it anew with safetensors"
            }
            Self::Corrupt { .. } | Self::SizeMismatch { .. } => {
                "the file is damaged: download or copy it again and compare its checksum"
            }
            Self::AmbiguousRoot { roots, .. } => {
                let root = roots.first()?;
                return Some(format!("choose one, e.g. --root {root}"));
            }
            Self::NoSuchRoot { roots, .. } => {
                let root = roots.first()?;
                return Some(format!("choose one that exists, e.g. --root {root}"));
            }
            Self::MissingShard { .. } => "fetch the missing file into the same folder",
            Self::MissingTensor { .. } => {
                "index and shards are of different versions: fetch both again"
            }
            Self::NameCollision { .. } => {
                "give each file a component of its own, e.g. a=FIRST b=SECOND"
            }
            Self::UnsafePickle { .. } => {
                "nothing was run; do not load this file with torch.load unless you trust its author"
            }
            Self::UnsupportedLayout { .. }
            | Self::UnsupportedObject { .. }
            | Self::UnsupportedDtype { .. }
            | Self::UnsupportedEndian { .. } => SAVE_ANEW,
            Self::BadIndex { .. } => {
                "fetch the index again; or leave it out and give the weight files themselves"
            }
            Self::ResourceLimit { what, .. } if OUTPUT_LIMITS.contains(&what.as_str()) => {
                "if the file is to be trusted, raise the limit with --output-limit"
            }
            Self::ResourceLimit { .. }
            | Self::AmbiguousArchive { .. }
            | Self::UnsafePath { .. } => {
                "no program writes such a file by itself: fetch it again from where you trust it"
            }
            Self::BadHeader { .. }
            | Self::HeaderTooLarge { .. }
            | Self::DuplicateKey { .. }
            | Self::Hole { .. }
            | Self::Overlap { .. } => {
                "the program that wrote the file was at fault: save the tensors anew with safetensors"
            }
            Self::MalformedPickle { .. }
            | Self::MissingStorage { .. }
            | Self::OutOfBounds { .. } => {
                "the file is damaged, or was not written by torch.save: fetch it again"
            }
        };
        Some(text.to_owned())
    }
}

const SAVE_ANEW: &str =
    "save a plain state dict of dense tensors from the framework and convert that";
