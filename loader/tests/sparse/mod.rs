//! A pack of very many ranks, of which only what one rank opens is there: header, root, tensor table and
//! the rank's own slice tables. Reading anything else fails, and what is read is counted.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
};

use wpack_format::{
    ComponentInfo, ComponentRecord, Description, Extent, Root, SliceTable, TableRef, Tensor,
    TensorName, TensorTable,
};
use wpack_loader::ByteSource;
use wpack_plan::{Inventory, Plan, PlanFile, plan};

pub(crate) struct Sparse {
    /// First byte and bytes of each stretch that is there.
    pieces: Vec<(u64, Vec<u8>)>,
    len: u64,
    read: AtomicU64,
}

impl Sparse {
    /// A pack of one component, planned by the text of a plan file, as `rank` sees it.
    pub(crate) fn new(inventory: &Inventory, text: &str, rank: u32) -> Self {
        let file = PlanFile::parse(text).unwrap();
        let plan = plan(inventory, &file.request().unwrap()).unwrap();
        let tensors = TensorTable::encode(&tensors(inventory, &plan));
        let held: Vec<usize> = plan.extents_of(rank).collect();
        let mut tables: Vec<(usize, Vec<u8>)> = Vec::new();
        for &at in &held {
            tables.push((at, SliceTable::encode(&plan.slices(at).unwrap())));
        }
        let mut root = Root {
            description: Description {
                mesh: plan.mesh().map(|mesh| mesh.axes().to_vec()),
                layout: plan.layout().to_owned(),
                components: vec![ComponentInfo {
                    name: inventory.components[0].name.clone(),
                    layout: plan.component_layout(0).unwrap().to_owned(),
                    ..ComponentInfo::default()
                }],
                plan: wpack_format::ResolvedPlan {
                    file: Some(file.resolved(plan.mesh()).canonical().unwrap()),
                    ..plan.resolved().clone()
                },
                ..Description::default()
            },
            components: vec![ComponentRecord {
                name: inventory.components[0].name.clone(),
                tensor_count: u32::try_from(inventory.components[0].tensors.len()).unwrap(),
                tensors: TableRef::of(0, &tensors),
            }],
            extents: Vec::new(),
        };
        let mut table = tables.iter();
        let mut next = table.next();
        for (at, extent) in plan.extents().iter().enumerate() {
            let mut slices = TableRef {
                len: 64 * u64::from(extent.slice_count),
                ..TableRef::default()
            };
            if let Some((_, bytes)) = next.filter(|(of, _)| *of == at) {
                slices = TableRef::of(0, bytes);
                next = table.next();
            }
            root.extents.push(Extent {
                component: extent.component,
                owners: extent.owners.clone(),
                offset: 0,
                len: extent.len,
                slice_count: extent.slice_count,
                slices,
                blocks: TableRef::default(),
            });
        }
        let header = root.arrange(4096).unwrap();
        let encoded = root.encode();
        let header = header.seal(&encoded);
        let mut pieces = vec![
            (0, header.encode().to_vec()),
            (header.root.offset, encoded),
            (root.components[0].tensors.offset, tensors),
        ];
        for (at, bytes) in tables {
            pieces.push((root.extents[at].slices.offset, bytes));
        }
        Self {
            pieces,
            len: header.file_len,
            read: AtomicU64::new(0),
        }
    }

    /// Bytes that are there.
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces
            .iter()
            .map(|(_, piece)| piece.len() as u64)
            .sum()
    }

    /// Bytes read since the last call.
    pub(crate) fn take_read(&self) -> u64 {
        self.read.swap(0, Ordering::Relaxed)
    }
}

fn tensors(inventory: &Inventory, plan: &Plan) -> Vec<Tensor> {
    let tensors = (0..).zip(&inventory.components[0].tensors);
    let tensor = |(at, spec): (u32, &wpack_plan::TensorSpec)| {
        let decision = plan.decision(0, at).unwrap();
        let names = spec.names.iter().map(|name| TensorName {
            name: name.clone(),
            source: name.clone(),
        });
        Tensor {
            names: names.collect(),
            dtype: spec.dtype,
            source_dtype: spec.dtype,
            shape: spec.shape.clone(),
            stored_shape: spec.shape.clone(),
            role: decision.role,
            rule: decision.rule,
            source: None,
        }
    };
    tensors.map(tensor).collect()
}

impl ByteSource for Sparse {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let found = self.pieces.iter().find_map(|(start, bytes)| {
            let from = usize::try_from(offset.checked_sub(*start)?).ok()?;
            bytes.get(from..).filter(|rest| !rest.is_empty())
        });
        let Some(rest) = found else {
            return Err(io::Error::other("this is not the rank's"));
        };
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        self.read.fetch_add(len as u64, Ordering::Relaxed);
        Ok(len)
    }

    fn label(&self) -> String {
        "a sparse pack".to_owned()
    }
}
