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
        let mut known: HashMap<(u32, Option<u32>, &str), u32> = HashMap::new();
        let texts_of = |list: u32| {
            texts(
                placed.lists.get(index(list)).map_or(&[][..], Vec::as_slice),
                mesh,
            )
        };
        verdicts
            .iter()
            .zip(placed.list_of.iter().zip(&placed.master_of))
            .map(|(verdict, (&list, &master))| {
                let rule = *known
                    .entry((list, master, &verdict.reason))
                    .or_insert_with(|| {
                        let mut placements = texts_of(list);
                        if let Some(master) = master {
                            placements.extend(
                                texts_of(master).iter().map(|text| format!("master {text}")),
                            );
                        }
                        self.rows.push(ResolvedRule {
                            component: spec.name.clone(),
                            placements,
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
