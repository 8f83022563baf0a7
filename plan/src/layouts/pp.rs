//! `pp`: pipeline parallel. Layers are spread over the stages, the first stages one longer where they do
//! not divide; what stands before and after the layers is owned by the first and last stage.

use std::collections::BTreeSet;

use super::Layout;
use crate::Error;
use crate::draft::Draft;
use crate::paths::Patterns;
use crate::placement::Placement;
use crate::rule::Rule;

pub(super) static LAYOUT: Layout = Layout {
    name: "pp",
    summary: "pipeline parallel: whole layers by stage",
    proven: &["transformers 5.24.0"],
    source: &["transformers/distributed/pipeline_parallel.py"],
    axis: |_| Some("pp"),
    place,
};

fn place(draft: &mut Draft<'_>) -> Result<(), Error> {
    let axes = draft.take_axes("pp", &["pp"])?;
    let stages = draft.size(&axes);
    let options = &draft.options().stages;
    let mut first = Patterns::globs(&options.first).map_err(|why| draft.rules(why))?;
    let mut last = Patterns::globs(&options.last).map_err(|why| draft.rules(why))?;
    if options.layers.is_empty() {
        return Err(draft.rules("no `stages.layers` says where the layers are".into()));
    }
    let prefix = format!("{}.", options.layers);
    let layer = |name: &String| {
        let (number, _) = name.strip_prefix(prefix.as_str())?.split_once('.')?;
        number.parse::<u64>().ok()
    };
    let found: BTreeSet<u64> = draft
        .tensors()
        .flat_map(|(_, tensor)| tensor.names.iter().filter_map(layer))
        .collect();
    let count = found.last().map_or(0, |last| last.saturating_add(1));
    if u64::try_from(found.len()).ok() != Some(count) {
        let missing = (0..count).find(|at| !found.contains(at)).unwrap_or(0);
        return Err(draft.rules(format!("`{}` has no layer {missing}", options.layers)));
    }
    let rule = if options.counts.is_empty() {
        Rule::Balanced
    } else {
        let sums = options.counts.iter().scan(0u64, |sum, count| {
            *sum = sum.saturating_add(*count);
            Some(*sum)
        });
        Rule::Explicit(std::iter::once(0).chain(sums).collect())
    };
    let mut owner = vec![0; found.len()];
    for stage in 0..stages {
        let mut held = None;
        let cut = rule.intervals(count, stages, stage, &mut |piece| held = Some(piece));
        cut.map_err(|why| draft.rules(format!("{rule} over the stages: {why}")))?;
        if let Some(held) = held {
            for (at, owner) in (0..).zip(owner.iter_mut()) {
                if held.lo <= at && at < held.hi {
                    *owner = stage;
                }
            }
        }
    }
    for (index, tensor) in draft.tensors() {
        let mut at = BTreeSet::new();
        for number in tensor.names.iter().filter_map(layer) {
            at.extend(
                usize::try_from(number)
                    .ok()
                    .and_then(|number| owner.get(number))
                    .copied(),
            );
        }
        if first.find(&tensor.names).is_some() {
            at.insert(0);
        }
        if last.find(&tensor.names).is_some() {
            at.insert(stages - 1);
        }
        if at.is_empty() {
            return Err(draft.no_rule(tensor, "stage"));
        }
        let at = at.into_iter().collect();
        draft.place(
            index,
            &Placement::Owned {
                axes: axes.clone(),
                at,
            },
        );
    }
    Ok(())
}
