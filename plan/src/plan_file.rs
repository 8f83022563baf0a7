//! Plan files: a request in TOML, which can say what flags cannot.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wpack_format::DType;

use crate::{Error, Fsdp1, Mesh, Options, Order, Request, Stages, Style, Zero};

/// A plan file.
///
/// ```
/// let file = wpack_plan::PlanFile::parse(
///     r#"
///     mesh = "tp=2"
///     layout = "tp"
///     default_style = "replicate"
///
///     [[rule]]
///     match = "*.q_proj.*"
///     style = "colwise"
///     "#,
/// )?;
/// assert_eq!(file.request()?.options.styles.len(), 1);
/// # Ok::<(), wpack_plan::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlanFile {
    /// The mesh, as `--mesh` takes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    /// The number of ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
    /// Globs of tensors that are kept whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replicate: Vec<String>,
    /// Globs of tensors that are cut though a checkpoint does not show them to be parameters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shard: Vec<String>,
    /// What counts for every component without a section of its own.
    #[serde(flatten)]
    pub all: Section,
    /// Sections by component.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub component: BTreeMap<String, Section>,
}

/// What a plan file says of one component, or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Section {
    /// The layout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    /// `"checkpoint"`, or the names of the parameters in the order of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderText>,
    /// Globs of parameters that are not trained.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub frozen: Vec<String>,
    /// The style of parameters that no rule matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_style: Option<String>,
    /// What happens to names and values before any cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transform: Option<TransformText>,
    /// FSDP1's units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsdp1: Option<Fsdp1Text>,
    /// ZeRO's master shards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zero: Option<ZeroText>,
    /// Pipeline stages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stages: Option<StagesText>,
    /// Rules in order; the first that matches a tensor counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rule: Vec<RuleText>,
}

/// An order of parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OrderText {
    /// `"checkpoint"`.
    Word(String),
    /// Names.
    Names(Vec<String>),
}

/// What happens to a component's names and values before any cut; see the flags of the same names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TransformText {
    /// Globs of names taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// Globs of names left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Prefixes removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub strip_prefix: Vec<String>,
    /// Prefix added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add_prefix: Option<String>,
    /// Regular expressions and replacements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rename: Vec<(String, String)>,
    /// Element type that floating tensors are cast to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
}

/// See [`Fsdp1`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fsdp1Text {
    /// The wrapped modules below the root.
    pub units: Vec<String>,
    /// The flag of the same name.
    pub use_orig_params: bool,
    /// `MixedPrecision.param_dtype`, by its name in safetensors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub param_dtype: Option<String>,
}

/// See [`Zero`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ZeroText {
    /// Whether the pack holds master shards.
    pub master: bool,
    /// Globs of each optimizer group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Vec<String>>,
    /// The setting of the same name.
    pub round_robin_gradients: bool,
    /// The setting of the same name.
    pub parameter_alignment: bool,
}

/// See [`Stages`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StagesText {
    /// The path of the list of layers.
    pub layers: String,
    /// Globs of what the first stage holds besides.
    pub first: Vec<String>,
    /// Globs of what the last stage holds besides.
    pub last: Vec<String>,
}

/// How tensors of some names lie.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleText {
    /// A glob of names.
    #[serde(rename = "match")]
    pub matches: String,
    /// Their style.
    pub style: String,
}

impl PlanFile {
    /// Reads a plan file.
    pub fn parse(text: &str) -> Result<Self, Error> {
        toml::from_str(text).map_err(|why| {
            // A fault of the file as a whole has its start as its place.
            let span = why.span().filter(|span| span.start > 0);
            let before = span.and_then(|span| text.get(..span.start));
            let line = before.map(|before| before.matches('\n').count() + 1);
            Error::PlanFile {
                line,
                why: why.message().to_owned(),
            }
        })
    }

    /// The text that says the same and is stored in the pack: sections and keys in one order, no
    /// comments.
    pub fn canonical(&self) -> Result<String, Error> {
        let fail = |why: toml::ser::Error| Error::PlanFile {
            line: None,
            why: why.to_string(),
        };
        toml::to_string(self).map_err(fail)
    }

