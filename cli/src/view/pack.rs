//! A pack.

use std::fmt::Write as _;

use super::{
    dtypes, extents, files,
    fit::fit,
    heading, layout, mesh, parameters, rules, shape, sharing, sources,
    table::{Align::Left, Align::Right, Table},
};
use crate::{
    human::{bytes, bytes_exact, grouped, name, plural},
    report::{PackReport, PackTensor, RankDetail},
};

/// The report in words.
pub(crate) fn pack(report: &PackReport) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{}: wpack format {}, {}",
        name(&report.path),
        report.format,
        bytes_exact(report.bytes)
    );
    let _ = writeln!(out, "  digest  {}", report.digest);
    let axes = report.mesh.as_deref();
    let _ = writeln!(
        out,
        "  layout  {}",
        layout(&report.layout, axes, report.ranks)
    );
    let _ = writeln!(
        out,
        "  file    {} of header and index, extents aligned to {}",
        bytes(report.index_bytes),
        bytes(report.extent_align)
    );
    if let Some(plan) = &report.plan_file {
        let lines = plural(plan.lines().count() as u64, "line");
        let _ = writeln!(out, "  plan    {lines}, --plan prints them");
    }
    if let Some(rank) = &report.rank {
        one_rank(&mut out, rank);
        return out;
    }
    components(&mut out, report);
    extents(&mut out, &report.extents);
    sharing(&mut out, &report.sharing, report.ranks);
    if let Some(answer) = &report.fit {
        fit(&mut out, answer);
    }
    rules(&mut out, &report.rules);
    sources(&mut out, &report.sources);
    files(&mut out, report.files.iter().map(|file| (None, file)));
    if !report.metadata.is_empty() {
        heading(&mut out, "Metadata");
        for (key, value) in &report.metadata {
            let _ = writeln!(out, "  {} = {}", name(key), name(value));
        }
    }
    if let Some(list) = &report.tensors {
        tensors(&mut out, list);
    }
    out
}

fn components(out: &mut String, report: &PackReport) {
    heading(out, "Components");
    let mut table = Table::new(&[
        ("name", Left),
        ("layout", Left),
        ("tensors", Right),
        ("parameters", Right),
        ("bytes", Right),
        ("dtypes", Left),
    ]);
    for component in &report.components {
        table.row(vec![
            name(&component.name),
            name(&component.layout),
            grouped(component.tally.tensors),
            parameters(component.tally.elements, component.parameters),
            bytes(component.tally.bytes),
            dtypes(&component.tally.dtypes),
        ]);
    }
    table.write(out);
    for component in &report.components {
        let of = name(&component.name);
        if component.tally.ties > 0 {
            let _ = writeln!(
                out,
                "  {of}: {} of tied tensors",
                plural(component.tally.ties, "further name")
            );
        }
        for line in component.transform.lines() {
            let _ = writeln!(out, "  {of}: {}", name(&line));
        }
        for (key, value) in &component.metadata {
            let _ = writeln!(
                out,
                "  {of}: metadata {} = {}",
                name(key),
                name(&short(value))
            );
        }
    }
}

/// The beginning of a long value.
fn short(text: &str) -> String {
    const LIMIT: usize = 120;
    match text.char_indices().nth(LIMIT) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn tensors(out: &mut String, list: &[PackTensor]) {
    heading(out, "Tensors");
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
        table.row(vec![
            name(&tensor.component),
            names.join(" = "),
            tensor.dtype.to_owned(),
            shape(&tensor.shape),
            grouped(tensor.bytes),
            tensor.role.to_owned(),
            tensor.rule.to_string(),
        ]);
    }
    table.write(out);
}

fn one_rank(out: &mut String, rank: &RankDetail) {
    let place = mesh(&rank.coordinates);
    let place = if place.is_empty() {
        String::new()
    } else {
        format!(" at {place}")
    };
    let _ = writeln!(
        out,
        "\nRank {}{place}: {} in {}, {}",
        rank.rank,
        bytes_exact(rank.bytes),
        plural(rank.extents.len() as u64, "extent"),
        plural(rank.slice_count, "slice")
    );
    let numbers: Vec<_> = rank.extents.iter().map(ToString::to_string).collect();
    let _ = writeln!(out, "  extents {}", numbers.join(", "));
    let Some(slices) = &rank.slices else { return };
    let mut table = Table::new(&[
        ("component", Left),
        ("name", Left),
        ("dtype", Left),
        ("local shape", Left),
        ("content", Left),
        ("extent", Right),
        ("at byte", Right),
        ("bytes", Right),
    ]);
    for slice in slices {
        let names: Vec<_> = slice.names.iter().map(|text| name(text)).collect();
        let mut content = slice.content.to_owned();
        if slice.kind != "value" {
            let _ = write!(content, ", {}", slice.kind);
        }
        if slice.fill > 0 {
            let _ = write!(content, ", {} fill", grouped(slice.fill));
        }
        table.row(vec![
            name(&slice.component),
            names.join(" + "),
            slice.dtype.to_owned(),
            shape(&slice.shape),
            content,
            slice.extent.to_string(),
            grouped(slice.offset),
            grouped(slice.bytes),
        ]);
    }
    out.push('\n');
    table.write(out);
}
