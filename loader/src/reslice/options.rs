//! What may be asked of a reslice.

use std::collections::BTreeMap;

use wpack_plan::{Mesh, Plan, Request};

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
    /// The layout; the pack's own if none.
    pub layout: Option<String>,
    /// Layouts by component; the pack's own where neither this nor `layout` says anything.
    pub component_layouts: BTreeMap<String, String>,
    /// What layouts must know of the model, such as the order of its parameters; what the pack's own
    /// plan file says if none.
    pub options: Option<wpack_plan::Options>,
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

    /// What the planner is asked. Globs given at conversion stay in force.
    pub(super) fn request(&self, index: &Index) -> Result<Request, Error> {
        let description = &index.root().description;
        let plan = |source| Error::Plan { source };
        let planned = match &description.plan.file {
            Some(file) => wpack_plan::PlanFile::parse(file)
                .and_then(|file| file.request())
                .map_err(plan)?,
            None => Request::default(),
        };
        let mut request = Request {
            mesh: self.mesh.clone(),
            ranks: self.ranks,
            layout: self
                .layout
                .clone()
                .unwrap_or_else(|| description.layout.clone()),
            component_layouts: self.component_layouts.clone(),
            replicate: description.plan.replicate.clone(),
            shard: description.plan.shard.clone(),
            options: self.options.clone().unwrap_or(planned.options),
        };
        if self.layout.is_none() {
            for component in &description.components {
                let layouts = &mut request.component_layouts;
                layouts
                    .entry(component.name.clone())
                    .or_insert_with(|| component.layout.clone());
            }
        }
        if self.mesh.is_none() && self.ranks.is_none() {
            let axes = description.mesh.clone().map(Mesh::new).transpose();
            request.mesh = axes.map_err(plan)?;
        }
        Ok(request)
    }
}

/// The command that makes a pack in which every slice is one range.
pub(super) fn command(request: &Request, plan: &Plan) -> String {
    let mut words = vec!["wpack convert CHECKPOINT -o OUT.wpack".to_owned()];
    words.push(format!("--layout {}", request.layout));
    if let Some(mesh) = plan.mesh() {
        match &request.mesh {
            Some(_) => words.push(format!("--mesh {mesh}")),
            None => words.push(format!("--ranks {}", mesh.ranks())),
        }
    }
    words.extend(
        request
            .replicate
            .iter()
            .map(|glob| format!("--replicate '{glob}'")),
    );
    words.extend(request.shard.iter().map(|glob| format!("--shard '{glob}'")));
    words.join(" ")
}
