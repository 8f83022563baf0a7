//! What `verify` found.

use std::{fmt::Write as _, time::Duration};

use crate::{
    human::{bytes_exact, duration, name, plural, rate},
    report::VerifyReport,
};

/// Items of a list that are shown; `--json` has all.
const SHOWN: usize = 20;

/// The report in words.
pub(crate) fn verify(report: &VerifyReport) -> String {
    let mut out = String::new();
    let path = name(&report.path);
    for damage in report.damage.iter().take(SHOWN) {
        let _ = writeln!(
            out,
            "{path}: {}: {}: {} bytes at byte {}, read by {}",
            name(&damage.part),
            name(&damage.what),
            damage.bytes,
            damage.offset,
            readers(&damage.ranks)
        );
        for tensor in damage.tensors.iter().take(SHOWN) {
            let component = damage
                .component
                .as_deref()
                .map_or_else(String::new, |c| format!("{} ", name(c)));
            let _ = writeln!(out, "  tensor {component}{}", name(tensor));
        }
        more(&mut out, damage.tensors.len(), "tensor");
    }
    more(&mut out, report.damage.len(), "damaged part");
    if let Some(against) = &report.against {
        for row in against.different.iter().take(SHOWN) {
            let _ = writeln!(
                out,
                "different: {} {}: {}",
                name(&row.component),
                name(&row.name),
                name(&row.what)
            );
        }
        more(&mut out, against.different.len(), "different tensor");
        for (what, list) in [("missing", &against.missing), ("extra", &against.extra)] {
            for row in list.iter().take(SHOWN) {
                let _ = writeln!(out, "{what}: {} {}", name(&row.component), name(&row.name));
            }
            more(&mut out, list.len(), &format!("{what} tensor"));
        }
    }
    let time = Duration::try_from_secs_f64(report.seconds).unwrap_or_default();
    let speed =
        rate(report.checked_bytes, time).map_or_else(String::new, |rate| format!(", {rate}"));
    let scope = report
        .rank
        .map_or_else(String::new, |rank| format!(" for rank {rank}"));
    if report.damage.is_empty() {
        let _ = writeln!(
            out,
            "{path}: sound{scope}: {} checked in {}{speed}",
            bytes_exact(report.checked_bytes),
            duration(time)
        );
        let _ = writeln!(out, "  digest {}", report.digest);
    }
    if let Some(against) = &report.against
        && against.different.is_empty()
        && against.missing.is_empty()
        && against.extra.is_empty()
    {
        let _ = writeln!(
            out,
            "  {} equal to the checkpoint",
            plural(against.equal, "tensor")
        );
    }
    out
}

fn readers(owners: &crate::report::Owners) -> String {
    match owners.text().as_str() {
        "all" => "every rank".to_owned(),
        text if text.contains([',', '-']) => format!("ranks {text}"),
        text => format!("rank {text}"),
    }
}

fn more(out: &mut String, all: usize, noun: &str) {
    if let Some(rest @ 1..) = all.checked_sub(SHOWN) {
        let _ = writeln!(
            out,
            "  ... and {}; --json lists all",
            plural(rest as u64, &format!("more {noun}"))
        );
    }
}
