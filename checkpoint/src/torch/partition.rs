//! Files that hold one process's part of a model, told by what stands in them.
//!
//! DeepSpeed 0.19: `runtime/engine.py` (`_get_zero_param_shapes`, `save_checkpoint`),
//! `runtime/zero/stage_1_and_2.py` and `stage3.py` (`state_dict`), `utils/zero_to_fp32.py`.

use std::collections::HashMap;

use super::{
    ZERO_REMEDY,
    object::{Role, View},
};
use crate::{
    Error,
    file::SourceReader,
    pickle::{Id, Node},
};

/// Refuses an optimizer shard of ZeRO.
pub(super) fn refuse_optimizer_shard(
    file: &SourceReader,
    view: View<'_>,
    top: Id,
) -> Result<(), Error> {
    const SIGNS: &[&str] = &[
        "partition_count",
        "single_partition_of_fp32_groups",
        "fp32_flat_groups",
        "zero_stage",
    ];
    let Some(optimizer) = view.member(top, "optimizer_state_dict") else {
        return Ok(());
    };
    if SIGNS
        .iter()
        .any(|sign| view.member(optimizer, sign).is_some())
    {
        return Err(Error::Partitioned {
            path: file.path().to_owned(),
            what: "optimizer shard: flat parameter groups of DeepSpeed ZeRO".to_owned(),
            remedy: ZERO_REMEDY.to_owned(),
        });
    }
    Ok(())
}

/// Refuses model states of ZeRO-3, in which every weight is an empty placeholder. `empty` says
/// which of the tensors found have no elements.
pub(super) fn refuse_placeholders(
    file: &SourceReader,
    view: View<'_>,
    top: Id,
    empty: &HashMap<&str, bool>,
) -> Result<(), Error> {
    let Some(shapes) = view.member(top, "param_shapes") else {
        return Ok(());
    };
    // One dict, or a list with one for each group of parameters.
    let groups = match view.role(shapes) {
        Role::Sequence(groups) => groups.to_vec(),
        _ => vec![shapes],
    };
    for group in groups {
        let Role::Mapping(mapping) = view.role(group) else {
            continue;
        };
        for (key, shape) in view.entries(mapping) {
            let Node::Text(name) = view.graph.node(key) else {
                continue;
            };
            let Role::Sequence(sizes) = view.role(shape) else {
                continue;
            };
            let real = sizes
                .iter()
                .all(|&size| !matches!(view.graph.node(size), Node::Int(0)));
            if real && empty.get(name) == Some(&true) {
                return Err(Error::Partitioned {
                    path: file.path().to_owned(),
                    what: "ZeRO-3: weights are in *_optim_states.pt, here they are placeholders"
                        .to_owned(),
                    remedy: ZERO_REMEDY.to_owned(),
                });
            }
        }
    }
    Ok(())
}
