//! A pack whose bytes are in memory or mapped.

use std::path::Path;

use crate::{Element, Entry, Error, FileSource, Index, Map, ShardIndex, element::elements};

/// A pack over any bytes.
///
/// Opening checks header and root, in time that does not depend on the data: see [`Index`]. Bytes of
/// tensors are checked by [`crate::verify`] or by the staged reader, not by the views of a pack.
#[derive(Debug)]
pub struct Pack<D> {
    data: D,
    index: Index,
}

impl Pack<Map> {
    /// Maps a file for reading. Its exact length is checked first; what must not happen to the file
    /// afterwards is written at [`Map`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let file = FileSource::open(path)?;
        let index = Index::read(&file)?;
        Ok(Self {
            data: Map::new(&file)?,
            index,
        })
    }
}

impl<D: AsRef<[u8]>> Pack<D> {
    /// A pack over bytes in memory.
    pub fn from_bytes(data: D) -> Result<Self, Error> {
        let index = Index::read(data.as_ref())?;
        Ok(Self { data, index })
    }

    /// The index.
    #[must_use]
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// All bytes of the pack.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.data.as_ref()
    }

    /// What a rank holds: costs reading that rank's own tables.
    pub fn shard(&self, rank: u32) -> Result<RankShard<'_>, Error> {
        let data = self.data.as_ref();
        Ok(RankShard {
            data,
            index: self.index.shard(data, rank)?,
        })
    }
}

/// All slices of one rank, with their bytes.
#[derive(Debug)]
pub struct RankShard<'p> {
    data: &'p [u8],
    index: ShardIndex,
}

impl<'p> RankShard<'p> {
    /// The slices without their bytes.
    #[must_use]
    pub fn index(&self) -> &ShardIndex {
        &self.index
    }

    /// Number of slices.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// True without slices.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// All slices in file order.
    pub fn iter(&self) -> impl Iterator<Item = View<'_>> {
        self.index.iter().map(|entry| View {
            bytes: bytes_of(self.data, &entry),
            entry,
        })
    }

    /// The rank's slice of a tensor, by any of its names; see [`ShardIndex::get`].
    pub fn get(&self, name: &str) -> Result<View<'_>, Error> {
        let entry = self.index.get(name)?;
        Ok(View {
            bytes: bytes_of(self.data, &entry),
            entry,
        })
    }

    /// As [`RankShard::get`], of one component.
    pub fn get_in(&self, component: &str, name: &str) -> Result<View<'_>, Error> {
        let entry = self.index.get_in(component, name)?;
        Ok(View {
            bytes: bytes_of(self.data, &entry),
            entry,
        })
    }
}

/// The bytes of a slice. They are there: the exact length was checked against the header at open,
/// and every extent and slice against that; a `D` that shrinks itself later gets an empty slice.
fn bytes_of<'p>(data: &'p [u8], entry: &Entry<'_>) -> &'p [u8] {
    let range = || {
        let start = usize::try_from(entry.file_offset()).ok()?;
        data.get(start..start.checked_add(usize::try_from(entry.len()).ok()?)?)
    };
    range().unwrap_or_default()
}

/// One slice with its bytes. Everything that [`Entry`] says of it is there too.
#[derive(Clone, Debug)]
pub struct View<'a> {
    entry: Entry<'a>,
    bytes: &'a [u8],
}

impl<'a> View<'a> {
    /// The bytes: little-endian, row-major, without a copy.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The slice without its bytes.
    #[must_use]
    pub fn entry(&self) -> &Entry<'a> {
        &self.entry
    }

    /// The elements, without a copy. Fails if they are of another type, or if the pack's bytes are
    /// in memory that is not aligned for it; a mapped pack always is.
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T], Error> {
        elements(self.entry.dtype(), self.bytes)
    }
}

impl<'a> std::ops::Deref for View<'a> {
    type Target = Entry<'a>;

    fn deref(&self) -> &Self::Target {
        &self.entry
    }
}
