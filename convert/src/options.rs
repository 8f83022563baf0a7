//! What a person may ask of a conversion.

use std::collections::BTreeMap;

use wpack_format::DType;
use wpack_plan::{MergeText, PadText, PlanFile, Request, TransformText};

use crate::Error;

/// Names that `--dtype` takes, beside those of safetensors: PyTorch's own and the usual short ones.
pub(crate) const DTYPE_NAMES: [(&str, DType); 17] = [
    ("bf16", DType::Bf16),
    ("fp16", DType::F16),
    ("fp32", DType::F32),
    ("fp64", DType::F64),
    ("fp8_e4m3fn", DType::F8E4M3),
    ("fp8_e5m2", DType::F8E5M2),
    ("fp8_e4m3fnuz", DType::F8E4M3Fnuz),
    ("fp8_e5m2fnuz", DType::F8E5M2Fnuz),
    ("fp8_e8m0fnu", DType::F8E8M0),
    ("bfloat16", DType::Bf16),
    ("float16", DType::F16),
    ("float32", DType::F32),
    ("float64", DType::F64),
    ("float8_e4m3fn", DType::F8E4M3),
    ("float8_e5m2", DType::F8E5M2),
    ("float8_e4m3fnuz", DType::F8E4M3Fnuz),
    ("float8_e5m2fnuz", DType::F8E5M2Fnuz),
];

/// How to convert a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Components to take; empty takes all.
    pub components: Vec<String>,
    /// What happens to the tensors of every component.
    pub transform: TransformOptions,
    /// Components of their own mind. What is set here takes the place of the same part of
    /// [`Options::transform`].
    pub component_transforms: BTreeMap<String, TransformOptions>,
    /// Mesh and layout.
    pub request: Request,
    /// Alignment of extents, bytes; none chooses by the size of the pack.
    pub align: Option<u64>,
    /// Put the SHA-256 of every source file into the pack. Reads each source file once more.
    pub hash_sources: bool,
    /// Free text for the pack.
    pub metadata: BTreeMap<String, String>,
    /// The plan file that all of this says the same as; the pack keeps it, with the mesh in full.
    pub plan: Option<PlanFile>,
}

impl Options {
    /// What a plan file asks for.
    pub fn of_plan(file: &PlanFile) -> Result<Self, Error> {
        let own = file.component.iter().filter_map(|(name, section)| {
            let transform = section.transform.as_ref()?;
            Some((name, transform))
        });
        Ok(Self {
            components: file.take.clone(),
            transform: match &file.all.transform {
                Some(transform) => TransformOptions::of_text(transform)?,
                None => TransformOptions::default(),
            },
            component_transforms: own
                .map(|(name, text)| Ok((name.clone(), TransformOptions::of_text(text)?)))
                .collect::<Result<_, Error>>()?,
            request: file.request()?,
            align: file.align,
            hash_sources: file.hash_sources,
            metadata: BTreeMap::new(),
            plan: Some(file.clone()),
        })
    }
}

/// What happens to a component's names and values before any cut; in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransformOptions {
    /// Globs of names in the checkpoint that are taken; empty takes all.
    pub include: Vec<String>,
    /// Globs of names in the checkpoint that are left out, also if included.
    pub exclude: Vec<String>,
    /// Prefixes; the first that a name begins with is removed.
    pub strip_prefix: Vec<String>,
    /// Prefix put before what is left.
    pub add_prefix: Option<String>,
    /// Regular expressions and replacements (`$1`, `${name}`): each in turn replaces all its matches.
    pub rename: Vec<(String, String)>,
    /// Tensors put together, under their names in the pack.
    pub merge: Vec<MergeText>,
    /// Tensors made longer.
    pub pad: Vec<PadText>,
    /// Element type that floating tensors are cast to.
    pub dtype: Option<DType>,
}

impl TransformOptions {
    fn of_text(text: &TransformText) -> Result<Self, Error> {
        Ok(Self {
            include: text.include.clone(),
            exclude: text.exclude.clone(),
            strip_prefix: text.strip_prefix.clone(),
            add_prefix: text.add_prefix.clone(),
            rename: text.rename.clone(),
            merge: text.merge.clone(),
            pad: text.pad.clone(),
            dtype: text.dtype.as_deref().map(parse_dtype).transpose()?,
        })
    }

    /// These, with what `over` sets in their place.
    #[must_use]
    pub fn overridden(&self, over: &Self) -> Self {
        fn pick<T: Clone>(base: &[T], over: &[T]) -> Vec<T> {
            if over.is_empty() {
                base.to_vec()
            } else {
                over.to_vec()
            }
        }
        Self {
            include: pick(&self.include, &over.include),
            exclude: pick(&self.exclude, &over.exclude),
            strip_prefix: pick(&self.strip_prefix, &over.strip_prefix),
            add_prefix: over.add_prefix.clone().or_else(|| self.add_prefix.clone()),
            rename: pick(&self.rename, &over.rename),
            merge: pick(&self.merge, &over.merge),
            pad: pick(&self.pad, &over.pad),
            dtype: over.dtype.or(self.dtype),
        }
    }
}

/// The element type that `--dtype NAME` means: `bf16`, `fp16`, `fp32`, `fp64`, `fp8_e4m3fn`, ..., the
/// names of PyTorch and those of safetensors, in either case.
pub fn parse_dtype(name: &str) -> Result<DType, Error> {
    let lower = name.to_ascii_lowercase();
    DTYPE_NAMES
        .iter()
        .find(|row| row.0 == lower)
        .map(|row| row.1)
        .or_else(|| DType::from_name(&name.to_ascii_uppercase()))
        .filter(|dtype| crate::cast::is_target(*dtype))
        .ok_or_else(|| Error::TargetDtype {
            name: name.to_owned(),
        })
}
