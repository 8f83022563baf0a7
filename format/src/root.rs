//! The root: what the root digest covers, and where it puts everything.

use alloc::{
    format,
    string::{String, ToString as _},
    vec::Vec,
};

use crate::{
    Description, Error, Extent, Header, Owners, RankRun, TableRef,
    align::{align_up, block_count},
    bytes::{Record, RecordMut, count32, index, wide},
    error::{OwnersFault, Table},
    spec::{self, component as comp, extent as ext, root as at, run},
};

/// One component in the root: its tensor table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentRecord {
    /// Name; equal to the description's of the same index. The file has it in the description alone.
    pub name: String,
    /// Number of tensors.
    pub tensor_count: u32,
    /// Where its tensor table lies.
    pub tensors: TableRef,
}

/// What the root digest covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// What the pack says of itself.
    pub description: Description,
    /// Components, in the order of the description.
    pub components: Vec<ComponentRecord>,
    /// Extents by ascending offset.
    pub extents: Vec<Extent>,
}

impl Root {
    /// The root's bytes. Their number does not depend on offsets, checksums and digests.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let description = self.description.to_json();
        let mut bytes = Vec::new();
        let mut head = RecordMut::<{ at::SIZE }>::new();
        let runs = self
            .extents
            .iter()
            .map(|extent| extent.owners.runs().len())
            .sum();
        head.put::<{ at::DESCRIPTION_LEN }, 8>(wide(description.len()).to_le_bytes())
            .put::<{ at::COMPONENT_COUNT }, 4>(count32(self.components.len()).to_le_bytes())
            .put::<{ at::EXTENT_COUNT }, 4>(count32(self.extents.len()).to_le_bytes())
            .put::<{ at::RUN_COUNT }, 4>(count32(runs).to_le_bytes());
        bytes.extend_from_slice(&head.0);
        for component in &self.components {
            let mut record = RecordMut::<{ comp::SIZE }>::new();
            record
                .put::<{ comp::TENSOR_TABLE }, { spec::table_ref::SIZE }>(
                    component.tensors.encode(),
                )
                .put::<{ comp::TENSOR_COUNT }, 4>(component.tensor_count.to_le_bytes());
            bytes.extend_from_slice(&record.0);
        }
        for extent in &self.extents {
            bytes.extend_from_slice(&encode_extent(extent).0);
        }
        for owner_run in self.extents.iter().flat_map(|extent| extent.owners.runs()) {
            let mut record = RecordMut::<{ run::SIZE }>::new();
            record
                .put::<{ run::FIRST }, 4>(owner_run.first.to_le_bytes())
                .put::<{ run::COUNT }, 4>(owner_run.count.to_le_bytes())
                .put::<{ run::STEP }, 4>(owner_run.step.to_le_bytes());
            bytes.extend_from_slice(&record.0);
        }
        bytes.extend_from_slice(&description);
        bytes
    }

    /// Reads the root; checks it against the header (CRC, ranges, order, overlaps, alignments).
    ///
    /// The SHA-256 is [`TableRef::check_digest`], for `verify`.
    pub fn decode(bytes: &[u8], header: &Header) -> Result<Self, Error> {
        header.root.check("the root", bytes)?;
        let parts = split(bytes)?;
        let description = Description::from_json(parts.description)?;
        let ranks = description.check()?;
        let (described, counted) = (description.components.len(), parts.components.len());
        if described != counted {
            return Err(Error::Count {
                table: Table::Root,
                field: "COMPONENT_COUNT",
                expected: wide(described),
                found: wide(counted),
            });
        }
        let mut components = Vec::with_capacity(counted);
        for (entry, (record, info)) in parts
            .components
            .iter()
            .zip(&description.components)
            .enumerate()
        {
            let record = Record(record);
            if record.array::<{ comp::RESERVED }, 8>() != [0; 8] {
                return Err(reserved(Table::Components, "RESERVED", entry));
            }
            components.push(ComponentRecord {
                name: info.name.clone(),
                tensor_count: record.u32::<{ comp::TENSOR_COUNT }>(),
                tensors: TableRef::decode(&record.array::<{ comp::TENSOR_TABLE }, _>()),
            });
        }
        let extents = decode_extents(&parts, counted, ranks)?;
        let mut root = Self {
            description,
            components,
            extents,
        };
        root.check_places(header)?;
        Ok(root)
    }

    /// Number of ranks of the mesh; `None` for a pack that fits any number.
    #[must_use]
    pub fn ranks(&self) -> Option<u32> {
        self.description.ranks()
    }

    /// Gives every table, embedded file and extent its one place, and makes the header that fits.
    ///
    /// Set before: the description, every table's `len` (but a block table's, which follows from
    /// its extent), counts, owners and extents' `len`. May be set after, without moving anything:
    /// checksums and digests. The header's root reference lacks them: [`Header::seal`].
    pub fn arrange(&mut self, extent_align: u64) -> Result<Header, Error> {
        let root = TableRef {
            len: wide(self.encode().len()),
            ..TableRef::default()
        };
        self.place(root, extent_align)
    }

    fn place(&mut self, mut root: TableRef, extent_align: u64) -> Result<Header, Error> {
        let mut at = spec::HEADER_LEN;
        root.offset = take(&mut at, root.len, spec::TABLE_ALIGN, || {
            "the root".to_string()
        })?;
        for component in &mut self.components {
            let table = &mut component.tensors;
            table.offset = take(&mut at, table.len, spec::TABLE_ALIGN, || {
                format!("the tensor table of component {:?}", component.name)
            })?;
        }
        for (i, extent) in self.extents.iter_mut().enumerate() {
            let table = &mut extent.slices;
            table.offset = take(&mut at, table.len, spec::TABLE_ALIGN, || {
                slice_table_name(i)
            })?;
        }
        for (i, extent) in self.extents.iter_mut().enumerate() {
            // No overflow: fewer blocks than bytes / 36.
            extent.blocks.len = block_count(extent.len).saturating_mul(wide(spec::block::SIZE));
            let table = &mut extent.blocks;
            table.offset = take(&mut at, table.len, spec::TABLE_ALIGN, || {
                block_table_name(i)
            })?;
        }
        for file in &mut self.description.files {
            file.offset = take(&mut at, file.len, spec::TABLE_ALIGN, || {
                format!("the embedded file {:?}", file.path)
            })?;
        }
        let index_end = take(&mut at, 0, spec::TABLE_ALIGN, || {
            "the end of the index".to_string()
        })?;
        for (i, extent) in self.extents.iter_mut().enumerate() {
            extent.offset = take(&mut at, extent.len, extent_align, || format!("extent {i}"))?;
        }
        let file_len = take(&mut at, 0, extent_align, || {
            "the end of the file".to_string()
        })?;
        Ok(Header {
            version: spec::VERSION,
            file_len,
            extent_align,
            index_len: index_end - spec::HEADER_LEN,
            root,
        })
    }

    /// Everything lies where [`Root::arrange`] puts it, so nothing overlaps and nothing is hidden.
    fn check_places(&mut self, header: &Header) -> Result<(), Error> {
        let found = self.clone();
        let placed = self.place(header.root, header.extent_align)?;
        for (i, (right, real)) in self.components.iter().zip(&found.components).enumerate() {
            same_place(right.tensors.offset, real.tensors.offset, || {
                format!("the tensor table of component {i}")
            })?;
        }
        // In the order of the file, so that the first thing out of place is the one named.
        let extents = || self.extents.iter().zip(&found.extents).enumerate();
        for (i, (right, real)) in extents() {
            same_place(right.slices.offset, real.slices.offset, || {
                slice_table_name(i)
            })?;
        }
        for (i, (right, real)) in extents() {
            let (expected, len) = (right.blocks.len, real.blocks.len);
            if expected != len {
                return Err(Error::Length {
                    what: block_table_name(i),
                    expected,
                    found: len,
                });
            }
            same_place(right.blocks.offset, real.blocks.offset, || {
                block_table_name(i)
            })?;
        }
        for (i, (right, real)) in extents() {
            same_place(right.offset, real.offset, || format!("extent {i}"))?;
        }
        // No overflow: checked against the file's length.
        let index_end = spec::HEADER_LEN + header.index_len;
        same_place(spec::HEADER_LEN + placed.index_len, index_end, || {
            "the end of the index".to_string()
        })?;
        same_place(placed.file_len, header.file_len, || {
            "the end of the file".to_string()
        })
    }
}

