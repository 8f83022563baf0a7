//! The index of a pack: header and root read at once, tables when they are needed.

use std::sync::{Arc, Mutex, PoisonError};

use wpack_format::{
    BlockTable, EmbeddedFile, Extent, Header, Hex, Root, SliceTable, TableRef, TensorTable, sha256,
    spec,
};

use crate::{ByteSource, Error};

/// Header, root and tables of a pack: bytes that are read once, checked, and owned, so that a source
/// that changes later cannot change them.
///
/// Reading costs the header and the root. Tables are read by the methods that take the source; each
/// checks its CRC-32C and structure. What is *not* checked here is data, and the SHA-256 digests:
/// that is [`crate::verify`].
#[derive(Debug)]
pub struct Index {
    header: Header,
    root: Root,
    /// Locked while one is read, so that it is read once.
    tensors: Vec<Mutex<Option<Arc<TensorTable>>>>,
    label: String,
}

impl Index {
    /// Reads header and root. The exact length of the source is checked first.
    pub fn read(source: &(impl ByteSource + ?Sized)) -> Result<Self, Error> {
        let label = source.label();
        let head_len = source.len().min(spec::HEADER_LEN);
        let head = read_range(source, 0, head_len, "the header")?;
        let wrap = |source| Error::Format {
            path: label.clone(),
            source,
        };
        let header = Header::decode(&head, source.len()).map_err(wrap)?;
        let bytes = read_range(source, header.root.offset, header.root.len, "the root")?;
        let root = Root::decode(&bytes, &header).map_err(wrap)?;
        let tensors = root.components.iter().map(|_| Mutex::default()).collect();
        Ok(Self {
            header,
            root,
            tensors,
            label,
        })
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The root.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// The root digest (SHA-256): the pack's identity.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        self.header.root.sha256
    }

    /// Ranks of the pack's mesh; none for a pack that fits any number of ranks.
    #[must_use]
    pub fn ranks(&self) -> Option<u32> {
        let axes = self.root.description.mesh.as_ref()?;
        Some(
            axes.iter()
                .fold(1_u32, |ranks, axis| ranks.saturating_mul(axis.size)),
        )
    }

    /// What messages call the pack.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The extent of an index.
    #[must_use]
    pub fn extent(&self, extent: u32) -> Option<&Extent> {
        self.root.extents.get(extent as usize)
    }

    /// Index of the component of a name.
    pub fn component(&self, name: &str) -> Result<u32, Error> {
        let records = &self.root.components;
        let found = (0..).zip(records).find(|(_, record)| record.name == name);
        found
            .map(|(index, _)| index)
            .ok_or_else(|| Error::UnknownComponent {
                name: name.to_owned(),
                have: records
                    .iter()
                    .map(|record| record.name.as_str())
                    .collect::<Vec<_>>()
                    .join(", "),
            })
    }

    /// The extents that `rank` holds, in file order.
    pub fn extents_of(&self, rank: u32) -> Result<Vec<u32>, Error> {
        if let Some(ranks) = self.ranks().filter(|ranks| rank >= *ranks) {
            return Err(Error::RankOutsideMesh { rank, ranks });
        }
        let held = (0..)
            .zip(&self.root.extents)
            .filter(|(_, extent)| extent.owners.contains(rank));
        Ok(held.map(|(index, _)| index).collect())
    }

    /// The tensor table of a component; read once, then shared.
    pub fn tensors(
        &self,
        source: &(impl ByteSource + ?Sized),
        component: u32,
    ) -> Result<Arc<TensorTable>, Error> {
        let (Some(cell), Some(record)) = (
            self.tensors.get(component as usize),
            self.root.components.get(component as usize),
        ) else {
            return Err(self.unknown_component(component));
        };
        let mut known = cell.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = &*known {
            return Ok(Arc::clone(table));
        }
        let bytes = self.table(source, &record.tensors, "a tensor table")?;
        let table = TensorTable::decode(bytes, record.tensor_count).map_err(|e| self.wrap(e))?;
        table
            .check_references(&self.root.description)
            .map_err(|e| self.wrap(e))?;
        Ok(Arc::clone(known.insert(Arc::new(table))))
    }

