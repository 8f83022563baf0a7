//! `tp`: tensor parallel by style. A rule per tensor names its style; PyTorch's `parallelize_module` and
//! transformers' plans cut alike.

use super::Layout;
use crate::Error;
use crate::draft::Draft;
use crate::mesh::Axes;
use crate::paths::Patterns;
use crate::placement::Placement;

use super::style::Style;

pub(super) static LAYOUT: Layout = Layout {
    name: "tp",
    summary: "tensor parallel: rows or columns by the style of each tensor",
    proven: &["torch 2.11.0", "transformers 5.24.0"],
    source: &[
        "torch/distributed/tensor/parallel/style.py ColwiseParallel, RowwiseParallel",
        "transformers/distributed/tensor_parallel.py shard_param",
    ],
    axis: |_| Some("tp"),
    place: |draft| {
        let axes = draft.take_axes("tp", &["tp"])?;
        // Where experts have no axis of their own they lie on the ranks of `tp`.
        let experts = !draft.has_axis("ep");
        place_styles(draft, &axes, |style| experts || style != Style::GroupedGemm)
    },
};

/// Adds the step of its style to every parameter; styles that `here` leaves out add none.
pub(super) fn place_styles(
    draft: &mut Draft<'_>,
    axes: &Axes,
    here: impl Fn(Style) -> bool,
) -> Result<(), Error> {
    let options = draft.options();
    if let Some(rule) = options.rules.iter().find(|rule| rule.style.is_none()) {
        return Err(draft.rules(format!(
            "rule `{}` has steps, which layout `rules` alone takes; give it a style",
            rule.pattern.text()
        )));
    }
    let patterns = options.rules.iter().map(|rule| &rule.pattern);
    let mut patterns = Patterns::new(patterns).map_err(|why| draft.rules(why))?;
    for (index, tensor) in draft.tensors() {
        let found = patterns
            .find(&tensor.names)
            .and_then(|at| options.rules.get(at));
        if !draft.is_parameter(index) {
            continue;
        }
        let style = found.and_then(|rule| rule.style).or(options.default_style);
        let Some(style) = style else {
            return Err(draft.no_rule(tensor, "style"));
        };
        if let (true, Some((dim, rule))) = (here(style), style.cut(tensor)) {
            draft.place(
                index,
                &Placement::Shard {
                    axes: axes.clone(),
                    dim,
                    rule,
                },
            );
        }
    }
    draft.note("rule", &patterns);
    Ok(())
}
