//! What can go wrong between a pack and a program.

use std::io;

use wpack_format::DType;

/// An error of this crate. [`Error::code`] is stable; the text is for people.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused to open, read or map.
    #[error("cannot read `{path}`{}", at(*.offset))]
    Io {
        /// The file.
        path: String,
        /// Where the read started, if it was one.
        offset: Option<u64>,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel refused the map: strict overcommit, a limit of address space or data, or a file
    /// system without maps.
    #[error("cannot map `{path}`")]
    Map {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The source ended before the bytes that its index promises: it shrank after it was opened.
    #[error("`{path}` ends at byte {offset}, {missing} bytes too early")]
    Truncated {
        /// The file.
        path: String,
        /// Where the bytes ended.
        offset: u64,
        /// Bytes still wanted there.
        missing: u64,
    },
    /// The file was written to while it was read.
    #[error("`{path}` changed while it was read: {expected} bytes at first, {found} now")]
    Changed {
        /// The file.
        path: String,
        /// Length at open.
        expected: u64,
        /// Length now; equal when only its time of modification moved.
        found: u64,
    },
    /// The bytes are not those of a sound pack.
    #[error("`{path}` cannot be read as a pack")]
    Format {
        /// The file.
        path: String,
        /// What is wrong with them.
        source: wpack_format::Error,
    },
    /// The bytes of a block are not those that were written.
    #[error(
        "`{path}` is damaged: block {block} of extent {extent}, at byte {offset}, has CRC-32C {found:08x} instead of {expected:08x}"
    )]
    Checksum {
        /// The file.
        path: String,
        /// Index of the extent.
        extent: u32,
        /// Index of the block in it.
        block: u64,
        /// First byte of the block in the file.
        offset: u64,
        /// Checksum in the index.
        expected: u32,
        /// Checksum of the bytes read.
        found: u32,
    },
    /// The bytes of a slice are not those that were written.
    #[error(
        "`{path}` is damaged: slice {slice} of extent {extent}, at byte {offset}, has CRC-32C {found:08x} instead of {expected:08x}"
    )]
    SliceChecksum {
        /// The file.
        path: String,
        /// Index of the extent.
        extent: u32,
        /// Index of the slice in it.
        slice: u32,
        /// First byte of the slice in the file.
        offset: u64,
        /// Checksum in the index.
        expected: u32,
        /// Checksum of the bytes read.
        found: u32,
    },
    /// An embedded file is not what was embedded.
    #[error("`{path}` is damaged: the embedded file `{file}` does not match its digest")]
    EmbeddedFile {
        /// The pack.
        path: String,
        /// The file within.
        file: String,
    },
    /// The index contradicts itself where only a reader of both sides notices: a faulty writer.
    #[error("`{path}` contradicts itself: {what} in extent {extent}, slice {slice}")]
    Inconsistent {
        /// The file.
        path: String,
        /// Index of the extent.
        extent: u32,
        /// Index of the slice in it.
        slice: u32,
        /// The contradiction.
        what: &'static str,
    },
    /// The rank is not one of the pack's mesh.
    #[error("rank {rank} is outside the mesh of {ranks} ranks")]
    RankOutsideMesh {
        /// The rank asked for.
        rank: u32,
        /// Ranks of the mesh.
        ranks: u32,
    },
    /// The pack has no such extent.
    #[error("no extent {extent}; the pack has {extents}")]
    UnknownExtent {
        /// The index asked for.
        extent: u32,
        /// Number of extents.
        extents: usize,
    },
    /// The wanted layout cannot be planned for the pack's tensors, or not with what the pack knows of
    /// the model.
    #[error("`{path}` cannot be cut again as layout `{layout}`")]
    Plan {
        /// The file.
        path: String,
        /// The layout asked for.
        layout: String,
        /// The command that makes a pack for it.
        convert: Option<String>,
        /// What the planner says.
        source: wpack_plan::Error,
    },
    /// The plan that a pack is to be opened with does to names or values what conversion did not.
    #[error(
        "the plan renames, merges, pads or casts tensors of component `{component}`; `{path}` holds them as conversion made them"
    )]
    PlanTransforms {
        /// The file.
        path: String,
        /// The component.
        component: String,
        /// The command that makes a pack for the plan.
        convert: String,
    },
    /// The pack does not hold what the wanted layout asks for: all of a tensor's elements, as values
    /// of its own type.
    #[error("`{path}` does not hold all of `{tensor}`{kind} in a form that can be cut again")]
    NotStored {
        /// The file.
        path: String,
        /// The tensor.
        tensor: String,
        /// A remark in brackets, or nothing.
        kind: &'static str,
        /// The command that makes a pack for the wanted layout.
        convert: String,
    },
    /// No component has this name.
    #[error("no component `{name}`; the pack has {have}")]
    UnknownComponent {
        /// The name asked for.
        name: String,
        /// Names there are, for people.
        have: String,
    },
    /// No tensor of the rank's shard has this name.
    #[error("no tensor `{name}` in the shard of rank {rank}")]
    UnknownTensor {
        /// The name asked for.
        name: String,
        /// The rank.
        rank: u32,
    },
    /// The name is in several components.
    #[error("tensor `{name}` is in several components: {components}")]
    AmbiguousTensor {
        /// The name asked for.
        name: String,
        /// The components.
        components: String,
    },
    /// The elements are of another type than the one asked for.
    #[error("the elements are {found}, not values of `{type_name}`")]
    WrongType {
        /// Rust type asked for.
        type_name: &'static str,
        /// Type there is.
        found: DType,
    },
    /// The bytes in memory are not aligned for the type asked for; a mapped pack always is.
    #[error("the bytes in memory are not aligned to {align}")]
    Unaligned {
        /// Alignment of the type.
        align: usize,
    },
    /// Memory for a table or buffer could not be had.
    #[error("cannot allocate {bytes} bytes for {what}")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
        /// What for.
        what: &'static str,
    },
    /// The ring's budget does not hold a single slot.
    #[error("the ring needs at least {needed} bytes, and may take {budget}")]
    Budget {
        /// Bytes of one slot.
        needed: u64,
        /// Bytes allowed.
        budget: u64,
    },
    /// The device failed.
    #[error("the device failed while {doing}")]
    Sink {
        /// What it was asked to do.
        doing: &'static str,
        /// What it said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The memory given does not match what is to be loaded, in number or length.
    #[error("{expected} destinations of the planned lengths are needed, {found} were given")]
    WrongMemory {
        /// Destinations planned.
        expected: usize,
        /// Pieces of memory given.
        found: usize,
    },
    /// A reader ended without a word: a fault of this program.
    #[error("a reader thread ended before its work was done")]
    ReaderLost,
    /// The caller's interrupt flag was set.
    #[error("interrupted")]
    Interrupted,
    /// The system would not start the threads.
    #[error("cannot start {threads} threads")]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// What the system said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

fn at(offset: Option<u64>) -> String {
    offset
        .map(|offset| format!(" at byte {offset}"))
        .unwrap_or_default()
}

impl Error {
    /// A stable word for programs, in kebab-case.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "io",
            Self::Map { .. } => "map",
            Self::Truncated { .. } => "truncated",
            Self::Changed { .. } => "changed-while-read",
            Self::Format { source, .. } => source.code(),
            Self::Checksum { .. } | Self::SliceChecksum { .. } => "checksum-mismatch",
            Self::EmbeddedFile { .. } => "digest-mismatch",
            Self::Inconsistent { .. } => "inconsistent-index",
            Self::RankOutsideMesh { .. } => "rank-outside-mesh",
            Self::Plan { source, .. } => source.code(),
            Self::PlanTransforms { .. } => "plan-transforms",
            Self::NotStored { .. } => "not-stored",
            Self::UnknownExtent { .. } => "unknown-extent",
            Self::UnknownComponent { .. } => "unknown-component",
            Self::UnknownTensor { .. } => "unknown-tensor",
            Self::AmbiguousTensor { .. } => "ambiguous-tensor",
            Self::WrongType { .. } => "wrong-type",
            Self::Unaligned { .. } => "unaligned",
            Self::OutOfMemory { .. } => "out-of-memory",
            Self::Budget { .. } => "ring-budget",
            Self::Sink { .. } => "device",
            Self::WrongMemory { .. } => "wrong-memory",
            Self::ReaderLost => "reader-lost",
            Self::Interrupted => "interrupted",
            Self::Threads { .. } => "threads",
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Format { source, .. } => source.hint(),
            Self::Map { .. } => Some(
                "map read-only, which reserves nothing (writes in place would then end the process), or read into memory"
                    .to_owned(),
            ),
            Self::Truncated { .. } | Self::Changed { .. } => Some(
                "write packs under another name and rename them into place; never change one that is in use"
                    .to_owned(),
            ),
            Self::Checksum { path, .. }
            | Self::SliceChecksum { path, .. }
            | Self::EmbeddedFile { path, .. } => {
                Some(format!("`wpack verify {path}` lists all damage; copy the pack again"))
            }
            Self::Plan { source, convert, .. } => {
                let hints = [
                    source.hint(),
                    convert.as_deref().map(|command| format!("a pack for it: `{command}`")),
                ];
                let hints: Vec<String> = hints.into_iter().flatten().collect();
                (!hints.is_empty()).then(|| hints.join("; "))
            }
            Self::PlanTransforms { convert, .. } => Some(format!(
                "leave `transform` out of the plan: names are those in the pack; a pack for it: `{convert}`"
            )),
            Self::NotStored { convert, .. } => {
                Some(format!("convert the checkpoint again: `{convert}`"))
            }
            Self::Inconsistent { .. } => Some("convert the checkpoint again".to_owned()),
            Self::RankOutsideMesh { ranks, .. } => Some(format!(
                "ranks are 0 to {}; reslice the pack to open it for another number of ranks",
                ranks.saturating_sub(1)
            )),
            Self::Budget { needed, .. } => Some(format!("allow at least {needed} bytes")),
            Self::AmbiguousTensor { .. } => Some("name the component".to_owned()),
            _ => None,
        }
    }

    pub(crate) fn map(path: String, source: io::Error) -> Self {
        Self::Map { path, source }
    }

    pub(crate) fn io(path: String, source: io::Error) -> Self {
        Self::Io {
            path,
            offset: None,
            source,
        }
    }

    pub(crate) fn io_at(path: String, offset: u64, source: io::Error) -> Self {
        Self::Io {
            path,
            offset: Some(offset),
            source,
        }
    }
}