    /// The slice table of an extent.
    pub fn slices(
        &self,
        source: &(impl ByteSource + ?Sized),
        extent: &Extent,
    ) -> Result<SliceTable, Error> {
        let record = self.root.components.get(extent.component as usize);
        let record = record.ok_or_else(|| self.unknown_component(extent.component))?;
        let bytes = self.table(source, &extent.slices, "a slice table")?;
        SliceTable::decode(bytes, extent.slice_count, extent.len, record.tensor_count)
            .map_err(|e| self.wrap(e))
    }

    /// The block table of an extent.
    pub fn blocks(
        &self,
        source: &(impl ByteSource + ?Sized),
        extent: &Extent,
    ) -> Result<BlockTable, Error> {
        let bytes = self.table(source, &extent.blocks, "a block table")?;
        BlockTable::decode(bytes, extent.len).map_err(|e| self.wrap(e))
    }

    /// The bytes of an embedded file, its SHA-256 checked.
    pub fn file(
        &self,
        source: &(impl ByteSource + ?Sized),
        file: &EmbeddedFile,
    ) -> Result<Vec<u8>, Error> {
        let bytes = read_range(source, file.offset, file.len, "an embedded file")?;
        if Hex(&sha256(&bytes)).to_string() == file.sha256 {
            return Ok(bytes);
        }
        Err(Error::EmbeddedFile {
            path: self.label.clone(),
            file: file.path.clone(),
        })
    }

    fn table(
        &self,
        source: &(impl ByteSource + ?Sized),
        table: &TableRef,
        what: &'static str,
    ) -> Result<Vec<u8>, Error> {
        let bytes = read_range(source, table.offset, table.len, what)?;
        table.check(what, &bytes).map_err(|e| self.wrap(e))?;
        Ok(bytes)
    }

    pub(crate) fn unknown_extent(&self, extent: u32) -> Error {
        Error::UnknownExtent {
            extent,
            extents: self.root.extents.len(),
        }
    }

    fn unknown_component(&self, component: u32) -> Error {
        Error::UnknownComponent {
            name: format!("number {component}"),
            have: format!("{} components", self.root.components.len()),
        }
    }

    pub(crate) fn wrap(&self, source: wpack_format::Error) -> Error {
        Error::Format {
            path: self.label.clone(),
            source,
        }
    }
}

/// Ranges up to this many bytes are read into memory that is taken for granted.
const FRESH: usize = 256 << 20;

/// Reads a range into memory of its own; a range behind the end of the source allocates nothing.
pub(crate) fn read_range(
    source: &(impl ByteSource + ?Sized),
    offset: u64,
    len: u64,
    what: &'static str,
) -> Result<Vec<u8>, Error> {
    let end = offset.checked_add(len).filter(|end| *end <= source.len());
    if end.is_none() {
        let missing = offset.saturating_add(len).saturating_sub(source.len());
        return Err(Error::Truncated {
            path: source.label(),
            offset: source.len(),
            missing,
        });
    }
    let mut bytes = memory(len, what)?;
    source.read_exact_at(offset, &mut bytes)?;
    Ok(bytes)
}

/// Zero bytes, or an error if there is no memory for them.
pub(crate) fn memory(len: u64, what: &'static str) -> Result<Vec<u8>, Error> {
    let refused = || Error::OutOfMemory { bytes: len, what };
    let size = usize::try_from(len).map_err(|_| refused())?;
    if size <= FRESH {
        // Zero pages straight from the system: half the cost of clearing memory by hand.
        return Ok(vec![0; size]);
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size).map_err(|_| refused())?;
    bytes.resize(size, 0);
    Ok(bytes)
}
