//! `wpack inspect`: a pack or a checkpoint.

use std::io::Read as _;

use wpack_checkpoint::{Input, OpenOptions};
use wpack_format::{
    BoxPart, Content, Extent, FlatPart, Hex, Role, Slice, SliceKind, TensorTable, spec,
};
use wpack_loader::{FileSource, Index};

use super::{fit::Fitting, glob::Chosen, summary};
use crate::{
    Context, Error, ExitStatus,
    args::InspectArgs,
    report::{
        self, Axis, Component, File, PackReport, PackTensor, RankDetail, RankSlice, Rule, SCHEMA,
        Sharing, Source, Tally,
    },
    view,
};

pub(super) fn run(args: &InspectArgs, context: &Context) -> Result<ExitStatus, Error> {
    let chosen = Chosen::new(args.tensors.as_deref())?;
    let mut fitting = Fitting::new(&args.fit)?;
    if args.plan {
        return plan_file(args, context);
    }
    if let Some(path) = pack_of(&args.inputs) {
        let report = pack(path, args.rank, &chosen, fitting)?;
        if args.json {
            context.printer.json(&report);
        } else {
            context.printer.data(&view::pack(&report));
        }
        return Ok(ExitStatus::Done);
    }
    if args.rank.is_some() {
        return Err(Error::Usage {
            what: "a checkpoint belongs to no rank".to_owned(),
            hint: "`wpack plan` says what each rank would hold; --rank is for packs".to_owned(),
        });
    }
    let options = OpenOptions {
        root: args.root.clone(),
        output_limit: args.output_limit,
    };
    let checkpoint = wpack_checkpoint::open(&args.inputs, &options)?;
    for tensor in checkpoint.components.iter().flat_map(|c| &c.tensors) {
        let names = tensor.names.iter().map(String::as_str);
        fitting.count(names, tensor.dtype, &tensor.shape);
    }
    let report = summary::checkpoint(&checkpoint, &chosen, fitting.answer()?);
    for warning in &report.warnings {
        context.printer.warning(&warning.message);
    }
    if args.json {
        context.printer.json(&report);
    } else {
        context.printer.data(&view::checkpoint(&report));
    }
    Ok(ExitStatus::Done)
}

/// The plan file alone, so that it can be kept and changed.
fn plan_file(args: &InspectArgs, context: &Context) -> Result<ExitStatus, Error> {
    let Some(path) = pack_of(&args.inputs) else {
        return Err(Error::Usage {
            what: "a checkpoint has no plan".to_owned(),
            hint: "`wpack plan --emit FILE` writes one".to_owned(),
        });
    };
    let index = Index::read(&FileSource::open(path)?)?;
    match &index.root().description.plan.file {
        Some(text) => context.printer.data(text),
        None => {
            return Err(Error::Usage {
                what: format!("`{path}` keeps no plan file"),
                hint: "it was not made by `wpack convert`; `wpack inspect` says its layout"
                    .to_owned(),
            });
        }
    }
    Ok(ExitStatus::Done)
}

/// The path of the only input if it is a pack.
fn pack_of(inputs: &[Input]) -> Option<&str> {
    let [
        Input {
            component: None,
            path,
        },
    ] = inputs
    else {
        return None;
    };
    let mut magic = [0; spec::MAGIC.len()];
    let mut file = std::fs::File::open(path).ok()?;
    file.read_exact(&mut magic).ok()?;
    (magic == spec::MAGIC).then_some(path)
}

