//! The resolved plan: the rules that tensors fell under, in words.

use std::collections::HashMap;

use wpack_format::ResolvedRule;

use crate::draft::Placed;
use crate::index::{index, index32};
use crate::mesh::Mesh;
use crate::placement::texts;
use crate::roles::Verdict;
use crate::{ComponentSpec, Decision};

/// The rules that at least one tensor fell under.
#[derive(Default)]
pub(crate) struct Rules {
    pub(crate) rows: Vec<ResolvedRule>,
}

impl Rules {
    /// The decision on every tensor of a component.
    pub(crate) fn decide(
        &mut self,
        spec: &ComponentSpec,
        layout: &str,
        verdicts: &[Verdict],
        placed: &Placed,
        mesh: Option<&Mesh>,
    ) -> Vec<Decision> {
        let mut known: HashMap<(u32, &str), u32> = HashMap::new();
        verdicts
            .iter()
            .zip(&placed.list_of)
            .map(|(verdict, &list)| {
                let rule = *known.entry((list, &verdict.reason)).or_insert_with(|| {
                    let placements = placed.lists.get(index(list)).map_or(&[][..], Vec::as_slice);
                    self.rows.push(ResolvedRule {
                        component: spec.name.clone(),
                        placements: texts(placements, mesh),
                        reason: format!("{layout}: {}", verdict.reason),
                    });
                    index32(self.rows.len() - 1)
                });
                Decision {
                    role: verdict.role,
                    rule,
                }
            })
            .collect()
    }
}
