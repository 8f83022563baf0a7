//! `wpack plan`, and the dry run of `convert`.

use wpack_checkpoint::Checkpoint;
use wpack_convert::{Options, Prepared};
use wpack_format::Role;
use wpack_plan::PlanFile;

use super::{fit::Fitting, glob::Chosen, options, plan_file, summary};
use crate::{
    Context, Error, ExitStatus,
    args::{FitArgs, PlanArgs},
    report::{
        CheckpointComponent, Extent, Fit, PlanComponent, PlanReport, PlanTensor, Rule, SCHEMA,
        Sharing, SkippedValue, Source, Tally, WarningText,
    },
    view,
};

pub(super) fn run(args: &PlanArgs, context: &Context) -> Result<ExitStatus, Error> {
    let chosen = Chosen::new(args.tensors.as_deref())?;
    let asked = plan_file::of(
        &args.source,
        &args.layout,
        &args.transform,
        args.align,
        false,
    )?;
    let checkpoint = options::open(&args.source, &asked.plan)?;
    asked.check(&checkpoint)?;
    let planned = Planned::new(checkpoint, &asked.plan)?;
    planned.warn(context);
    if let Some(path) = &args.emit {
        let file = &planned.prepared.description().plan.file;
        plan_file::emit(path, file.as_deref().unwrap_or_default())?;
    }
    let fit = planned.fit(&args.fit)?;
    planned.print("plan", &chosen, fit, args.json, context);
    Ok(ExitStatus::Done)
}

/// A conversion decided to the last byte, and what the checkpoint was.
pub(super) struct Planned {
    pub(super) prepared: Prepared,
    /// The components before filters, and how many tensors each has.
    models: Vec<CheckpointComponent>,
    sources: Vec<Source>,
    pub(super) warnings: Vec<WarningText>,
}

impl Planned {
    pub(super) fn new(checkpoint: Checkpoint, plan: &PlanFile) -> Result<Self, Error> {
        let models = checkpoint.components.iter().map(summary::model).collect();
        let sources = summary::sources(&checkpoint);
        let prepared = Prepared::new(checkpoint, &Options::of_plan(plan)?)?;
        let mut warnings = summary::warnings(prepared.warnings());
        if prepared.plan().ranks().is_none() && (plan.ranks.is_some() || plan.mesh.is_some()) {
            warnings.push(WarningText {
                code: "ranks-unused".to_owned(),
                message: format!(
                    "layout `{}` cuts nothing: the pack fits any number of ranks, --ranks and --mesh change nothing",
                    prepared.plan().layout()
                ),
            });
        }
        Ok(Self {
            prepared,
            models,
            sources,
            warnings,
        })
    }

    /// What the checkpoint calls the components that the pack has, in the order of the pack.
    fn models(&self) -> impl Iterator<Item = &CheckpointComponent> {
        let names = self.prepared.description().components.iter();
        names.filter_map(|info| self.models.iter().find(|model| model.name == info.name))
    }

    /// Values that are no tensors, of the components that the pack has.
    pub(super) fn skipped(&self) -> Vec<SkippedValue> {
        self.models()
            .flat_map(|model| model.skipped.iter().cloned())
            .collect()
    }

    /// Says what was noticed on standard error.
    pub(super) fn warn(&self, context: &Context) {
        for warning in &self.warnings {
            context.printer.warning(&warning.message);
        }
    }

    /// Prints the report.
    pub(super) fn print(
        &self,
        command: &'static str,
        chosen: &Chosen,
        fit: Option<Fit>,
        json: bool,
        context: &Context,
    ) {
        let report = self.report(command, chosen, fit);
        if json {
            context.printer.json(&report);
        } else {
            context.printer.data(&view::plan(&report));
        }
    }

    /// Whether processes fit on the host, where that was asked.
    fn fit(&self, args: &FitArgs) -> Result<Option<Fit>, Error> {
        let mut fitting = Fitting::new(args)?;
        for component in &self.prepared.inventory().components {
            for tensor in &component.tensors {
                let names = tensor.names.iter().map(String::as_str);
                fitting.count(names, tensor.dtype, &tensor.shape);
            }
        }
        fitting.answer()
    }

    fn report(&self, command: &'static str, chosen: &Chosen, fit: Option<Fit>) -> PlanReport {
        let prepared = &self.prepared;
        let (plan, description) = (prepared.plan(), prepared.description());
        let inventory = &prepared.inventory().components;
        let extents: Vec<Extent> = (0..)
            .zip(prepared.extents())
            .map(|(index, extent)| Extent {
                index,
                component: usize::try_from(extent.component)
                    .ok()
                    .and_then(|at| inventory.get(at))
                    .map_or_else(String::new, |component| component.name.clone()),
                owners: (&extent.owners).into(),
                offset: Some(extent.offset),
                bytes: extent.len,
                slices: extent.slice_count,
            })
            .collect();
        let mut rules: Vec<Rule> = description.plan.rules.iter().map(summary::rule).collect();
        let mut tensors = Vec::new();
        let mut components = Vec::new();
        let infos = description
            .components
            .iter()
            .zip(inventory)
            .zip(self.models());
        for (at, ((info, spec), model)) in (0..).zip(infos) {
            let list = (0u32..).map_while(|tensor| prepared.tensor(at, tensor));
            let mut parameters = 0u64;
            for tensor in list {
                let elements = summary::elements(&tensor.shape);
                if tensor.role == Role::Parameter {
                    parameters = parameters.saturating_add(elements);
                }
                summary::count(&mut rules, tensor.rule, tensor.dtype, elements);
                if chosen.matches(tensor.names.iter().map(|name| name.name.as_str())) {
                    tensors.push(PlanTensor {
                        component: info.name.clone(),
                        names: tensor.names.iter().map(|name| name.name.clone()).collect(),
                        source_names: tensor.names.iter().map(|n| n.source.clone()).collect(),
                        dtype: tensor.dtype.name(),
                        source_dtype: tensor.source_dtype.name(),
                        bytes: tensor.dtype.bytes(elements).unwrap_or(u64::MAX),
                        shape: tensor.shape,
                        role: summary::role(tensor.role),
                        rule: tensor.rule,
                    });
                }
            }
            let specs = spec.tensors.iter();
            let tally = Tally::of(specs.map(|t| (t.names.len(), t.dtype, t.shape.as_slice())));
            components.push(PlanComponent {
                left_out: model.tally.tensors.saturating_sub(tally.tensors),
                model: CheckpointComponent {
                    tally,
                    ..model.clone()
                },
                layout: info.layout.clone(),
                parameters,
                transform: (&info.transform).into(),
            });
        }
        let bytes = components
            .iter()
            .fold(0u64, |sum, c| sum.saturating_add(c.model.tally.bytes));
        PlanReport {
            schema: SCHEMA,
            command,
            sources: self.sources.clone(),
            mesh: description.mesh.as_deref().map(summary::axes),
            ranks: plan.ranks(),
            layout: description.layout.clone(),
            components,
            bytes: prepared.file_len(),
            extent_align: prepared.extent_align(),
            sharing: Sharing::of(&extents, plan.ranks(), bytes),
            extents,
            rules,
            fit,
            warnings: self.warnings.clone(),
            tensors: chosen.any().then_some(tensors),
        }
    }
}