/// What a pack's index says. No tensor data is read.
fn pack(
    path: &str,
    rank: Option<u32>,
    chosen: &Chosen,
    mut fitting: Fitting<'_>,
) -> Result<PackReport, Error> {
    let source = FileSource::open(path)?;
    let index = Index::read(&source)?;
    let (header, root) = (index.header(), index.root());
    let description = &root.description;
    let name_of = |component: u32| {
        let record = usize::try_from(component)
            .ok()
            .and_then(|at| root.components.get(at));
        record.map_or_else(String::new, |record| record.name.clone())
    };
    let extents: Vec<report::Extent> = (0..)
        .zip(&root.extents)
        .map(|(at, extent)| report::Extent {
            index: at,
            component: name_of(extent.component),
            owners: (&extent.owners).into(),
            offset: Some(extent.offset),
            bytes: extent.len,
            slices: extent.slice_count,
        })
        .collect();
    let mut rules: Vec<Rule> = description.plan.rules.iter().map(summary::rule).collect();
    let mut components = Vec::new();
    let mut tensors = Vec::new();
    for (at, info) in (0..).zip(&description.components) {
        let table = index.tensors(&source, at)?;
        let list: Vec<_> = tensors_of(&table).collect();
        let mut parameters = 0u64;
        for tensor in &list {
            let elements = summary::elements(&tensor.shape);
            if tensor.role == Role::Parameter {
                parameters = parameters.saturating_add(elements);
            }
            summary::count(&mut rules, tensor.rule, tensor.dtype, elements);
            let names = tensor.names.iter().map(|name| name.name.as_str());
            fitting.count(names, tensor.dtype, &tensor.shape);
            if chosen.matches(tensor.names.iter().map(|name| name.name.as_str())) {
                let source = tensor
                    .source
                    .and_then(|at| description.sources.get(at as usize));
                tensors.push(PackTensor {
                    component: info.name.clone(),
                    names: tensor.names.iter().map(|name| name.name.clone()).collect(),
                    source_names: tensor
                        .names
                        .iter()
                        .map(|name| name.source.clone())
                        .collect(),
                    dtype: tensor.dtype.name(),
                    source_dtype: tensor.source_dtype.name(),
                    shape: tensor.shape.clone(),
                    bytes: tensor.dtype.bytes(elements).unwrap_or(u64::MAX),
                    role: summary::role(tensor.role),
                    rule: tensor.rule,
                    source: source.map(|source| source.name.clone()),
                });
            }
        }
        components.push(Component {
            name: info.name.clone(),
            layout: info.layout.clone(),
            tally: Tally::of(
                list.iter()
                    .map(|t| (t.names.len(), t.dtype, t.shape.as_slice())),
            ),
            parameters,
            transform: (&info.transform).into(),
            metadata: info.metadata.clone(),
        });
    }
    let ranks = index.ranks();
    let model_bytes = components
        .iter()
        .fold(0u64, |sum, c| sum.saturating_add(c.tally.bytes));
    let first = root
        .extents
        .first()
        .map_or(header.file_len, |extent| extent.offset);
    Ok(PackReport {
        schema: SCHEMA,
        command: "inspect",
        kind: "pack",
        path: path.to_owned(),
        format: header.version,
        bytes: header.file_len,
        index_bytes: first,
        digest: Hex(&index.digest()).to_string(),
        extent_align: header.extent_align,
        mesh: description.mesh.as_deref().map(summary::axes),
        ranks,
        layout: description.layout.clone(),
        sharing: Sharing::of(&extents, ranks, model_bytes),
        components,
        extents,
        rules,
        replicate: description.plan.replicate.clone(),
        shard: description.plan.shard.clone(),
        plan_file: description.plan.file.clone(),
        sources: description
            .sources
            .iter()
            .map(|source| Source {
                name: source.name.clone(),
                bytes: source.size,
                sha256: source.sha256.clone(),
            })
            .collect(),
        files: description
            .files
            .iter()
            .map(|file| File {
                component: file.component.clone(),
                path: file.path.clone(),
                bytes: file.len,
                sha256: Some(file.sha256.clone()),
            })
            .collect(),
        metadata: description.metadata.clone(),
        fit: fitting.answer()?,
        rank: rank
            .map(|rank| rank_of(&source, &index, rank, chosen))
            .transpose()?,
        tensors: (chosen.any() && rank.is_none()).then_some(tensors),
    })
}

fn tensors_of(table: &TensorTable) -> impl Iterator<Item = wpack_format::Tensor> + '_ {
    (0u32..).map_while(|at| table.get(at))
}

