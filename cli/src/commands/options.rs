//! From arguments to what `convert` and `plan` ask the libraries for.

use wpack_checkpoint::{Checkpoint, OpenOptions};
use wpack_convert::{Options, TransformOptions, parse_dtype};
use wpack_plan::Request;

use crate::{
    Error,
    args::{LayoutArgs, Scoped, SourceArgs, TransformArgs},
};

/// Without `--layout` a pack fits any number of ranks; components may still have layouts of their
/// own.
const DEFAULT_LAYOUT: &str = "replicate";

/// Reads the headers.
pub(super) fn open(args: &SourceArgs) -> Result<Checkpoint, Error> {
    let options = OpenOptions {
        root: args.root.clone(),
        output_limit: args.output_limit,
    };
    Ok(wpack_checkpoint::open(&args.inputs, &options)?)
}

/// What is asked for.
pub(super) fn options(
    source: &SourceArgs,
    layout: &LayoutArgs,
    transform: &TransformArgs,
    align: Option<u64>,
    hash_sources: bool,
) -> Result<Options, Error> {
    let (dtype, dtypes) = Scoped::split(&transform.dtype);
    let (of_all, layouts) = Scoped::split(&layout.layout);
    let mut options = Options {
        components: source.components.clone(),
        transform: TransformOptions {
            include: transform.include.clone(),
            exclude: transform.exclude.clone(),
            strip_prefix: transform.strip_prefix.clone(),
            add_prefix: transform.add_prefix.clone(),
            rename: transform
                .rename
                .iter()
                .map(|r| (r.from.clone(), r.to.clone()))
                .collect(),
            dtype: dtype.as_deref().map(parse_dtype).transpose()?,
            ..TransformOptions::default()
        },
        request: Request {
            mesh: layout
                .mesh
                .as_deref()
                .map(wpack_plan::Mesh::parse)
                .transpose()
                .map_err(wpack_convert::Error::from)?,
            ranks: layout.ranks,
            layout: of_all.unwrap_or_else(|| DEFAULT_LAYOUT.to_owned()),
            component_layouts: layouts.into_iter().collect(),
            replicate: layout.replicate.clone(),
            shard: layout.shard.clone(),
            ..Request::default()
        },
        align,
        hash_sources,
        ..Options::default()
    };
    for (component, name) in dtypes {
        let over = options.component_transforms.entry(component).or_default();
        over.dtype = Some(parse_dtype(&name)?);
    }
    Ok(options)
}