    /// The request it makes.
    pub fn request(&self) -> Result<Request, Error> {
        let mut options = self.all.options()?;
        let mut component_layouts = BTreeMap::new();
        for (component, section) in &self.component {
            options
                .components
                .insert(component.clone(), section.options()?);
            if let Some(layout) = &section.layout {
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
                .unwrap_or_else(|| "replicate".to_owned()),
            component_layouts,
            replicate: self.replicate.clone(),
            shard: self.shard.clone(),
            options,
        })
    }
}

impl Section {
    fn options(&self) -> Result<Options, Error> {
        let fail = |why: String| Error::PlanFile { line: None, why };
        let style = |name: &String| {
            Style::from_name(name).ok_or_else(|| fail(format!("unknown style `{name}`")))
        };
        let order = match &self.order {
            None => Order::Unknown,
            Some(OrderText::Names(names)) => Order::Names(names.clone()),
            Some(OrderText::Word(word)) if word == "checkpoint" => Order::Checkpoint,
            Some(OrderText::Word(word)) => {
                return Err(fail(format!(
                    "order `{word}` is neither \"checkpoint\" nor a list of names"
                )));
            }
        };
        let fsdp1 = self.fsdp1.clone().unwrap_or_default();
        let param_dtype = fsdp1.param_dtype.as_ref().map(|name| {
            DType::from_name(name).ok_or_else(|| fail(format!("unknown element type `{name}`")))
        });
        let zero = self.zero.clone().unwrap_or_default();
        let stages = self.stages.clone().unwrap_or_default();
        Ok(Options {
            order,
            frozen: self.frozen.clone(),
            styles: self
                .rule
                .iter()
                .map(|rule| Ok((rule.matches.clone(), style(&rule.style)?)))
                .collect::<Result<_, Error>>()?,
            default_style: self.default_style.as_ref().map(style).transpose()?,
            fsdp1: Fsdp1 {
                units: fsdp1.units,
                use_orig_params: fsdp1.use_orig_params,
                param_dtype: param_dtype.transpose()?,
            },
            zero: Zero {
                master: zero.master,
                groups: zero.groups,
                round_robin_gradients: zero.round_robin_gradients,
                parameter_alignment: zero.parameter_alignment,
            },
            stages: Stages {
                layers: stages.layers,
                first: stages.first,
                last: stages.last,
            },
            components: BTreeMap::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        # Wan: units of both transformers, all else on every rank.
        ranks = 4
        layout = "replicate"

        [component.dit]
        layout = "fsdp1"
        order = "checkpoint"
        transform = { dtype = "BF16", rename = [["^a", "b"]] }
        fsdp1 = { units = ["blocks.*"], param_dtype = "BF16" }

        [component.dit.zero]
        master = true
        groups = [["*.weight"], ["*"]]

        [[component.dit.rule]]
        match = "*"
        style = "colwise"
    "#;

    #[test]
    fn canonical_text_says_the_same() {
        let file = PlanFile::parse(TEXT).unwrap();
        let text = file.canonical().unwrap();
        let again = PlanFile::parse(&text).unwrap();
        assert_eq!(again, file);
        assert_eq!(again.canonical().unwrap(), text);
        let request = file.request().unwrap();
        assert_eq!(request.component_layouts["dit"], "fsdp1");
        let options = request.options.of("dit");
        assert_eq!(options.fsdp1.units, ["blocks.*"]);
        assert_eq!(options.fsdp1.param_dtype, Some(DType::Bf16));
        assert_eq!(options.styles, [("*".to_owned(), Style::Colwise)]);
        assert_eq!(request.options.of("vae"), &request.options);
    }

    #[test]
    fn faults_name_the_line() {
        let cases = [
            ("ranks = 4\nlayuot = 'usp'", None),
            ("[component.a]\nlayuot = 'usp'", Some(2)),
            ("ranks = 1\nranks = 2", Some(2)),
            ("ranks = 'x'\n", Some(1)),
            ("[[rule]]\nmatch = 'x'\n", None),
            ("order = 'alphabet'", None),
            ("default_style = 'column'", None),
            ("[fsdp1]\nunits = []\nparam_dtype = 'BF17'", None),
        ];
        for (text, expected) in cases {
            let error = PlanFile::parse(text)
                .and_then(|file| file.request())
                .unwrap_err();
            let Error::PlanFile { line, .. } = &error else {
                panic!("{error}")
            };
            assert_eq!(*line, expected, "{text}: {error}");
        }
    }
}
