//! What may be asked of a reslice.

use std::collections::BTreeMap;

use wpack_plan::{Mesh, Plan, PlanFile, Request, Section};

use crate::{Error, Index};

/// Which slices are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResliceOptions {
    /// The rank.
    pub rank: u32,
    /// The number of ranks; for layouts that cut, this or a mesh.
    pub ranks: Option<u32>,
    /// The mesh.
    pub mesh: Option<Mesh>,
    /// The layout of all components; the pack's own if none.
    pub layout: Option<String>,
    /// Layouts by component; the pack's own where neither this nor `layout` says anything.
    pub component_layouts: BTreeMap<String, String>,
    /// What layouts must know of the model, such as the order of its parameters; what the plan file
    /// says if none.
    pub options: Option<wpack_plan::Options>,
    /// A plan file in place of the one that the pack keeps. What is said above takes the place of
    /// what it says.
    pub plan: Option<PlanFile>,
}

impl ResliceOptions {
    /// One rank, as the pack itself is laid out.
    #[must_use]
    pub fn new(rank: u32) -> Self {
        Self {
            rank,
            ..Self::default()
        }
    }

    /// Of so many ranks.
    #[must_use]
    pub fn with_ranks(mut self, ranks: u32) -> Self {
        self.ranks = Some(ranks);
        self
    }

    /// Of a mesh.
    #[must_use]
    pub fn with_mesh(mut self, mesh: Mesh) -> Self {
        self.mesh = Some(mesh);
        self
    }

    /// In another layout than the pack's.
    #[must_use]
    pub fn with_layout(mut self, layout: impl Into<String>) -> Self {
        self.layout = Some(layout.into());
        self
    }

    /// As a plan file says. Names are those in the pack; its keys `root`, `align` and `hash_sources`
    /// speak of conversion alone and change nothing here.
    #[must_use]
    pub fn with_plan(mut self, plan: PlanFile) -> Self {
        self.plan = Some(plan);
        self
    }

    /// What the planner is asked.
    pub(super) fn wanted(&self, index: &Index) -> Result<Wanted, Error> {
        let stored = match &index.root().description.plan.file {
            Some(file) => PlanFile::parse(file).map_err(|source| Error::Plan {
                path: index.label().to_owned(),
                layout: self.layout_text(index),
                convert: None,
                source,
            })?,
            None => PlanFile::default(),
        };
        let mut wanted = Wanted {
            given: self.plan.is_some(),
            take: Vec::new(),
            request: Request::default(),
            stored,
        };
        let fail = |wanted: &Wanted, source| {
            Err(Error::Plan {
                path: index.label().to_owned(),
                layout: self.layout_text(index),
                convert: Some(wanted.command(None)),
                source,
            })
        };
        let made = match &self.plan {
            Some(plan) => plan.request(),
            None => wanted.stored.request(),
        };
        match made {
            Ok(made) => wanted.request = made,
            Err(source) => return fail(&wanted, source),
        }
        match &self.plan {
            Some(plan) => {
                wanted.take.clone_from(&plan.take);
                check_transforms(plan, &wanted.stored, index, || wanted.command(None))?;
            }
            None => {
                if let Err(source) = self.as_stored(index, &mut wanted.request) {
                    return fail(&wanted, source);
                }
            }
        }
        let request = &mut wanted.request;
        if let Some(layout) = &self.layout {
            request.layout.clone_from(layout);
        }
        for (component, layout) in &self.component_layouts {
            let layouts = &mut request.component_layouts;
            layouts.insert(component.clone(), layout.clone());
        }
        if self.mesh.is_some() {
            request.mesh.clone_from(&self.mesh);
            request.ranks = None;
        }
        request.ranks = self.ranks.or(request.ranks);
        if let Some(options) = &self.options {
            request.options.clone_from(options);
        }
        Ok(wanted)
    }

    /// What the pack's own plan says, as far as it goes for the layout that is wanted.
    fn as_stored(&self, index: &Index, request: &mut Request) -> Result<(), wpack_plan::Error> {
        let description = &index.root().description;
        request.layout.clone_from(&description.layout);
        request.replicate.clone_from(&description.plan.replicate);
        request.shard.clone_from(&description.plan.shard);
        // Patterns were made for the pack's layout; another may have no use for some of them.
        request.unused_patterns = true;
        let layouts = description.components.iter();
        request.component_layouts = match self.layout {
            Some(_) => BTreeMap::new(),
            None => layouts
                .map(|component| (component.name.clone(), component.layout.clone()))
                .collect(),
        };
        let own = self.layout.as_ref().is_none_or(|layout| {
            *layout == description.layout && self.component_layouts.is_empty()
        });
        let same = |ranks| index.ranks() == Some(ranks);
        request.ranks = None;
        request.mesh = match self.ranks {
            Some(ranks) if !(own && same(ranks)) => None,
            _ => description.mesh.clone().map(Mesh::new).transpose()?,
        };
        Ok(())
    }

