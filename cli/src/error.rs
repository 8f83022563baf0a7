//! What keeps a command from doing its work, and how it is told.

use std::{error::Error as _, io};

use crate::{
    ExitStatus,
    report::{ErrorBody, ErrorReport, SCHEMA},
};

/// An error of a command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] wpack_checkpoint::Error),
    /// A checkpoint cannot be converted, or a pack not be written.
    #[error(transparent)]
    Convert(#[from] wpack_convert::Error),
    /// A pack cannot be read.
    #[error(transparent)]
    Loader(#[from] wpack_loader::Error),
    /// Arguments that clap takes and that make no sense together: see the hint.
    #[error("{what}")]
    Usage {
        /// What is wrong with them.
        what: String,
        /// What to write instead.
        hint: String,
    },
    /// A glob of `--tensors` or a like option is malformed.
    #[error("{option} `{pattern}` is no glob")]
    Glob {
        /// The option.
        option: &'static str,
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        source: globset::Error,
    },
    /// A component was asked for that is not there.
    #[error("no component `{name}`; there is {}", list(have))]
    NoComponent {
        /// The name asked for.
        name: String,
        /// The names there are.
        have: Vec<String>,
    },
    /// `verify` found damage; the report lists it.
    #[error("`{path}` is damaged in {}", crate::human::plural(*parts, "part"))]
    Damaged {
        /// The pack.
        path: String,
        /// Damaged blocks, tables and gaps.
        parts: u64,
    },
    /// `verify --against` found other tensors; the report lists them.
    #[error(
        "`{path}` is not what the checkpoint gives: {different} different, {missing} missing, {extra} extra"
    )]
    Differs {
        /// The pack.
        path: String,
        /// Tensors whose bytes, type or shape differ.
        different: u64,
        /// Tensors that the pack lacks.
        missing: u64,
        /// Tensors that the checkpoint lacks.
        extra: u64,
    },
    /// A tensor that a safetensors file cannot hold.
    #[error("component `{component}`, tensor `{tensor}`: {why}")]
    NotExportable {
        /// Component.
        component: String,
        /// Tensor.
        tensor: String,
        /// What is in the way.
        why: String,
    },
    /// The pack's slices do not make up the tensor: a faulty writer.
    #[error("tensor `{tensor}`: the pack holds {found} of its {expected} bytes")]
    Incomplete {
        /// Tensor.
        tensor: String,
        /// Bytes in slices.
        found: u64,
        /// Bytes of the whole.
        expected: u64,
    },
    /// A file that `export` would write is there already.
    #[error("`{path}` exists")]
    Exists {
        /// The file.
        path: String,
    },
    /// A file that an option names cannot be read.
    #[error("cannot read `{path}`")]
    Read {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// A plan file says what cannot be meant.
    #[error("`{path}` is no plan")]
    PlanFile {
        /// The file.
        path: String,
        /// What is wrong with it.
        source: wpack_plan::Error,
    },
    /// A file cannot be written.
    #[error("cannot write `{path}`")]
    Write {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The list of registered packs is not what wpack writes.
    #[error("`{path}` is not a list of packs")]
    Registry {
        /// The list.
        path: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Standard output cannot be written.
    #[error("cannot write to standard output")]
    Output(#[source] io::Error),
    /// Handlers of signals cannot be installed.
    #[error("cannot handle signals")]
    Signals(#[source] io::Error),
    /// A bug.
    #[error("internal error: {what}")]
    Internal {
        /// What the failed assertion says.
        what: String,
    },
    /// The user ended it.
    #[error("interrupted")]
    Interrupted,
}

fn list(names: &[String]) -> String {
    names
        .iter()
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Codes of requests that contradict the input or themselves: the arguments are at fault.
const USAGE: [&str; 25] = [
    "align",
    "axis-missing",
    "axis-taken",
    "axis-unused",
    "glob",
    "mesh-syntax",
    "no-component",
    "no-extent",
    "no-ranks",
    "nothing-left",
    "output-exists",
    "pattern",
    "pattern-unused",
    "patterns-disagree",
    "rank-outside-mesh",
    "ranks-disagree",
    "ranks-missing",
    "target-dtype",
    "target-exists",
    "target-is-source",
    "target-not-a-file",
    "too-many-ranks",
    "unknown-component",
    "unknown-layout",
    "usage",
];

/// Codes of a system that refused.
const UNEXPECTED: [&str; 9] = [
    "inconsistent-plan",
    "internal",
    "no-space",
    "out-of-memory",
    "signals",
    "stdout",
    "target-io",
    "threads",
    "write",
];

impl Error {
    /// Stable kebab-case name.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Checkpoint(error) => error.code(),
            Self::Convert(wpack_convert::Error::Pack(error)) | Self::Loader(error) => {
                malformed(error).map_or_else(|| error.code(), wpack_format::Error::code)
            }
            Self::Convert(error) => error.code(),
            Self::Usage { .. } => "usage",
            Self::Glob { .. } => "glob",
            Self::NoComponent { .. } => "no-component",
            Self::Damaged { .. } => "damaged",
            Self::Differs { .. } => "differs",
            Self::NotExportable { .. } => "not-exportable",
            Self::Incomplete { .. } => "incomplete",
            Self::Exists { .. } => "output-exists",
            Self::Read { .. } => "read",
            Self::PlanFile { source, .. } => source.code(),
            Self::Write { .. } => "write",
            Self::Registry { .. } => "registry",
            Self::Output(_) => "stdout",
            Self::Signals(_) => "signals",
            Self::Internal { .. } => "internal",
            Self::Interrupted => "interrupted",
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        self.own_hint().or_else(|| {
            let system = match self {
                Self::Output(_) | Self::Signals(_) => return None,
                _ => self.system()?,
            };
            let hint = match system.kind() {
                io::ErrorKind::NotFound => {
                    "check the path; a relative one starts at the working directory"
                }
                io::ErrorKind::IsADirectory => "give the file itself",
                io::ErrorKind::PermissionDenied => "ask its owner for the right, or name another",
                _ => return None,
            };
            Some(hint.to_owned())
        })
    }

    fn own_hint(&self) -> Option<String> {
        Some(match self {
            Self::Checkpoint(error) => return error.hint(),
            Self::Convert(wpack_convert::Error::Pack(error)) | Self::Loader(error) => {
                return error.hint().or_else(|| malformed(error)?.hint());
            }
            Self::Convert(error) => return error.hint(),
            Self::Usage { hint, .. } => hint.clone(),
            Self::Glob { .. } => {
                "`*` stands for any characters, `?` for one, `[ab]` for one of several, `{a,b}` for one of several texts".to_owned()
            }
            Self::NoComponent { have, .. } => {
                format!("give one that is there: --component {}", have.first()?)
            }
            Self::Damaged { .. } => {
                "copy the pack again, or convert the checkpoint again; do not train from this file"
                    .to_owned()
            }
            Self::Differs { .. } => {
                "give the checkpoint that `wpack inspect` names under sources, or convert this one"
                    .to_owned()
            }
            Self::NotExportable { .. } => "leave its component out with --component".to_owned(),
            Self::Incomplete { .. } => "convert the checkpoint again".to_owned(),
            Self::Registry { .. } => {
                "move the file away and register the packs again with `wpack register`".to_owned()
            }
            Self::Exists { .. } => "give another --output, or --overwrite".to_owned(),
            Self::Internal { .. } => {
                "this is a fault of wpack: report it with the command and its output".to_owned()
            }
            Self::PlanFile { source, .. } => return source.hint(),
            Self::Read { .. } | Self::Write { .. } | Self::Output(_) | Self::Signals(_) | Self::Interrupted => {
                return None;
            }
        })
    }

    /// How the process ends.
    #[must_use]
    pub fn status(&self) -> ExitStatus {
        let code = self.code();
        let unexpected = USAGE.contains(&code)
            || UNEXPECTED.contains(&code)
            || self.system().is_some_and(|error| !is_about_input(error));
        match code {
            "interrupted" => ExitStatus::Interrupted,
            _ if unexpected => ExitStatus::Unexpected,
            _ => ExitStatus::Fault,
        }
    }

    /// The error, then its causes. A cause that the line before it ends with is not repeated.
    #[must_use]
    pub fn chain(&self) -> Vec<String> {
        let mut chain = vec![self.to_string()];
        let mut next = self.source();
        while let Some(error) = next {
            let text = error.to_string();
            if chain.last().is_some_and(|last| !last.ends_with(&text)) {
                chain.push(text);
            }
            next = error.source();
        }
        chain
    }

    /// As JSON.
    #[must_use]
    pub fn body(&self) -> ErrorBody {
        let mut chain = self.chain();
        let message = chain.remove(0);
        ErrorBody {
            code: self.code().to_owned(),
            message,
            causes: chain,
            hint: self.hint(),
        }
    }

    /// As the object that `--json` prints.
    #[must_use]
    pub fn report(&self, command: Option<&'static str>) -> ErrorReport {
        ErrorReport {
            schema: SCHEMA,
            command,
            error: self.body(),
        }
    }

    /// What the system said, if it said something.
    fn system(&self) -> Option<&io::Error> {
        let mut next: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = next {
            if let Some(error) = error.downcast_ref() {
                return Some(error);
            }
            next = error.source();
        }
        None
    }
}

/// What is wrong with the bytes of a pack, when that is the error.
fn malformed(error: &wpack_loader::Error) -> Option<&wpack_format::Error> {
    match error {
        wpack_loader::Error::Format { source, .. } => Some(source),
        _ => None,
    }
}

/// Whether an error of the system speaks of a path that the user gave, rather than of the machine.
fn is_about_input(error: &io::Error) -> bool {
    use io::ErrorKind::{
        InvalidInput, IsADirectory, NotADirectory, NotFound, PermissionDenied, UnexpectedEof,
    };
    matches!(
        error.kind(),
        InvalidInput | IsADirectory | NotADirectory | NotFound | PermissionDenied | UnexpectedEof
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let source = io::Error::other("disk on fire");
        let error = Error::Checkpoint(wpack_checkpoint::Error::Io {
            path: "a".into(),
            source,
        });
        assert_eq!(error.chain(), ["a: disk on fire"]);
        let source = io::Error::other("disk on fire");
        let error = Error::Write {
            path: "a".to_owned(),
            source,
        };
        assert_eq!(error.chain(), ["cannot write `a`", "disk on fire"]);
    }

    #[test]
    fn a_missing_input_is_the_inputs_fault_and_a_full_disk_is_not() {
        let io = |kind: io::ErrorKind| {
            Error::Checkpoint(wpack_checkpoint::Error::Io {
                path: "a".into(),
                source: kind.into(),
            })
            .status()
        };
        assert_eq!(io(io::ErrorKind::NotFound), ExitStatus::Fault);
        assert_eq!(io(io::ErrorKind::StorageFull), ExitStatus::Unexpected);
    }
}
