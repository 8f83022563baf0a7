//! What a check of a pack found.

use std::fmt;

use wpack_format::Owners;

/// The outcome of [`crate::verify`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VerifyReport {
    /// The root digest.
    pub digest: [u8; 32],
    /// The rank that was checked; none when all were.
    pub rank: Option<u32>,
    /// Bytes read and checked, index and padding included.
    pub bytes: u64,
    /// Blocks checked.
    pub blocks: u64,
    /// Extents checked.
    pub extents: u32,
    /// Wall time.
    pub seconds: f64,
    /// All that is wrong, by ascending offset.
    pub damage: Vec<Damage>,
}

impl VerifyReport {
    /// True when nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty()
    }

    /// Bytes checked per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let bytes = self.bytes as f64;
        if self.seconds > 0.0 {
            bytes / self.seconds
        } else {
            0.0
        }
    }
}

/// One damaged part of a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// Which part of the file.
    pub part: Part,
    /// What is wrong with it.
    pub fault: Fault,
    /// First byte of the part in the file.
    pub offset: u64,
    /// Bytes of the part.
    pub len: u64,
    /// Component concerned, if it is one.
    pub component: Option<String>,
    /// First names of the tensors that have bytes there and are not proven intact by a checksum of
    /// their own.
    pub tensors: Vec<String>,
    /// Ranks concerned.
    pub ranks: Owners,
}

/// A part of a pack with a digest of its own, or padding.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// The tensor table of the component.
    TensorTable,
    /// The slice table of an extent.
    SliceTable {
        /// Index of the extent.
        extent: u32,
    },
    /// The block table of an extent; what it covers could not be checked.
    BlockTable {
        /// Index of the extent.
        extent: u32,
    },
    /// An embedded file.
    File {
        /// Its path.
        path: String,
    },
    /// A block of an extent.
    Block {
        /// Index of the extent.
        extent: u32,
        /// Index of the block in it.
        block: u64,
    },
    /// A slice whose blocks are sound.
    Slice {
        /// Index of the extent.
        extent: u32,
        /// Index of the slice in it.
        slice: u32,
    },
    /// Padding between tables or extents.
    Padding,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TensorTable => f.write_str("tensor table"),
            Self::SliceTable { extent } => write!(f, "slice table of extent {extent}"),
            Self::BlockTable { extent } => write!(f, "block table of extent {extent}"),
            Self::File { path } => write!(f, "embedded file `{path}`"),
            Self::Block { extent, block } => write!(f, "block {block} of extent {extent}"),
            Self::Slice { extent, slice } => write!(f, "slice {slice} of extent {extent}"),
            Self::Padding => f.write_str("padding"),
        }
    }
}

/// What is wrong with a part.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The bytes do not have the SHA-256 that the index states.
    Sha256,
    /// The bytes have their SHA-256 but not the CRC-32C that the index states: a faulty writer.
    Crc32c,
    /// Padding that is not zero.
    NotZero,
    /// The bytes have their digests but make no sense: a faulty writer.
    Malformed(wpack_format::Error),
    /// The system could not read the bytes.
    Unreadable(String),
}

impl Fault {
    /// A stable word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Sha256 => "sha256-mismatch",
            Self::Crc32c => "crc32c-mismatch",
            Self::NotZero => "padding-not-zero",
            Self::Malformed(_) => "malformed",
            Self::Unreadable(_) => "unreadable",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sha256 => f.write_str("the SHA-256 does not match"),
            Self::Crc32c => f.write_str("the SHA-256 matches but the CRC-32C does not"),
            Self::NotZero => f.write_str("bytes that must be zero are not"),
            Self::Malformed(error) => write!(f, "malformed: {error}"),
            Self::Unreadable(reason) => write!(f, "unreadable: {reason}"),
        }
    }
}