impl Header {
    /// Enters the digests of the root's final bytes.
    #[must_use]
    pub fn seal(mut self, root: &[u8]) -> Self {
        self.root = TableRef::of(self.root.offset, root);
        self
    }
}

fn slice_table_name(extent: usize) -> String {
    format!("the slice table of extent {extent}")
}

fn block_table_name(extent: usize) -> String {
    format!("the block table of extent {extent}")
}

/// Moves `at` past `len` bytes from its next multiple of `align`, and gives that multiple.
fn take(at: &mut u64, len: u64, align: u64, what: impl Fn() -> String) -> Result<u64, Error> {
    let start = align_up(*at, align);
    let end = start.and_then(|start| start.checked_add(len));
    let (Some(start), Some(end)) = (start, end) else {
        return Err(Error::TooLarge { what: what() });
    };
    *at = end;
    Ok(start)
}

fn same_place(expected: u64, found: u64, what: impl Fn() -> String) -> Result<(), Error> {
    if expected == found {
        Ok(())
    } else {
        Err(Error::Place {
            what: what(),
            expected,
            found,
        })
    }
}

fn reserved(table: Table, field: &'static str, entry: usize) -> Error {
    Error::ReservedBits {
        table,
        field,
        entry: wide(entry),
    }
}

fn encode_extent(extent: &Extent) -> RecordMut<{ ext::SIZE }> {
    let mut record = RecordMut::new();
    record
        .put::<{ ext::OFFSET }, 8>(extent.offset.to_le_bytes())
        .put::<{ ext::LEN }, 8>(extent.len.to_le_bytes())
        .put::<{ ext::COMPONENT }, 4>(extent.component.to_le_bytes())
        .put::<{ ext::SLICE_COUNT }, 4>(extent.slice_count.to_le_bytes())
        .put::<{ ext::RUN_COUNT }, 4>(count32(extent.owners.runs().len()).to_le_bytes())
        .put::<{ ext::SLICE_TABLE }, { spec::table_ref::SIZE }>(extent.slices.encode())
        .put::<{ ext::BLOCK_TABLE }, { spec::table_ref::SIZE }>(extent.blocks.encode());
    record
}