    /// The layout, for messages.
    pub(super) fn layout_text(&self, index: &Index) -> String {
        let of_plan = self.plan.as_ref().and_then(|plan| plan.all.layout.clone());
        let own = || index.root().description.layout.clone();
        let layout = self.layout.clone().or(of_plan);
        layout.unwrap_or_else(own)
    }
}

/// A request, and what it was made from.
pub(super) struct Wanted {
    pub(super) request: Request,
    /// Components that are taken; all if none is named.
    pub(super) take: Vec<String>,
    /// Whether a plan file was given.
    given: bool,
    /// The pack's own.
    stored: PlanFile,
}

impl Wanted {
    /// The command that makes a pack in which every slice is one range. Capital letters stand for
    /// what a pack does not know.
    pub(super) fn command(&self, plan: Option<&Plan>) -> String {
        let request = &self.request;
        let mut words = Vec::new();
        let kept = !self.given && says_more_than_flags(&self.stored);
        if kept {
            words.push("wpack inspect PACK --plan > PLAN.toml &&".to_owned());
        }
        words.push("wpack convert CHECKPOINT -o OUT.wpack".to_owned());
        if kept || self.given {
            words.push("--plan PLAN.toml".to_owned());
        }
        if !request.layout.is_empty() {
            words.push(format!("--layout {}", request.layout));
        }
        let mut layouts = request.component_layouts.clone();
        if kept {
            // A component's own layout in the kept plan would stand.
            for (component, section) in &self.stored.component {
                if section.layout.is_some() {
                    let layout = layouts.entry(component.clone());
                    layout.or_insert_with(|| request.layout.clone());
                }
            }
        } else {
            layouts.retain(|_, layout| *layout != request.layout);
        }
        let layouts = layouts.iter();
        words.extend(layouts.map(|(component, layout)| format!("--layout {component}={layout}")));
        let ranks = match plan {
            Some(plan) => plan.ranks(),
            None => request.ranks,
        };
        match (&request.mesh, ranks) {
            (Some(mesh), _) if plan.is_none_or(|plan| plan.mesh().is_some()) => {
                words.push(format!("--mesh {mesh}"));
            }
            (_, Some(ranks)) => words.push(format!("--ranks {ranks}")),
            _ => {}
        }
        if !kept && !self.given {
            let globs = request.replicate.iter();
            words.extend(globs.map(|glob| format!("--replicate '{glob}'")));
            words.extend(request.shard.iter().map(|glob| format!("--shard '{glob}'")));
        }
        words.join(" ")
    }
}

/// Whether a plan file says what the command writes no flag for.
fn says_more_than_flags(file: &PlanFile) -> bool {
    let layout_alone = |section: &Section| Section {
        layout: None,
        ..section.clone()
    };
    let rest = PlanFile {
        mesh: None,
        ranks: None,
        replicate: Vec::new(),
        shard: Vec::new(),
        all: layout_alone(&file.all),
        component: BTreeMap::new(),
        ..file.clone()
    };
    let mut sections = file.component.values();
    rest != PlanFile::default()
        || sections.any(|section| layout_alone(section) != Section::default())
}

/// Refuses a plan that does to names and values what was not done to the pack's.
fn check_transforms(
    plan: &PlanFile,
    stored: &PlanFile,
    index: &Index,
    convert: impl Fn() -> String,
) -> Result<(), Error> {
    for component in &index.root().components {
        let mut wanted = plan.section(&component.name).transform.unwrap_or_default();
        let mut done = stored
            .section(&component.name)
            .transform
            .unwrap_or_default();
        for transform in [&mut wanted, &mut done] {
            transform.dtype = transform.dtype.as_ref().map(|name| name.to_lowercase());
        }
        if wanted != wpack_plan::TransformText::default() && wanted != done {
            return Err(Error::PlanTransforms {
                path: index.label().to_owned(),
                component: component.name.clone(),
                convert: convert(),
            });
        }
    }
    Ok(())
}
