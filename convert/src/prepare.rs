//! A conversion decided to the last byte, before any tensor is read.

use rayon::prelude::*;
use wpack_checkpoint::{Checkpoint, SmallFile, Warning};
use wpack_format::{
    ComponentInfo, ComponentRecord, Description, EmbeddedFile, Extent, Header, Hex, MeshAxis, Root,
    SliceTable, SourceInfo, TableRef, Tensor, TensorTable, default_extent_align, sha256, spec,
};
use wpack_plan::{ComponentSpec, Inventory, Plan, TensorSpec};

use crate::{
    Error, Options,
    model::{Model, ModelComponent},
};

/// A checkpoint with its plan: every name, slice and offset of the pack is known, and nothing but headers
/// has been read.
#[derive(Debug)]
pub struct Prepared {
    pub(crate) model: Model,
    inventory: Inventory,
    plan: Plan,
    /// Complete but for checksums and digests of tables and the digests of sources.
    pub(crate) root: Root,
    pub(crate) header: Header,
    pub(crate) tensor_tables: Vec<Vec<u8>>,
    pub(crate) hash_sources: bool,
}

/// Stands for the SHA-256 of a source file until it is computed; of the same length.
pub(crate) const UNKNOWN_SHA256: [u8; 32] = [0; 32];

impl Prepared {
    /// Applies filters, renames and casts, plans, and lays out the file.
    ///
    /// # Errors
    ///
    /// Patterns that no tensor falls under, two tensors of one name, a component without tensors, and
    /// whatever the plan refuses.
    pub fn new(checkpoint: Checkpoint, options: &Options) -> Result<Self, Error> {
        if let Some(align) = options.align {
            check_align(align)?;
        }
        let known: Vec<String> = checkpoint
            .components
            .iter()
            .map(|component| component.name.clone())
            .collect();
        let model = Model::new(checkpoint, options)?;
        let inventory = inventory(&model);
        // What a plan says of components that are there and not taken is left unsaid.
        let mut request = options.request.clone();
        let taken = |name: &String| model.components.iter().any(|taken| taken.name == *name);
        let spoken = |name: &String| taken(name) || !known.contains(name);
        request.component_layouts.retain(|name, _| spoken(name));
        request.options.components.retain(|name, _| spoken(name));
        let plan = wpack_plan::plan(&inventory, &request)?;
        let tensor_tables = tensor_tables(&model, &plan)?;
        let total = plan
            .extents()
            .iter()
            .fold(0u64, |sum, extent| sum.saturating_add(extent.len));
        let align = options.align.unwrap_or_else(|| default_extent_align(total));
        let mut root = Root {
            description: describe(&model, &plan, options)?,
            components: records(&model, &tensor_tables)?,
            extents: extents(&plan)?,
        };
        let header = root.arrange(align)?;
        let bytes = root.encode();
        let sealed = header.clone().seal(&bytes);
        // A reader's own check: what it would refuse is better refused now.
        Root::decode(&bytes, &sealed)?;
        for ((component, table), record) in model
            .components
            .iter()
            .zip(&tensor_tables)
            .zip(&root.components)
        {
            debug_assert_eq!(component.name, record.name);
            let table = TensorTable::decode(table.as_slice(), record.tensor_count)?;
            table.check_references(&root.description)?;
        }
        Ok(Self {
            model,
            inventory,
            plan,
            root,
            header,
            tensor_tables,
            hash_sources: options.hash_sources,
        })
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Names, types and shapes in the pack, by component.
    #[must_use]
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// What the pack will say of itself. Digests of source files that were asked for are still zero.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.root.description
    }

    /// The extents as they will lie in the file, without digests.
    #[must_use]
    pub fn extents(&self) -> &[Extent] {
        &self.root.extents
    }

    /// A tensor as the pack will have it.
    #[must_use]
    pub fn tensor(&self, component: u32, tensor: u32) -> Option<Tensor> {
        let component_index = usize::try_from(component).ok()?;
        let found = self.model.components.get(component_index)?;
        pack_tensor(found, &self.plan, component, tensor)
    }

    /// Exact length of the file that [`crate::convert`] will write, bytes.
    #[must_use]
    pub fn file_len(&self) -> u64 {
        self.header.file_len
    }

    /// Bytes of the index, behind the header.
    #[must_use]
    pub fn index_len(&self) -> u64 {
        self.header.index_len
    }

    /// Alignment of extents, bytes.
    #[must_use]
    pub fn extent_align(&self) -> u64 {
        self.header.extent_align
    }

    /// What a person should know but need not act on: the checkpoint's warnings, then those of the
    /// transforms.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.model.warnings
    }

    /// Embedded files in the order of the description.
    pub(crate) fn embedded(&self) -> impl Iterator<Item = &SmallFile> {
        embedded(&self.model).map(|(_, file)| file)
    }
}

fn check_align(align: u64) -> Result<(), Error> {
    let (min, max) = (spec::EXTENT_ALIGN_MIN, spec::EXTENT_ALIGN_MAX);
    if align.is_power_of_two() && (min..=max).contains(&align) {
        Ok(())
    } else {
        Err(Error::Align { align, min, max })
    }
}

