//! `zero1` and `zero2`: DeepSpeed ZeRO-1 and ZeRO-2. Weights are whole on every rank; on request the pack
//! also holds each rank's part of the optimizer's fp32 master weights.
//!
//! An optimizer group is its trainable parameters one after the other, padded with zeros to a multiple of
//! `2 * W` elements and cut into W equal parts.

use super::Layout;
use crate::Error;
use crate::draft::{Draft, Member};
use crate::paths::Patterns;
use crate::placement::Placement;
use crate::slicing::elements;
use crate::stream::Stream;
use wpack_format::{DType, Fill, SliceKind};

const SOURCE: &[&str] = &[
    "deepspeed/runtime/zero/stage_1_and_2.py DeepSpeedZeroOptimizer.__init__",
    "deepspeed/runtime/zero/stage_1_and_2.py DeepSpeedZeroOptimizer._round_robin_reorder",
    "deepspeed/runtime/utils.py align_dense_tensors",
];
const PROVEN: &[&str] = &["deepspeed 0.19.8", "deepspeed 0.16.9"];

pub(super) static ZERO1: Layout = Layout {
    name: "zero1",
    summary: "DeepSpeed ZeRO-1: whole weights, and the rank's fp32 masters on request",
    proven: PROVEN,
    source: SOURCE,
    axis: |options| options.zero.master.then_some("dp"),
    place,
};

pub(super) static ZERO2: Layout = Layout {
    name: "zero2",
    summary: "DeepSpeed ZeRO-2: as zero1",
    proven: PROVEN,
    source: SOURCE,
    axis: |options| options.zero.master.then_some("dp"),
    place,
};

fn place(draft: &mut Draft<'_>) -> Result<(), Error> {
    let axes = draft.take_axes("zero1 and zero2", &["dp", "sp"])?;
    let options = draft.options();
    let zero = &options.zero;
    if !zero.master {
        return Ok(());
    }
    let world = draft.size(&axes);
    let mut frozen = Patterns::globs(&options.frozen).map_err(|why| draft.rules(why))?;
    let mut globs =
        Patterns::globs(zero.groups.iter().flatten()).map_err(|why| draft.rules(why))?;
    // The group of each of its globs.
    let numbers = (0..).zip(&zero.groups);
    let group_of: Vec<usize> = numbers
        .flat_map(|(number, globs)| globs.iter().map(move |_| number))
        .collect();
    let mut groups: Vec<Vec<Member<'_>>> = vec![Vec::new(); zero.groups.len().max(1)];
    for member in draft.ordered()? {
        let tensor = member.tensor;
        if frozen.find(&tensor.names).is_some() || elements(&tensor.shape) == 0 {
            continue;
        }
        let group = globs.find(&tensor.names).and_then(|at| group_of.get(at));
        let group = match group {
            Some(&group) => group,
            None if zero.groups.is_empty() => 0,
            None => return Err(draft.no_rule(tensor, "optimizer group")),
        };
        if let Some(members) = groups.get_mut(group) {
            members.push(member);
        }
    }
    draft.note("frozen", &frozen);
    draft.note("zero.groups", &globs);
    for (at, members) in groups.into_iter().enumerate() {
        let Some(&Member { tensor: head, .. }) = members.first() else {
            continue;
        };
        draft.check_order(&members)?;
        let name = format!("optimizer group {at}");
        let group = format!("{name}, multiple {}, fill 0", 2 * world);
        let placement = Placement::FlatShard {
            axes: axes.clone(),
            group: Some(group),
        };
        let members = if zero.round_robin_gradients {
            round_robin(&members, world)
        } else {
            members
        };
        // In elements of the type that the weights have; 16 bytes.
        let align = 128u64
            .checked_div(u64::from(head.dtype.bits()))
            .unwrap_or(1)
            .max(1);
        let mut stream = Stream::new(DType::F32, SliceKind::Master);
        let mut first = true;
        if !matches!(
            head.dtype,
            DType::F16 | DType::Bf16 | DType::F32 | DType::F64
        ) {
            return Err(draft.rules(format!(
                "{name} is {}, of which no master copy is made",
                head.dtype
            )));
        }
        for Member { index, tensor, .. } in &members {
            let fail = |why| draft.cannot_cut(tensor, &placement, why);
            if tensor.dtype != head.dtype {
                return Err(draft.mixed(&name, head, tensor));
            }
            if zero.parameter_alignment && !std::mem::take(&mut first) {
                stream.pad(align, Fill::ZERO).map_err(fail)?;
            }
            stream.push(*index, elements(&tensor.shape)).map_err(fail)?;
        }
        stream
            .pad(2 * world, Fill::ZERO)
            .map_err(|why| draft.cannot_cut(head, &placement, why))?;
        let members = members.iter().map(|member| member.index).collect();
        draft.group(stream, members, &placement);
    }
    Ok(())
}

/// Every `world`th parameter, from the first, from the second, and so on.
fn round_robin<T: Clone>(members: &[T], world: u64) -> Vec<T> {
    let world = usize::try_from(world).unwrap_or(usize::MAX).max(1);
    let each = |from| members.iter().skip(from).step_by(world).cloned();
    (0..world.min(members.len())).flat_map(each).collect()
}
