//! A checkpoint in model space: filters, names and casts decided, no byte read.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::Arc,
};

use wpack_checkpoint::{Bytes, Checkpoint, SmallFile, SourceFile, Warning};
use wpack_format::{DType, TensorName, Transform};
use wpack_plan::TransformText;

use crate::{
    Error, Options, TransformOptions,
    gather::Tensors,
    join::{self, Loose},
    names::{Renamer, Used},
};

/// Everything that a pack is made of, before it is laid out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) components: Vec<ModelComponent>,
    pub(crate) sources: Vec<SourceFile>,
    /// Files of no component.
    pub(crate) files: Vec<SmallFile>,
    pub(crate) warnings: Vec<Warning>,
}

/// One component in model space.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelComponent {
    pub(crate) name: String,
    pub(crate) tensors: Vec<ModelTensor>,
    pub(crate) transform: Transform,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) files: Vec<SmallFile>,
}

/// A tensor as the pack will have it, and the way to its bytes.
#[derive(Clone)]
pub(crate) struct ModelTensor {
    pub(crate) names: Vec<TensorName>,
    pub(crate) dtype: DType,
    pub(crate) source_dtype: DType,
    pub(crate) shape: Vec<u64>,
    pub(crate) stored_shape: Vec<u64>,
    /// Index into [`Model::sources`]; none if it is made of several.
    pub(crate) source: Option<u32>,
    pub(crate) bytes: Arc<dyn Bytes>,
}

impl Model {
    /// Applies filters, renames and casts; what names or patterns find nothing for is an error. Sources
    /// that nothing is taken from are left out.
    pub(crate) fn new(checkpoint: Checkpoint, options: &Options) -> Result<Self, Error> {
        let mut used = Used::default();
        let (model, components) = Self::build(checkpoint, options, &mut used)?;
        used.check(&components)?;
        match model
            .components
            .iter()
            .find(|component| component.tensors.is_empty())
        {
            Some(empty) => Err(Error::NothingLeft {
                component: empty.name.clone(),
            }),
            None => Ok(model),
        }
    }

    /// As [`Model::new`], but what finds nothing is left out silently: for comparing with a pack, where
    /// a report will say it.
    pub(crate) fn lenient(checkpoint: Checkpoint, options: &Options) -> Result<Self, Error> {
        let mut options = options.clone();
        let known = |name: &String| {
            checkpoint
                .components
                .iter()
                .any(|found| found.name == *name)
        };
        options.components.retain(known);
        options.component_transforms.retain(|name, _| known(name));
        Ok(Self::build(checkpoint, &options, &mut Used::default())?.0)
    }

    fn build(
        checkpoint: Checkpoint,
        options: &Options,
        used: &mut Used,
    ) -> Result<(Self, Vec<wpack_checkpoint::Component>), Error> {
        let components = select(checkpoint.components, options)?;
        let mut model = Self {
            files: checkpoint.files,
            warnings: checkpoint.warnings,
            ..Self::default()
        };
        let mut sources = Sources::new(checkpoint.sources);
        for component in &components {
            let over = options.component_transforms.get(&component.name);
            let transform = match over {
                Some(over) => options.transform.overridden(over),
                None => options.transform.clone(),
            };
            let component = build(
                component,
                &transform,
                used,
                &mut sources,
                &mut model.warnings,
            )?;
            model.components.push(component);
        }
        model.sources = sources.kept;
        Ok((model, components))
    }

    /// Paths of the files that tensors come from.
    pub(crate) fn source_paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.sources.iter().map(|source| &source.path)
    }
}

impl Tensors for ModelComponent {
    fn get(&self, tensor: u32) -> Option<&ModelTensor> {
        self.tensors.get(usize::try_from(tensor).ok()?)
    }

    fn shape(&self, tensor: u32) -> Option<&[u64]> {
        self.get(tensor).map(|tensor| tensor.shape.as_slice())
    }

    fn component(&self) -> &str {
        &self.name
    }
}

fn select(
    components: Vec<wpack_checkpoint::Component>,
    options: &Options,
) -> Result<Vec<wpack_checkpoint::Component>, Error> {
    let asked = options
        .components
        .iter()
        .chain(options.component_transforms.keys());
    for name in asked {
        if !components.iter().any(|component| component.name == *name) {
            return Err(Error::UnknownComponent {
                component: name.clone(),
                known: components
                    .iter()
                    .map(|component| component.name.clone())
                    .collect(),
            });
        }
    }
    let taken = |component: &wpack_checkpoint::Component| {
        options.components.is_empty() || options.components.contains(&component.name)
    };
    Ok(components.into_iter().filter(taken).collect())
}

/// The source files that tensors are taken from, numbered as they come up.
struct Sources {
    all: Vec<SourceFile>,
    numbers: HashMap<usize, u32>,
    kept: Vec<SourceFile>,
}

impl Sources {
    fn new(all: Vec<SourceFile>) -> Self {
        Self {
            all,
            numbers: HashMap::new(),
            kept: Vec::new(),
        }
    }