fn inventory(model: &Model) -> Inventory {
    let component = |component: &ModelComponent| ComponentSpec {
        name: component.name.clone(),
        tensors: component
            .tensors
            .iter()
            .map(|tensor| TensorSpec {
                names: tensor.names.iter().map(|name| name.name.clone()).collect(),
                dtype: tensor.dtype,
                shape: tensor.shape.clone(),
            })
            .collect(),
    };
    Inventory {
        components: model.components.iter().map(component).collect(),
    }
}

fn pack_tensor(
    component: &ModelComponent,
    plan: &Plan,
    component_index: u32,
    tensor_index: u32,
) -> Option<Tensor> {
    let decision = plan.decision(component_index, tensor_index)?;
    let tensor = component.tensors.get(usize::try_from(tensor_index).ok()?)?;
    Some(Tensor {
        names: tensor.names.clone(),
        dtype: tensor.dtype,
        source_dtype: tensor.source_dtype,
        shape: tensor.shape.clone(),
        stored_shape: tensor.stored_shape.clone(),
        role: decision.role,
        rule: decision.rule,
        source: tensor.source,
    })
}

fn count(len: usize, what: &'static str) -> Result<u32, Error> {
    u32::try_from(len).map_err(|_| Error::TooLarge { what })
}

fn tensor_tables(model: &Model, plan: &Plan) -> Result<Vec<Vec<u8>>, Error> {
    let components = model.components.iter().zip(0u32..);
    components
        .map(|(component, index)| {
            let tensors = 0..count(component.tensors.len(), "tensors of a component")?;
            let tensors: Option<Vec<Tensor>> = tensors
                .map(|tensor| pack_tensor(component, plan, index, tensor))
                .collect();
            let tensors = tensors.ok_or_else(|| Error::Inconsistent {
                component: component.name.clone(),
                tensor: 0,
                why: "the plan decides less tensors than there are",
            })?;
            Ok(TensorTable::encode(&tensors))
        })
        .collect()
}

fn records(model: &Model, tables: &[Vec<u8>]) -> Result<Vec<ComponentRecord>, Error> {
    let components = model.components.iter().zip(tables);
    components
        .map(|(component, table)| {
            Ok(ComponentRecord {
                name: component.name.clone(),
                tensor_count: count(component.tensors.len(), "tensors of a component")?,
                tensors: TableRef::of(0, table),
            })
        })
        .collect()
}

/// Extents with the lengths of their slice tables. The slices are made and dropped one extent at a time
/// on each thread, so memory does not grow with the number of ranks.
fn extents(plan: &Plan) -> Result<Vec<Extent>, Error> {
    let planned = plan.extents().par_iter().enumerate();
    planned
        .map(|(index, extent)| {
            let table = SliceTable::encode(&plan.slices(index)?);
            let slices = TableRef {
                len: table.len() as u64,
                ..TableRef::default()
            };
            Ok(Extent {
                component: extent.component,
                owners: extent.owners.clone(),
                offset: 0,
                len: extent.len,
                slice_count: extent.slice_count,
                slices,
                blocks: TableRef::default(),
            })
        })
        .collect()
}

fn embedded(model: &Model) -> impl Iterator<Item = (Option<&str>, &SmallFile)> {
    let of_pack = model.files.iter().map(|file| (None, file));
    let of_components = model.components.iter().flat_map(|component| {
        component
            .files
            .iter()
            .map(|file| (Some(component.name.as_str()), file))
    });
    of_pack.chain(of_components)
}

fn describe(model: &Model, plan: &Plan, options: &Options) -> Result<Description, Error> {
    let mesh = plan.mesh().map(|mesh| {
        let axes = mesh.axes().iter();
        axes.map(|axis| MeshAxis {
            name: axis.name.clone(),
            size: axis.size,
        })
        .collect()
    });
    let mut resolved = plan.resolved().clone();
    resolved.align = options.align;
    let file = options.plan.as_ref().map(|file| file.resolved(plan.mesh()));
    resolved.file = file.map(|file| file.canonical()).transpose()?;
    let components = model
        .components
        .iter()
        .zip(0u32..)
        .map(|(component, index)| ComponentInfo {
            name: component.name.clone(),
            layout: plan.component_layout(index).unwrap_or_default().to_owned(),
            transform: component.transform.clone(),
            metadata: component.metadata.clone(),
        });
    let files = embedded(model).map(|(component, file)| EmbeddedFile {
        component: component.map(str::to_owned),
        path: file.path.clone(),
        offset: 0,
        len: file.bytes.len() as u64,
        sha256: Hex(&sha256(&file.bytes)).to_string(),
    });
    let sources = model.sources.iter().map(|source| SourceInfo {
        name: source
            .path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default(),
        size: source.size,
        sha256: options
            .hash_sources
            .then(|| Hex(&UNKNOWN_SHA256).to_string()),
    });
    Ok(Description {
        mesh,
        layout: plan.layout().to_owned(),
        components: components.collect(),
        plan: resolved,
        sources: sources.collect(),
        files: files.collect(),
        metadata: options.metadata.clone(),
    })
}
