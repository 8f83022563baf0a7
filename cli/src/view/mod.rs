//! Reports for people.

mod checkpoint;
mod fit;
mod pack;
mod plan;
mod table;
mod verify;

pub(crate) use checkpoint::checkpoint;
pub(crate) use pack::pack;
pub(crate) use plan::plan;
pub(crate) use verify::verify;

use std::fmt::Write as _;

use crate::{
    human::{bytes, bytes_exact, count, grouped, name, plural},
    report::{Axis, DTypeTally, Extent, File, Rule, Sharing, Source, placements_of},
};
use table::{Align::Left, Align::Right, Table};

/// Rows of a table that people look through; `--json` has all.
const ROWS: usize = 16;

/// `dp=2,fsdp=4`.
fn mesh(axes: &[Axis]) -> String {
    let axes: Vec<_> = axes
        .iter()
        .map(|axis| format!("{}={}", name(&axis.name), axis.size))
        .collect();
    axes.join(",")
}

/// `zero3 over 4 ranks, mesh dp=4`.
fn layout(layout: &str, axes: Option<&[Axis]>, ranks: Option<u32>) -> String {
    match (axes, ranks) {
        (Some(axes), Some(ranks)) => format!(
            "{} over {}, mesh {}",
            name(layout),
            plural(u64::from(ranks), "rank"),
            mesh(axes)
        ),
        _ => format!("{}, for any number of ranks", name(layout)),
    }
}

/// `BF16 824, F32 1`.
fn dtypes(tallies: &[DTypeTally]) -> String {
    let one = tallies.len() == 1;
    let texts: Vec<_> = tallies
        .iter()
        .map(|t| {
            if one {
                t.dtype.to_owned()
            } else {
                format!("{} {}", t.dtype, grouped(t.tensors))
            }
        })
        .collect();
    if texts.is_empty() {
        "none".to_owned()
    } else {
        texts.join(", ")
    }
}

/// `[2, 3]`.
fn shape(shape: &[u64]) -> String {
    let dims: Vec<_> = shape.iter().map(ToString::to_string).collect();
    format!("[{}]", dims.join(", "))
}

fn heading(out: &mut String, text: &str) {
    let _ = write!(out, "\n{text}\n");
}

fn extents(out: &mut String, list: &[Extent]) {
    heading(out, "Extents");
    let placed = list.iter().any(|extent| extent.offset.is_some());
    let mut table = Table::new(&[
        ("#", Right),
        ("component", Left),
        ("held by", Left),
        ("slices", Right),
        ("bytes", Right),
    ]);
    if placed {
        table.column("at byte", Right);
    }
    for extent in list.iter().take(ROWS) {
        let mut row = vec![
            extent.index.to_string(),
            name(&extent.component),
            extent.owners.text(),
            grouped(u64::from(extent.slices)),
            bytes(extent.bytes),
        ];
        row.extend(extent.offset.map(grouped));
        table.row(row);
    }
    table.rest(list.len(), ROWS);
    table.write(out);
}

fn sharing(out: &mut String, sharing: &Sharing, ranks: Option<u32>) {
    heading(out, "Bytes by who holds them");
    let mut table = Table::new(&[("", Left), ("", Right)]);
    table.row(vec![
        "every rank".to_owned(),
        bytes_exact(sharing.every_rank_bytes),
    ]);
    if ranks.is_some() {
        table.row(vec![
            "some ranks".to_owned(),
            bytes_exact(sharing.some_ranks_bytes),
        ]);
        table.row(vec![
            "one rank alone".to_owned(),
            bytes_exact(sharing.one_rank_bytes),
        ]);
    }
    table.write(out);
    if !sharing.ranks.is_empty() {
        heading(out, "What a rank reads, and holds on its device");
        let mut table = Table::new(&[
            ("rank", Left),
            ("extents", Right),
            ("bytes", Right),
            ("of them shared", Right),
        ]);
        let mut rows = Vec::new();
        for group in sharing.ranks.chunk_by(|a, b| {
            (a.bytes, a.shared_bytes, a.extents.len()) == (b.bytes, b.shared_bytes, b.extents.len())
        }) {
            let [first, ..] = group else { continue };
            let last = group.last().unwrap_or(first);
            let (ranks, each) = if group.len() == 1 {
                (first.rank.to_string(), "")
            } else {
                (format!("{}-{}", first.rank, last.rank), " each")
            };
            rows.push(vec![
                format!("{ranks}{each}"),
                first.extents.len().to_string(),
                bytes(first.bytes),
                bytes(first.shared_bytes),
            ]);
        }
        let total = rows.len();
        for row in rows.into_iter().take(ROWS) {
            table.row(row);
        }
        table.rest(total, ROWS);
        table.write(out);
    }
    heading(out, "Host memory of a node");
    let mut table = Table::new(&[
        ("ranks", Right),
        ("this pack, mapped", Right),
        ("private copies", Right),
    ]);
    for row in &sharing.memory {
        table.row(vec![
            row.ranks_per_node.to_string(),
            bytes(row.mapped_bytes),
            bytes(row.private_copies_bytes),
        ]);
    }
    table.write(out);
    out.push_str("  mapped pages are shared and can be dropped; private copies cannot\n");
}

fn rules(out: &mut String, list: &[Rule]) {
    heading(out, "Placements");
    let mut table = Table::new(&[
        ("component", Left),
        ("tensors", Right),
        ("bytes", Right),
        ("placement", Left),
        ("because", Left),
    ]);
    for rule in list {
        table.row(vec![
            name(&rule.component),
            grouped(rule.tensors),
            bytes(rule.bytes),
            name(&placements_of(&rule.placements)),
            name(&rule.reason),
        ]);
    }
    table.write(out);
}

fn sources(out: &mut String, list: &[Source]) {
    heading(out, "Sources");
    let hashed = list.iter().any(|source| source.sha256.is_some());
    let mut table = Table::new(&[("file", Left), ("bytes", Right)]);
    if hashed {
        table.column("sha256", Left);
    }
    for source in list.iter().take(ROWS) {
        let mut row = vec![name(&source.name), grouped(source.bytes)];
        if hashed {
            row.push(source.sha256.clone().unwrap_or_default());
        }
        table.row(row);
    }
    table.rest(list.len(), ROWS);
    table.write(out);
}

fn files<'a>(out: &mut String, list: impl Iterator<Item = (Option<&'a str>, &'a File)>) {
    let mut table = Table::new(&[("component", Left), ("file", Left), ("bytes", Right)]);
    for (component, file) in list {
        let component = component.or(file.component.as_deref()).unwrap_or("(pack)");
        table.row(vec![name(component), name(&file.path), grouped(file.bytes)]);
    }
    if !table.is_empty() {
        heading(out, "Files carried along");
        table.write(out);
    }
}

/// Elements, and those of parameters where they are not all.
fn parameters(elements: u64, parameters: u64) -> String {
    if elements == parameters {
        count(elements)
    } else {
        format!(
            "{} + {} in buffers",
            count(parameters),
            count(elements.saturating_sub(parameters))
        )
    }
}