    fn number(&mut self, index: usize) -> Result<u32, Error> {
        if let Some(number) = self.numbers.get(&index) {
            return Ok(*number);
        }
        let too_many = Error::TooLarge {
            what: "source files",
        };
        let number = u32::try_from(self.kept.len()).ok();
        let (Some(number), Some(file)) = (number, self.all.get(index)) else {
            return Err(too_many);
        };
        self.kept.push(file.clone());
        self.numbers.insert(index, number);
        Ok(number)
    }
}

fn build(
    component: &wpack_checkpoint::Component,
    options: &TransformOptions,
    used: &mut Used,
    sources: &mut Sources,
    warnings: &mut Vec<Warning>,
) -> Result<ModelComponent, Error> {
    let mut renamer = Renamer::new(options)?;
    let mut built = ModelComponent {
        name: component.name.clone(),
        tensors: Vec::with_capacity(component.tensors.len()),
        transform: transform(&component.root, options),
        metadata: component.metadata.clone(),
        files: component.files.clone(),
    };
    let mut loose = Vec::with_capacity(component.tensors.len());
    for tensor in &component.tensors {
        let names = renamer.names(&component.name, &tensor.names)?;
        if !names.is_empty() {
            loose.push(Loose {
                names,
                dtype: tensor.dtype,
                shape: tensor.shape.clone(),
                stored_shape: tensor.stored_shape.clone(),
                source: Some(sources.number(tensor.source)?),
                bytes: Arc::clone(&tensor.bytes),
            });
        }
    }
    renamer.report(used);
    let mut loose = join::merge(&component.name, loose, &options.merge, used)?;
    join::pad(&component.name, &mut loose, &options.pad, used)?;
    let mut kept_as_they_are: BTreeMap<DType, (u64, String)> = BTreeMap::new();
    for tensor in loose {
        let Some(first) = tensor.names.first() else {
            continue;
        };
        let mut dtype = tensor.dtype;
        match options.dtype {
            Some(target) if is_cast(tensor.dtype) => dtype = target,
            Some(target) if tensor.dtype.is_floating() && tensor.dtype != target => {
                let kept = kept_as_they_are.entry(tensor.dtype);
                kept.or_insert_with(|| (0, first.name.clone())).0 += 1;
            }
            _ => {}
        }
        let cast = dtype != tensor.dtype;
        built.tensors.push(ModelTensor {
            dtype,
            source_dtype: tensor.dtype,
            stored_shape: if cast {
                tensor.shape.clone()
            } else {
                tensor.stored_shape
            },
            shape: tensor.shape,
            source: tensor.source,
            bytes: tensor.bytes,
            names: tensor.names,
        });
    }
    check_collisions(&built)?;
    for (dtype, (count, example)) in kept_as_they_are {
        warnings.push(Warning {
            code: "dtype-kept",
            message: format!(
                "component `{}`: {count} tensors of {dtype} are not cast (`{example}`): {}",
                component.name,
                if matches!(dtype, DType::C32 | DType::C64 | DType::C128) {
                    "a real type would lose their imaginary part"
                } else {
                    "quantised values mean nothing without their scale"
                }
            ),
        });
    }
    Ok(built)
}

/// The types that `--dtype` casts: as `module.to(dtype)` of torch, but for complex ones (their imaginary
/// part would be lost) and those of 8 bits and fewer (their scale would be).
const fn is_cast(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::Bf16 | DType::F32 | DType::F64)
}

fn transform(root: &str, options: &TransformOptions) -> Transform {
    Transform {
        root: root.to_owned(),
        include: options.include.clone(),
        exclude: options.exclude.clone(),
        strip_prefix: options.strip_prefix.clone(),
        add_prefix: options.add_prefix.clone().unwrap_or_default(),
        rename: options.rename.clone(),
        dtype: options.dtype.map(|dtype| dtype.name().to_owned()),
    }
}

/// What a stored transform asks for: the way back from [`transform`], without the root. What it does not
/// keep is in the plan file.
pub(crate) fn options_of(
    transform: &Transform,
    file: Option<&TransformText>,
) -> Result<TransformOptions, Error> {
    let (merge, pad) = match file {
        Some(file) => (file.merge.clone(), file.pad.clone()),
        None => Default::default(),
    };
    let dtype = transform
        .dtype
        .as_deref()
        .map(crate::parse_dtype)
        .transpose()?;
    Ok(TransformOptions {
        include: transform.include.clone(),
        exclude: transform.exclude.clone(),
        strip_prefix: transform.strip_prefix.clone(),
        add_prefix: Some(transform.add_prefix.clone()),
        rename: transform.rename.clone(),
        merge,
        pad,
        dtype,
    })
}

fn check_collisions(component: &ModelComponent) -> Result<(), Error> {
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for name in component.tensors.iter().flat_map(|tensor| &tensor.names) {
        if let Some(first) = seen.insert(&name.name, &name.source) {
            return Err(Error::NameCollision {
                component: component.name.clone(),
                name: name.name.clone(),
                first: first.to_owned(),
                second: name.source.clone(),
            });
        }
    }
    Ok(())
}

impl std::fmt::Debug for ModelTensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelTensor")
            .field("names", &self.names)
            .field("dtype", &self.dtype)
            .field("source_dtype", &self.source_dtype)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}
