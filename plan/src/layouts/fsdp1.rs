//! `fsdp1`: PyTorch `FullyShardedDataParallel`. The parameters of a wrapped module, less those of modules
//! wrapped inside it, are one flat parameter, cut into `ceil(total / W)` elements.
//!
//! With `use_orig_params` each parameter starts at a multiple of 16 bytes of the forward dtype, and the
//! whole is padded to a multiple of W, both with 42; without it only the tail is padded, with zeros.

use std::collections::HashMap;

use super::Layout;
use crate::draft::{Draft, Member};
use crate::paths::Modules;
use crate::placement::Placement;
use crate::stream::{Stream, number};
use crate::{Error, Fault, TensorSpec};
use wpack_format::SliceKind;

pub(super) static LAYOUT: Layout = Layout {
    name: "fsdp1",
    summary: "PyTorch FullyShardedDataParallel: one flat parameter per wrapped module",
    proven: &["torch 2.11.0"],
    source: &[
        "torch/distributed/fsdp/_flat_param.py FlatParamHandle._init_flat_param_and_metadata",
        "torch/distributed/fsdp/_flat_param.py FlatParamHandle._get_shard",
        "torch/distributed/fsdp/_flat_param.py FlatParamHandle._get_aligned_numel",
    ],
    axis: |_| Some("fsdp"),
    place,
};

/// What PyTorch writes between the parameters of a unit (`_FLAT_PARAM_PADDING_VALUE`).
const PADDING: u8 = 42;

/// Bytes that PyTorch aligns a parameter of a unit to.
const ALIGN: u64 = 16;

fn place(draft: &mut Draft<'_>) -> Result<(), Error> {
    let axes = draft.take_axes("fsdp1", &["fsdp", "dp_shard"])?;
    let world = draft.size(&axes);
    let options = &draft.options().fsdp1;
    let mut units: Vec<(&str, Vec<Member<'_>>)> = Vec::new();
    let mut known = HashMap::new();
    let modules = Modules::new(&options.units);
    for member in draft.ordered()? {
        let unit = unit_of(draft, &modules, member.tensor)?;
        let at = *known.entry(unit).or_insert_with(|| {
            units.push((unit, Vec::new()));
            units.len() - 1
        });
        if let Some((_, members)) = units.get_mut(at) {
            members.push(member);
        }
    }
    let names = draft.tensors().flat_map(|(_, tensor)| &tensor.names);
    let known = modules.known(names.map(String::as_str));
    draft.note_all("fsdp1.units", known);
    for (unit, members) in units {
        let name = if unit.is_empty() {
            "the root unit".to_owned()
        } else {
            format!("unit {unit}")
        };
        let Some(&Member { tensor: head, .. }) = members.first() else {
            continue;
        };
        draft.check_order(&members)?;
        let mut stream = Stream::new(head.dtype, SliceKind::Value);
        let forward = options.param_dtype.unwrap_or(head.dtype);
        let align = (ALIGN * 8)
            .checked_div(u64::from(forward.bits()))
            .filter(|&align| align > 0);
        let how = match align {
            Some(align) if options.use_orig_params => {
                format!("{name}, align {align}, fill {PADDING}")
            }
            _ => format!("{name}, fill 0"),
        };
        let placement = Placement::FlatShard {
            axes: axes.clone(),
            group: Some(how),
        };
        let fill = number(head.dtype, PADDING)
            .ok_or_else(|| draft.cannot_cut(head, &placement, Fault::NotProven))?;
        for Member { index, tensor, .. } in &members {
            let fail = |why| draft.cannot_cut(tensor, &placement, why);
            if tensor.dtype != head.dtype {
                return Err(draft.mixed(&name, head, tensor));
            }
            if let (true, Some(align)) = (options.use_orig_params, align) {
                stream.pad(align, fill).map_err(fail)?;
            }
            stream
                .push(*index, crate::slicing::elements(&tensor.shape))
                .map_err(fail)?;
        }
        if options.use_orig_params {
            let fail = |why| draft.cannot_cut(head, &placement, why);
            stream.pad(world, fill).map_err(fail)?;
        }
        let members = members.iter().map(|member| member.index).collect();
        draft.group(stream, members, &placement);
    }
    Ok(())
}

/// The wrapped module that a parameter belongs to; empty for the root.
fn unit_of<'a>(
    draft: &Draft<'a>,
    modules: &Modules<'_>,
    tensor: &'a TensorSpec,
) -> Result<&'a str, Error> {
    let mut units = tensor
        .names
        .iter()
        .map(|name| modules.innermost(name).unwrap_or(""));
    let unit = units.next().unwrap_or("");
    match units.find(|other| *other != unit) {
        None => Ok(unit),
        Some(other) => Err(draft.rules(format!(
            "`{}` is tied over two units, `{unit}` and `{other}`",
            tensor.names.first().map_or("", String::as_str)
        ))),
    }
}
