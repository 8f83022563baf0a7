//! `rules`: what the rules of a plan file say, step by step. The algebra itself: a cut that no layout
//! has, such as the fused weights of Megatron and vLLM, is written as a rule.

use super::Layout;
use crate::draft::Draft;
use crate::options::{NameRule, Options};
use crate::paths::Patterns;
use crate::placement::Placement;
use crate::roles::Verdict;
use crate::step::{Step, StepKind};
use crate::{ComponentSpec, Error, TensorSpec};
use wpack_format::Role;

pub(super) static LAYOUT: Layout = Layout {
    name: "rules",
    summary: "what the rules of a plan file say, step by step",
    proven: &["megatron-core 0.16.1", "vllm 0.33.0"],
    source: &[
        "megatron/core/tensor_parallel/layers.py _initialize_affine_weight_cpu",
        "vllm/model_executor/layers/linear.py QKVParallelLinear.weight_loader",
        "vllm/model_executor/layers/vocab_parallel_embedding.py VocabParallelEmbedding.weight_loader",
    ],
    axis: |options| steps(options).find_map(|step| step.axes.first().map(String::as_str)),
    place,
};

/// All steps of all rules.
fn steps(options: &Options) -> impl Iterator<Item = &Step> {
    let of_rules = options.rules.iter().flat_map(|rule| &rule.place);
    of_rules.chain(options.default_place.iter().flatten())
}

/// Refuses a parameter that no rule speaks of where no step of any rule names an axis, so that nothing
/// is placed.
pub(crate) fn check_whole(
    spec: &ComponentSpec,
    layout: &str,
    options: &Options,
    verdicts: &[Verdict],
) -> Result<(), Error> {
    if options.default_place.is_some() {
        return Ok(());
    }
    let patterns = options.rules.iter().map(|rule| &rule.pattern);
    let mut patterns = Patterns::new(patterns).map_err(|why| Error::Rules {
        component: spec.name.clone(),
        layout: layout.to_owned(),
        why,
    })?;
    let parameters = spec
        .tensors
        .iter()
        .zip(verdicts)
        .filter(|(_, verdict)| verdict.role == Role::Parameter);
    for (tensor, _) in parameters {
        if patterns.find(&tensor.names).is_none() {
            return Err(Error::NoRule {
                component: spec.name.clone(),
                tensor: tensor.names.first().cloned().unwrap_or_default(),
                layout: layout.to_owned(),
                what: "rule",
            });
        }
    }
    Ok(())
}

fn place(draft: &mut Draft<'_>) -> Result<(), Error> {
    let options = draft.options();
    if let Some(NameRule { pattern, .. }) = options.rules.iter().find(|rule| rule.style.is_some()) {
        return Err(draft.rules(format!(
            "rule `{}` has a style and no axis to cut over: write `place = [\"tp: {}\"]`",
            pattern.text(),
            options
                .rules
                .iter()
                .find_map(|rule| rule.style)
                .map_or("colwise", |style| style.name())
        )));
    }
    draft.take_named("rules", steps(options).flat_map(|step| &step.axes))?;
    for rule in &options.rules {
        check(draft, rule.pattern.text(), &rule.place)?;
    }
    let default = options.default_place.as_deref().unwrap_or_default();
    check(draft, "default_place", default)?;
    let mut patterns = Patterns::new(options.rules.iter().map(|rule| &rule.pattern))
        .map_err(|why| draft.rules(why))?;
    for (index, tensor) in draft.tensors() {
        let found = patterns.find(&tensor.names);
        if draft.is_kept(index) {
            continue;
        }
        let rule = found.and_then(|at| options.rules.get(at));
        let steps = match (rule, &options.default_place) {
            (Some(rule), _) => &rule.place,
            // Buffers lie on every rank unless a rule speaks of them.
            (None, _) if !draft.is_parameter(index) => continue,
            (None, Some(steps)) => steps,
            (None, None) => return Err(draft.no_rule(tensor, "rule")),
        };
        for step in steps {
            if let Some(placement) = placement(draft, step, tensor) {
                draft.place(index, &placement);
            }
        }
    }
    draft.note("rule", &patterns);
    Ok(())
}

/// Refuses steps that would lose elements: a second cut over an axis, and owners that are not there.
fn check(draft: &Draft<'_>, rule: &str, steps: &[Step]) -> Result<(), Error> {
    let mut axes: Vec<&String> = Vec::new();
    for step in steps {
        for axis in &step.axes {
            if axes.contains(&axis) {
                return Err(draft.rules(format!("rule `{rule}` names axis `{axis}` twice")));
            }
            axes.push(axis);
        }
        let size = draft.size(&draft.named(&step.axes));
        if let StepKind::Owned(at) = &step.what
            && let Some(at) = at.iter().find(|at| **at >= size)
        {
            return Err(draft.rules(format!(
                "rule `{rule}`: `{step}` names coordinate {at} of an axis of {size}"
            )));
        }
    }
    Ok(())
}

/// A step on one tensor; none where its style leaves the tensor whole.
fn placement(draft: &Draft<'_>, step: &Step, tensor: &TensorSpec) -> Option<Placement> {
    let axes = draft.named(&step.axes);
    Some(match &step.what {
        StepKind::FlatShard => Placement::FlatShard { axes, group: None },
        StepKind::Owned(at) => Placement::Owned {
            axes,
            at: at.clone(),
        },
        StepKind::Shard { .. } | StepKind::Style(_) => {
            let (dim, rule) = step.cut(tensor)?;
            Placement::Shard { axes, dim, rule }
        }
    })
}
