//! A checkpoint.

use std::fmt::Write as _;

use super::{
    dtypes, files,
    fit::fit,
    heading, shape, sources,
    table::{Align::Left, Align::Right, Table},
};
use crate::{
    human::{bytes, bytes_exact, count, grouped, name, plural},
    report::{CheckpointReport, SkippedValue},
};

/// Skipped values that are listed; `--json` has all.
const SKIPPED: usize = 12;

/// The report in words.
pub(crate) fn checkpoint(report: &CheckpointReport) -> String {
    let mut out = String::new();
    let tensors = report.components.iter().map(|c| c.tally.tensors).sum();
    let total = report
        .components
        .iter()
        .fold(0u64, |sum, c| sum.saturating_add(c.tally.bytes));
    let _ = writeln!(
        out,
        "checkpoint of {}, {}: {}",
        plural(report.sources.len() as u64, "file"),
        plural(tensors, "tensor"),
        bytes_exact(total)
    );
    heading(&mut out, "Components");
    let mut table = Table::new(&[
        ("name", Left),
        ("container", Left),
        ("root", Left),
        ("tensors", Right),
        ("elements", Right),
        ("bytes", Right),
        ("dtypes", Left),
    ]);
    for component in &report.components {
        let root = if component.root.is_empty() {
            "-"
        } else {
            &component.root
        };
        table.row(vec![
            name(&component.name),
            name(&component.container),
            name(root),
            grouped(component.tally.tensors),
            count(component.tally.elements),
            bytes(component.tally.bytes),
            dtypes(&component.tally.dtypes),
        ]);
    }
    table.write(&mut out);
    for component in &report.components {
        if component.tally.ties > 0 {
            let _ = writeln!(
                out,
                "  {}: {} of tied tensors",
                name(&component.name),
                plural(component.tally.ties, "further name")
            );
        }
    }
    if let Some(answer) = &report.fit {
        fit(&mut out, answer);
    }
    sources(&mut out, &report.sources);
    let carried = report.components.iter();
    files(
        &mut out,
        carried.flat_map(|c| c.files.iter().map(|file| (Some(c.name.as_str()), file))),
    );
    skipped(
        &mut out,
        report
            .components
            .iter()
            .map(|c| (c.name.as_str(), c.skipped.as_slice())),
    );
    if let Some(list) = &report.tensors {
        heading(&mut out, "Tensors");
        let mut table = Table::new(&[
            ("component", Left),
            ("name", Left),
            ("dtype", Left),
            ("shape", Left),
            ("bytes", Right),
            ("file", Left),
        ]);
        for tensor in list {
            let names: Vec<_> = tensor.names.iter().map(|text| name(text)).collect();
            table.row(vec![
                name(&tensor.component),
                names.join(" = "),
                tensor.dtype.to_owned(),
                shape(&tensor.shape),
                grouped(tensor.bytes),
                name(&tensor.source),
            ]);
        }
        table.write(&mut out);
    }
    out
}

/// Values that are no tensors.
pub(super) fn skipped<'a>(
    out: &mut String,
    components: impl Iterator<Item = (&'a str, &'a [SkippedValue])>,
) {
    let all: Vec<_> = components
        .flat_map(|(of, list)| list.iter().map(move |value| (of, value)))
        .collect();
    if all.is_empty() {
        return;
    }
    heading(out, "Skipped: no tensors");
    let mut table = Table::new(&[("component", Left), ("path", Left), ("type", Left)]);
    for (of, value) in all.iter().take(SKIPPED) {
        table.row(vec![name(of), name(&value.path), name(&value.kind)]);
    }
    table.rest(all.len(), SKIPPED);
    table.write(out);
}