/// The root's bytes by section.
struct Parts<'a> {
    components: &'a [[u8; comp::SIZE]],
    extents: &'a [[u8; ext::SIZE]],
    runs: &'a [[u8; run::SIZE]],
    description: &'a [u8],
}

fn split(bytes: &[u8]) -> Result<Parts<'_>, Error> {
    let length = |expected| Error::Length {
        what: "the root".to_string(),
        expected,
        found: wide(bytes.len()),
    };
    let (head, body) = bytes
        .split_first_chunk::<{ at::SIZE }>()
        .ok_or_else(|| length(wide(at::SIZE)))?;
    let head = Record(head);
    if head.u32::<{ at::RESERVED }>() != 0 {
        return Err(reserved(Table::Root, "RESERVED", 0));
    }
    let description_len = head.u64::<{ at::DESCRIPTION_LEN }>();
    let counts = [
        (head.u32::<{ at::COMPONENT_COUNT }>(), comp::SIZE),
        (head.u32::<{ at::EXTENT_COUNT }>(), ext::SIZE),
        (head.u32::<{ at::RUN_COUNT }>(), run::SIZE),
    ];
    // No overflow: 32-bit counts of small records.
    let records: u64 = counts
        .iter()
        .map(|(count, size)| u64::from(*count) * wide(*size))
        .sum();
    let expected = (records + wide(at::SIZE)).saturating_add(description_len);
    if expected != wide(bytes.len()) {
        return Err(length(expected));
    }
    let mut rest = body;
    let mut section = |(count, size): (u32, usize)| {
        let (section, tail) = rest.split_at_checked(index(count).saturating_mul(size))?;
        rest = tail;
        Some(section)
    };
    let [components, extents, runs] = counts.map(|count| section(count).unwrap_or_default());
    Ok(Parts {
        components: components.as_chunks().0,
        extents: extents.as_chunks().0,
        runs: runs.as_chunks().0,
        description: rest,
    })
}

fn decode_extents(
    parts: &Parts<'_>,
    components: usize,
    ranks: Option<u32>,
) -> Result<Vec<Extent>, Error> {
    let mut runs = parts.runs;
    let mut extents = Vec::with_capacity(parts.extents.len());
    for (entry, record) in parts.extents.iter().enumerate() {
        let record = Record(record);
        if record.u16::<{ ext::RESERVED_FLAGS }>() != 0 {
            return Err(reserved(Table::Extents, "RESERVED_FLAGS", entry));
        }
        let component = record.u32::<{ ext::COMPONENT }>();
        if index(component) >= components {
            return Err(Error::Range {
                table: Table::Extents,
                field: "COMPONENT",
                entry: wide(entry),
                found: component.into(),
                limit: wide(components),
            });
        }
        let count = index(record.u32::<{ ext::RUN_COUNT }>());
        let Some((own, rest)) = runs.split_at_checked(count) else {
            let (extent, run) = (wide(entry), wide(runs.len()));
            return Err(Error::Owners {
                extent,
                run,
                fault: OwnersFault::Missing,
            });
        };
        runs = rest;
        let owners = decode_owners(own, ranks).map_err(|(run, fault)| Error::Owners {
            extent: wide(entry),
            run: wide(run),
            fault,
        })?;
        extents.push(Extent {
            component,
            owners,
            offset: record.u64::<{ ext::OFFSET }>(),
            len: record.u64::<{ ext::LEN }>(),
            slice_count: record.u32::<{ ext::SLICE_COUNT }>(),
            slices: TableRef::decode(&record.array::<{ ext::SLICE_TABLE }, _>()),
            blocks: TableRef::decode(&record.array::<{ ext::BLOCK_TABLE }, _>()),
        });
    }
    if runs.is_empty() {
        Ok(extents)
    } else {
        let (expected, found) = (parts.runs.len() - runs.len(), parts.runs.len());
        Err(Error::Count {
            table: Table::Root,
            field: "RUN_COUNT",
            expected: wide(expected),
            found: wide(found),
        })
    }
}

fn decode_owners(
    records: &[[u8; run::SIZE]],
    ranks: Option<u32>,
) -> Result<Owners, (usize, OwnersFault)> {
    if records.is_empty() {
        return Ok(Owners::All);
    }
    let ranks = ranks.ok_or((0, OwnersFault::NoMesh))?;
    let runs = records
        .iter()
        .map(|record| {
            let record = Record(record);
            RankRun {
                first: record.u32::<{ run::FIRST }>(),
                count: record.u32::<{ run::COUNT }>(),
                step: record.u32::<{ run::STEP }>(),
            }
        })
        .collect();
    let owners = Owners::Ranks(runs);
    owners.check(ranks)?;
    Ok(owners)
}
