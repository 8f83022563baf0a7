//! What keeps a conversion from being made.

use std::{io, path::PathBuf};

use wpack_format::DType;

/// A conversion, or a comparison with a checkpoint, that cannot be done.
///
/// [`Error::code`] is a stable name, [`Error::hint`] what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] wpack_checkpoint::Error),

    /// The plan cannot be made.
    #[error(transparent)]
    Plan(#[from] wpack_plan::Error),

    /// The index would break a rule of the format.
    #[error(transparent)]
    Format(#[from] wpack_format::Error),

    /// The pack to compare with cannot be read.
    #[error(transparent)]
    Pack(#[from] wpack_loader::Error),

    /// A pair of element types that torch leaves undefined, or no cast of real numbers.
    #[error("no cast from {from} to {to}")]
    CastUnsupported {
        /// Type of the elements.
        from: DType,
        /// Type asked for.
        to: DType,
    },

    /// Two buffers that do not hold the same number of elements.
    #[error("cast from {from} to {to}: {source_len} bytes do not fill {target_len}")]
    CastLength {
        /// Type of the elements.
        from: DType,
        /// Type asked for.
        to: DType,
        /// Bytes of the elements.
        source_len: usize,
        /// Bytes for the result.
        target_len: usize,
    },

    /// `--dtype` names no type that tensors can be cast to.
    #[error("no element type to cast to is called `{name}`")]
    TargetDtype {
        /// The name as given.
        name: String,
    },

    /// A pattern that is no glob or regular expression.
    #[error("{option} `{pattern}`: {why}")]
    Pattern {
        /// The option that gave it.
        option: &'static str,
        /// The pattern.
        pattern: String,
        /// What is wrong with it, and where.
        why: String,
    },

    /// A filter, prefix or rename that no tensor falls under: as a rule a misspelt name.
    #[error("{option} `{pattern}` matches no tensor of {of}")]
    PatternUnused {
        /// The option that gave it.
        option: &'static str,
        /// The pattern.
        pattern: String,
        /// The components looked at.
        of: String,
        /// The first names there are.
        names: Vec<String>,
    },

    /// The filters left no tensor of a component.
    #[error("the filters leave no tensor of component `{component}`")]
    NothingLeft {
        /// The component.
        component: String,
    },

    /// A tensor has no name left after prefixes or renames.
    #[error("component `{component}`: tensor `{source_name}` is left without a name")]
    EmptyName {
        /// The component.
        component: String,
        /// Its name in the checkpoint.
        source_name: String,
    },

    /// Two tensors of a component get one name.
    #[error("component `{component}`: `{first}` and `{second}` would both be named `{name}`")]
    NameCollision {
        /// The component.
        component: String,
        /// The name in the pack.
        name: String,
        /// Name of one in the checkpoint.
        first: String,
        /// Name of the other in the checkpoint.
        second: String,
    },

    /// A component was named that the checkpoint does not have.
    #[error("no component `{component}` in the checkpoint")]
    UnknownComponent {
        /// The name as given.
        component: String,
        /// The names there are.
        known: Vec<String>,
    },

    /// An alignment that is no power of two within the format's bounds.
    #[error("extents cannot be aligned to {align} bytes")]
    Align {
        /// The alignment as given.
        align: u64,
        /// The least one.
        min: u64,
        /// The greatest one.
        max: u64,
    },

    /// More tensors, files or bytes than the format can number.
    #[error("{what}: more than the format can number")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
    },

    /// The target is there already.
    #[error("{path} exists already", path = path.display())]
    Exists {
        /// The target.
        path: PathBuf,
    },

    /// The target is a folder or a device.
    #[error("{path} is no regular file and is not replaced", path = path.display())]
    NotAFile {
        /// The target.
        path: PathBuf,
    },

    /// The target is one of the files that are read.
    #[error("{path} is a source of this conversion", path = path.display())]
    TargetIsSource {
        /// The target.
        path: PathBuf,
    },

    /// A source file changed while it was read.
    #[error("{path}: had {expected} bytes, now {found}", path = path.display())]
    SourceChanged {
        /// The source.
        path: PathBuf,
        /// Bytes when it was opened.
        expected: u64,
        /// Bytes now.
        found: u64,
    },

    /// The file system has no room for the pack. Nothing was left behind.
    #[error("no room for {path}: {needed} bytes needed", path = path.display())]
    NoSpace {
        /// The target.
        path: PathBuf,
        /// Bytes of the pack.
        needed: u64,
        /// What the system said.
        source: io::Error,
    },

    /// The system refused an operation on the target. Nothing was left behind.
    #[error("{op} {path}", path = path.display())]
    Io {
        /// The operation.
        op: &'static str,
        /// The target, or the folder that it is in.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// Stopped on request. Nothing was left behind.
    #[error("interrupted")]
    Interrupted,

    /// Tensors cannot be put together or made longer as the plan file says.
    #[error("component `{component}`, {what} `{pattern}`: {why}")]
    Join {
        /// The component.
        component: String,
        /// `merge` or `pad`.
        what: &'static str,
        /// The pattern.
        pattern: String,
        /// What is wrong.
        why: String,
    },

    /// A plan that does not fit its own tensors: a fault of this program.
    #[error("plan of component `{component}`, tensor {tensor}: {why}")]
    Inconsistent {
        /// The component.
        component: String,
        /// The tensor's index.
        tensor: u32,
        /// The contradiction.
        why: &'static str,
    },
}

impl Error {
    /// A stable name of the kind of error, for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Checkpoint(error) => error.code(),
            Self::Plan(error) => error.code(),
            Self::Format(error) => error.code(),
            Self::Pack(error) => error.code(),
            Self::CastUnsupported { .. } => "cast-unsupported",
            Self::CastLength { .. } => "cast-length",
            Self::TargetDtype { .. } => "target-dtype",
            Self::Pattern { .. } => "pattern",
            Self::PatternUnused { .. } => "pattern-unused",
            Self::NothingLeft { .. } => "nothing-left",
            Self::EmptyName { .. } => "empty-name",
            Self::NameCollision { .. } => "name-collision",
            Self::UnknownComponent { .. } => "unknown-component",
            Self::Align { .. } => "align",
            Self::TooLarge { .. } => "too-large",
            Self::Exists { .. } => "target-exists",
            Self::NotAFile { .. } => "target-not-a-file",
            Self::TargetIsSource { .. } => "target-is-source",
            Self::SourceChanged { .. } => "source-changed",
            Self::NoSpace { .. } => "no-space",
            Self::Io { .. } => "target-io",
            Self::Interrupted => "interrupted",
            Self::Join { .. } => "join",
            Self::Inconsistent { .. } => "inconsistent-plan",
        }
    }

    /// What to do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Checkpoint(error) => error.hint(),
            Self::Plan(error) => error.hint(),
            Self::Format(error) => error.hint(),
            Self::Pack(error) => error.hint(),
            Self::TargetDtype { .. } => Some(format!(
                "types: {}",
                crate::options::DTYPE_NAMES.map(|row| row.0).join(", ")
            )),
            Self::Pattern {
                option: "--rename", ..
            } => Some(
                "write a regular expression and a replacement: --rename '^model\\.=net.'".into(),
            ),
            Self::Pattern { .. } => {
                Some("write a glob of names in the checkpoint: --include 'blocks.*'".into())
            }
            Self::PatternUnused { names, .. } => {
                (!names.is_empty()).then(|| format!("names there are: {}", names.join(", ")))
            }
            Self::NothingLeft { component } => Some(format!(
                "widen --include, or leave the component out: name the others with --component (without `{component}`)"
            )),
            Self::EmptyName { .. } => Some("make the prefix or pattern match less".into()),
            Self::NameCollision { second, .. } => Some(format!(
                "leave one out (--exclude '{second}'), or rename them apart (--rename)"
            )),
            Self::UnknownComponent { known, .. } => {
                Some(format!("components: {}", known.join(", ")))
            }
            Self::Align { min, max, .. } => Some(format!(
                "give a power of two from {min} to {max}: --align 2097152"
            )),
            Self::Exists { .. } => {
                Some("add --overwrite to replace it, or name another file".into())
            }
            Self::NotAFile { .. } | Self::TargetIsSource { .. } => {
                Some("name another file with -o".into())
            }
            Self::SourceChanged { .. } => {
                Some("wait until nobody writes to it, and run again".into())
            }
            Self::NoSpace { path, .. } => Some(format!(
                "make room (an old pack that is replaced stays until the new one is whole), \
                 or write elsewhere; see: df -h {}",
                crate::sink::folder_of(path).display()
            )),
            Self::Join { .. } => Some(
                "`wpack plan --tensors` lists names and shapes; docs/plan.md says how tensors are put together"
                    .into(),
            ),
            Self::CastUnsupported { .. }
            | Self::CastLength { .. }
            | Self::TooLarge { .. }
            | Self::Io { .. }
            | Self::Interrupted
            | Self::Inconsistent { .. } => None,
        }
    }
}
