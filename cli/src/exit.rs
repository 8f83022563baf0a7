//! How the process ends.

/// The exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// Done.
    Done,
    /// The input is at fault.
    Fault,
    /// Usage, or something unexpected: a full disk, a bug.
    Unexpected,
    /// Stopped by Ctrl-C, SIGTERM or SIGHUP.
    Interrupted,
}

impl ExitStatus {
    /// The number that the shell sees.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Fault => 1,
            Self::Unexpected => 2,
            Self::Interrupted => 130,
        }
    }
}
