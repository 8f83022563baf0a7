//! What stops the machine.

use std::path::Path;

use crate::Error;

/// A fault, without the names of file and record, which only the caller knows.
#[derive(Debug)]
pub(crate) enum Fault {
    /// No pickle machine would take it.
    Malformed {
        /// Offset of the opcode in the record.
        at: u64,
        /// Opcode and facts.
        what: String,
    },
    /// It names a callable that runs code.
    Unsafe {
        /// Offset of the opcode in the record.
        at: u64,
        /// Module and name.
        global: String,
    },
    /// It names what one process keeps of a tensor that is spread over several.
    Partitioned {
        /// The class.
        class: String,
    },
    /// It asks for too much.
    Limit {
        /// What is limited, with its unit.
        what: &'static str,
        /// What is asked for.
        found: u64,
        /// What is allowed.
        limit: u64,
    },
    /// The input ends inside of an opcode or before STOP.
    Ends {
        /// Offset of the opcode in the record.
        at: u64,
        /// Opcode and facts.
        what: String,
        /// Bytes that had to be there, as far as they are known.
        need: u64,
        /// Bytes there.
        have: u64,
    },
    /// The input cannot be read.
    Read(Box<Error>),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Read(Box::new(error))
    }
}

impl Fault {
    /// The error for a record of a file. `cut` says that the record ends where the file ends, so
    /// that an early end means a truncated file.
    pub(crate) fn into_error(self, path: &Path, record: &str, cut: bool) -> Error {
        let path = path.to_owned();
        let record = record.to_owned();
        match self {
            Self::Malformed { at, what } => Error::MalformedPickle {
                path,
                record,
                at,
                what,
            },
            Self::Unsafe { at, global } => Error::UnsafePickle {
                path,
                record,
                at,
                global,
            },
            Self::Partitioned { class } => Error::Partitioned {
                path,
                what: format!("{record} holds a {class}"),
                remedy: crate::torch::SHARDED_REMEDY.to_owned(),
            },
            Self::Limit { what, found, limit } => Error::ResourceLimit {
                path,
                what: format!("{what} of {record}"),
                found: found.into(),
                limit,
            },
            Self::Ends { need, have, .. } if cut => Error::Truncated {
                path,
                what: format!("{record} pickle"),
                need,
                have,
            },
            Self::Ends { at, what, .. } => Error::MalformedPickle {
                path,
                record,
                at,
                what,
            },
            Self::Read(error) => *error,
        }
    }
}
