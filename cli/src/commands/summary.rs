//! From the libraries' types to reports.

use wpack_checkpoint::{Checkpoint, Component, Warning};
use wpack_format::{DType, MeshAxis, ResolvedRule, Role};

use super::glob::Chosen;
pub(super) use crate::report::elements;
use crate::report::{
    Axis, CheckpointComponent, CheckpointReport, CheckpointTensor, File, Fit, Rule, SCHEMA,
    SkippedValue, Source, Tally, WarningText,
};

/// What a checkpoint's headers say.
pub(super) fn checkpoint(
    checkpoint: &Checkpoint,
    chosen: &Chosen,
    fit: Option<Fit>,
) -> CheckpointReport {
    let mut tensors = Vec::new();
    for component in &checkpoint.components {
        for tensor in &component.tensors {
            if !chosen.matches(tensor.names.iter().map(String::as_str)) {
                continue;
            }
            let source = checkpoint.sources.get(tensor.source);
            tensors.push(CheckpointTensor {
                component: component.name.clone(),
                names: tensor.names.clone(),
                dtype: tensor.dtype.name(),
                shape: tensor.shape.clone(),
                bytes: tensor.bytes.len(),
                source: source.map_or_else(String::new, |source| base_name(&source.path)),
            });
        }
    }
    CheckpointReport {
        schema: SCHEMA,
        command: "inspect",
        kind: "checkpoint",
        sources: sources(checkpoint),
        components: checkpoint.components.iter().map(model).collect(),
        fit,
        warnings: warnings(&checkpoint.warnings),
        tensors: chosen.any().then_some(tensors),
    }
}

/// A model of a checkpoint, all of its tensors summed up.
pub(super) fn model(component: &Component) -> CheckpointComponent {
    let tensors = component.tensors.iter();
    CheckpointComponent {
        name: component.name.clone(),
        container: component.container.clone(),
        root: component.root.clone(),
        tally: Tally::of(tensors.map(|t| (t.names.len(), t.dtype, t.shape.as_slice()))),
        metadata: component.metadata.clone(),
        files: component
            .files
            .iter()
            .map(|file| File {
                component: None,
                path: file.path.clone(),
                bytes: file.bytes.len() as u64,
                sha256: None,
            })
            .collect(),
        skipped: component
            .skipped
            .iter()
            .map(|value| SkippedValue {
                path: value.path.clone(),
                kind: value.kind.clone(),
            })
            .collect(),
    }
}

/// Files by base name.
pub(super) fn sources(checkpoint: &Checkpoint) -> Vec<Source> {
    let sources = checkpoint.sources.iter();
    sources
        .map(|source| Source {
            name: base_name(&source.path),
            bytes: source.size,
            sha256: None,
        })
        .collect()
}

/// Warnings as they are reported.
pub(super) fn warnings(list: &[Warning]) -> Vec<WarningText> {
    list.iter()
        .map(|warning| WarningText {
            code: warning.code.to_owned(),
            message: warning.message.clone(),
        })
        .collect()
}

fn base_name(path: &std::path::Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

/// A rule that nothing has been counted under yet.
pub(super) fn rule(rule: &ResolvedRule) -> Rule {
    Rule {
        component: rule.component.clone(),
        placements: rule.placements.clone(),
        reason: rule.reason.clone(),
        tensors: 0,
        bytes: 0,
    }
}

/// Counts a tensor under its rule.
pub(super) fn count(rules: &mut [Rule], rule: u32, dtype: DType, elements: u64) {
    if let Some(rule) = usize::try_from(rule).ok().and_then(|at| rules.get_mut(at)) {
        rule.tensors = rule.tensors.saturating_add(1);
        rule.bytes = rule
            .bytes
            .saturating_add(dtype.bytes(elements).unwrap_or(u64::MAX));
    }
}

/// Axes of a mesh.
pub(super) fn axes(axes: &[MeshAxis]) -> Vec<Axis> {
    axes.iter()
        .map(|axis| Axis {
            name: axis.name.clone(),
            size: axis.size,
        })
        .collect()
}

/// A role in a word.
pub(super) fn role(role: Role) -> &'static str {
    match role {
        Role::Parameter => "parameter",
        Role::Buffer => "buffer",
    }
}
