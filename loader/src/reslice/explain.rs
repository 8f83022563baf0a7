//! What a resliced shard costs, and how not to pay it.

use std::fmt;

/// Slices and bytes that are had in one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Slices.
    pub slices: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Share {
    pub(super) fn add(&mut self, bytes: u64) {
        self.slices = self.slices.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// What a [`crate::Reslice`] costs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// The rank.
    pub rank: u32,
    /// Ranks it was cut for; none for a layout without a rank count.
    pub ranks: Option<u32>,
    /// Layout it was cut for.
    pub layout: String,
    /// Slices that are byte ranges of the pack: views without a copy.
    pub zero_copy: Share,
    /// Slices that are copied together: private memory.
    pub gathered: Share,
    /// Bytes of fill among the gathered.
    pub fill: u64,
    /// The command that makes a pack of which all slices are views; none if all are already.
    pub convert: Option<String>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rank,
            layout,
            zero_copy,
            gathered,
            ..
        } = self;
        write!(f, "rank {rank}")?;
        if let Some(ranks) = self.ranks {
            write!(f, " of {ranks}")?;
        }
        write!(
            f,
            ", {layout}: {} bytes in {} slices without a copy, {} bytes in {} slices gathered",
            zero_copy.bytes, zero_copy.slices, gathered.bytes, gathered.slices
        )?;
        if let Some(convert) = &self.convert {
            write!(f, "; `{convert}` makes a pack without gathers")?;
        }
        Ok(())
    }
}
