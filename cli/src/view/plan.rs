//! A plan.

use std::fmt::Write as _;

use super::{
    checkpoint::skipped,
    dtypes, extents, files,
    fit::fit,
    heading, layout, parameters, rules, shape, sharing, sources,
    table::{Align::Left, Align::Right, Table},
};
use crate::{
    human::{bytes, bytes_exact, grouped, name, plural},
    report::PlanReport,
};

/// The report in words.
pub(crate) fn plan(report: &PlanReport) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "a pack of {}", bytes_exact(report.bytes));
    let axes = report.mesh.as_deref();
    let _ = writeln!(
        out,
        "  layout  {}",
        layout(&report.layout, axes, report.ranks)
    );
    let _ = writeln!(
        out,
        "  file    extents aligned to {}",
        bytes(report.extent_align)
    );
    heading(&mut out, "Components");
    let mut table = Table::new(&[
        ("name", Left),
        ("from", Left),
        ("layout", Left),
        ("tensors", Right),
        ("parameters", Right),
        ("bytes", Right),
        ("dtypes", Left),
    ]);
    for component in &report.components {
        let model = &component.model;
        table.row(vec![
            name(&model.name),
            name(&model.container),
            name(&component.layout),
            grouped(model.tally.tensors),
            parameters(model.tally.elements, component.parameters),
            bytes(model.tally.bytes),
            dtypes(&model.tally.dtypes),
        ]);
    }
    table.write(&mut out);
    for component in &report.components {
        let of = name(&component.model.name);
        let ties = component.model.tally.ties;
        if ties > 0 {
            let _ = writeln!(
                out,
                "  {of}: {} of tied tensors",
                plural(ties, "further name")
            );
        }
        for line in component.transform.lines() {
            let _ = writeln!(out, "  {of}: {}", name(&line));
        }
        if component.left_out > 0 {
            let _ = writeln!(
                out,
                "  {of}: {} left out by filters",
                plural(component.left_out, "tensor")
            );
        }
    }
    rules(&mut out, &report.rules);
    extents(&mut out, &report.extents);
    sharing(&mut out, &report.sharing, report.ranks);
    if let Some(answer) = &report.fit {
        fit(&mut out, answer);
    }
    sources(&mut out, &report.sources);
    let models = || report.components.iter().map(|component| &component.model);
    files(
        &mut out,
        models().flat_map(|model| {
            model
                .files
                .iter()
                .map(|file| (Some(model.name.as_str()), file))
        }),
    );
    skipped(
        &mut out,
        models().map(|model| (model.name.as_str(), model.skipped.as_slice())),
    );
    if let Some(list) = &report.tensors {
        heading(&mut out, "Tensors");
        let mut table = Table::new(&[
            ("component", Left),
            ("name", Left),
            ("dtype", Left),
            ("shape", Left),
            ("bytes", Right),
            ("role", Left),
            ("rule", Right),
        ]);
        for tensor in list {
            let names: Vec<_> = tensor.names.iter().map(|text| name(text)).collect();
            let dtype = if tensor.dtype == tensor.source_dtype {
                tensor.dtype.to_owned()
            } else {
                format!("{} (was {})", tensor.dtype, tensor.source_dtype)
            };
            table.row(vec![
                name(&tensor.component),
                names.join(" = "),
                dtype,
                shape(&tensor.shape),
                grouped(tensor.bytes),
                tensor.role.to_owned(),
                tensor.rule.to_string(),
            ]);
        }
        table.write(&mut out);
    }
    out
}