fn rank_of(
    source: &FileSource,
    index: &Index,
    rank: u32,
    chosen: &Chosen,
) -> Result<RankDetail, Error> {
    let held = index.extents_of(rank)?;
    let extents: Vec<(u32, &Extent)> = held
        .iter()
        .filter_map(|&at| Some((at, index.extent(at)?)))
        .collect();
    let mut slices = Vec::new();
    if chosen.any() {
        for &(at, extent) in &extents {
            slices_of(source, index, (at, extent), chosen, &mut slices)?;
        }
    }
    Ok(RankDetail {
        rank,
        coordinates: coordinates(index, rank),
        bytes: extents
            .iter()
            .fold(0, |sum: u64, (_, extent)| sum.saturating_add(extent.len)),
        slice_count: extents
            .iter()
            .map(|(_, extent)| u64::from(extent.slice_count))
            .sum(),
        extents: held,
        slices: chosen.any().then_some(slices),
    })
}

/// Row-major, the last axis varies fastest.
fn coordinates(index: &Index, rank: u32) -> Vec<Axis> {
    let axes = index.root().description.mesh.as_deref().unwrap_or_default();
    let mut rest = rank;
    let mut place: Vec<Axis> = axes
        .iter()
        .rev()
        .map(|axis| {
            let at = rest.checked_rem(axis.size).unwrap_or(0);
            rest = rest.checked_div(axis.size).unwrap_or(0);
            Axis {
                name: axis.name.clone(),
                size: at,
            }
        })
        .collect();
    place.reverse();
    place
}

fn slices_of(
    source: &FileSource,
    index: &Index,
    (at, extent): (u32, &Extent),
    chosen: &Chosen,
    out: &mut Vec<RankSlice>,
) -> Result<(), Error> {
    let table = index.tensors(source, extent.component)?;
    let slices = index.slices(source, extent)?;
    let component = index.root().components.get(extent.component as usize);
    let component = component.map_or_else(String::new, |record| record.name.clone());
    for slice in (0..extent.slice_count).map_while(|at| slices.get(at)) {
        let held: Vec<_> = tensors_in(&slice)
            .into_iter()
            .filter_map(|t| table.get(t))
            .collect();
        if !chosen.matches(
            held.iter()
                .flat_map(|t| &t.names)
                .map(|name| name.name.as_str()),
        ) {
            continue;
        }
        let (content, fill) = content_of(&slice);
        let elements = summary::elements(&slice.shape);
        out.push(RankSlice {
            component: component.clone(),
            names: held
                .iter()
                .filter_map(|t| Some(t.names.first()?.name.clone()))
                .collect(),
            dtype: slice.dtype.name(),
            bytes: slice.dtype.bytes(elements).unwrap_or(u64::MAX),
            shape: slice.shape,
            content,
            kind: match slice.kind {
                SliceKind::Value => "value",
                SliceKind::Master => "master",
            },
            fill,
            extent: at,
            offset: extent.offset.saturating_add(slice.offset),
        });
    }
    Ok(())
}

/// The tensors that a slice holds elements of, each once, in order.
fn tensors_in(slice: &Slice) -> Vec<u32> {
    match &slice.content {
        Content::Whole { tensor } | Content::Boxes { tensor, .. } => vec![*tensor],
        Content::Flat { parts } => {
            let mut tensors = Vec::new();
            for part in parts {
                if let FlatPart::Range { tensor, .. } = part
                    && !tensors.contains(tensor)
                {
                    tensors.push(*tensor);
                }
            }
            tensors
        }
    }
}

/// What part a slice is, and its elements of fill.
fn content_of(slice: &Slice) -> (&'static str, u64) {
    match &slice.content {
        Content::Whole { .. } => ("whole", 0),
        Content::Flat { parts } => {
            let fill = parts.iter().map(|part| match part {
                FlatPart::Fill { len, .. } => *len,
                FlatPart::Range { .. } => 0,
            });
            ("flat", fill.fold(0, u64::saturating_add))
        }
        Content::Boxes { parts, .. } => {
            let real = parts.iter().map(|part| match part {
                BoxPart::Box { size, .. } => summary::elements(size),
                BoxPart::Fill { .. } => 0,
            });
            let real = real.fold(0, u64::saturating_add);
            ("box", summary::elements(&slice.shape).saturating_sub(real))
        }
    }
}
