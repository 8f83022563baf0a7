//! Whether processes fit on a host.

use std::fmt::Write as _;

use super::{
    heading,
    table::{Align::Left, Align::Right, Table},
};
use crate::{
    human::{bytes, grouped},
    report::{Fit, Need},
};

/// The report in words.
pub(super) fn fit(out: &mut String, fit: &Fit) {
    let of = match fit.processes {
        1 => "1 process".to_owned(),
        n => format!("{} processes", grouped(u64::from(n))),
    };
    let host = fit.available_bytes.map_or_else(
        || "of a host whose memory is not known".to_owned(),
        |available| format!("of a host with {} for them", bytes(available)),
    );
    heading(out, &format!("Memory {host}, for {of}"));
    let mut table = Table::new(&[
        ("mode", Left),
        ("private copies", Right),
        ("fit", Left),
        ("this pack, private", Right),
        ("shared pages", Right),
        ("fit", Left),
    ]);
    let word = |need: &Need| need.fits.unwrap_or("?").to_owned();
    for mode in &fit.modes {
        table.row(vec![
            mode.mode.to_owned(),
            bytes(mode.without.private_bytes),
            word(&mode.without),
            bytes(mode.with.private_bytes),
            bytes(mode.with.page_bytes),
            word(&mode.with),
        ]);
    }
    table.write(out);
    if fit.modes.iter().any(|mode| mode.with.fits == Some("tight")) {
        out.push_str("  tight: shared pages do not all fit, some are dropped and read again\n");
    }
    let _ = writeln!(
        out,
        "  {} of {} are trained; the programs' own memory comes on top",
        bytes(fit.trainable_bytes),
        bytes(fit.model_bytes)
    );
}
