//! From the text of a plan file to what is asked of a plan.

use std::collections::BTreeMap;

use wpack_format::DType;

use super::{OrderText, PlanFile, RuleText, Section};
use crate::{
    Error, Fsdp1, Mesh, NameRule, Options, Order, Pattern, Request, Stages, Style, Zero,
    step::steps,
};

/// The layout of a plan that names none.
const DEFAULT_LAYOUT: &str = "replicate";

impl PlanFile {
    /// The request it makes.
    pub fn request(&self) -> Result<Request, Error> {
        let mut options = self.all.options()?;
        let mut component_layouts = BTreeMap::new();
        for (component, own) in &self.component {
            let section = self.section(component).options()?;
            options.components.insert(component.clone(), section);
            if let Some(layout) = &own.layout {
                component_layouts.insert(component.clone(), layout.clone());
            }
        }
        Ok(Request {
            mesh: self.mesh.as_deref().map(Mesh::parse).transpose()?,
            ranks: self.ranks,
            layout: self
                .all
                .layout
                .clone()
                .unwrap_or_else(|| DEFAULT_LAYOUT.to_owned()),
            component_layouts,
            replicate: self.replicate.clone(),
            shard: self.shard.clone(),
            options,
            unused_patterns: false,
        })
    }

    /// The plan file that says the same of a plan that was made from it: its mesh in full, or none
    /// where the pack fits any number of ranks.
    #[must_use]
    pub fn resolved(&self, mesh: Option<&Mesh>) -> Self {
        let mut file = self.clone();
        file.mesh = mesh.map(Mesh::to_string);
        file.ranks = None;
        file.all
            .layout
            .get_or_insert_with(|| DEFAULT_LAYOUT.to_owned());
        file
    }
}

fn fail<T>(why: String) -> Result<T, Error> {
    Err(Error::PlanFile { line: None, why })
}

fn style(name: &String) -> Result<Style, Error> {
    match Style::from_name(name) {
        Some(style) => Ok(style),
        None => fail(format!("unknown style `{name}`")),
    }
}

impl Section {
    fn options(&self) -> Result<Options, Error> {
        let order = match &self.order {
            None => Order::Unknown,
            Some(OrderText::Names(names)) => Order::Names(names.clone()),
            Some(OrderText::Word(word)) if word == "checkpoint" => Order::Checkpoint,
            Some(OrderText::Word(word)) => {
                return fail(format!(
                    "order `{word}` is neither \"checkpoint\" nor a list of names"
                ));
            }
        };
        let fsdp1 = self.fsdp1.clone().unwrap_or_default();
        let param_dtype = match &fsdp1.param_dtype {
            None => None,
            Some(name) => match DType::from_name(name) {
                Some(dtype) => Some(dtype),
                None => return fail(format!("unknown element type `{name}`")),
            },
        };
        let zero = self.zero.clone().unwrap_or_default();
        let stages = self.stages.clone().unwrap_or_default();
        let place = steps(&self.default_place).or_else(fail)?;
        Ok(Options {
            order,
            frozen: self.frozen.clone(),
            rules: self
                .rule
                .iter()
                .map(RuleText::rule)
                .collect::<Result<_, Error>>()?,
            default_style: self.default_style.as_ref().map(style).transpose()?,
            default_place: (!self.default_place.is_empty()).then_some(place),
            fsdp1: Fsdp1 {
                units: fsdp1.units,
                use_orig_params: fsdp1.use_orig_params,
                param_dtype,
            },
            zero: Zero {
                master: zero.master,
                groups: zero.groups,
                round_robin_gradients: zero.round_robin_gradients,
                parameter_alignment: zero.parameter_alignment,
            },
            stages: Stages {
                layers: stages.layers,
                counts: stages.counts,
                first: stages.first,
                last: stages.last,
            },
            components: BTreeMap::new(),
        })
    }
}

impl RuleText {
    fn rule(&self) -> Result<NameRule, Error> {
        let pattern = match (&self.matches, &self.regex) {
            (Some(glob), None) => Pattern::Glob(glob.clone()),
            (None, Some(regex)) => Pattern::Regex(regex.clone()),
            _ => {
                return fail("a rule needs `match`, a glob, or `regex`, and not both".to_owned());
            }
        };
        if self.style.is_some() != self.place.is_empty() {
            let pattern = pattern.text();
            return fail(format!(
                "rule `{pattern}` needs `style` or `place`, and not both"
            ));
        }
        Ok(NameRule {
            pattern,
            style: self.style.as_ref().map(style).transpose()?,
            place: steps(&self.place).or_else(fail)?,
        })
    }
}
