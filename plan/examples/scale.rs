//! How long it takes to plan 100 000 tensors for 1 000 ranks, and how much memory.
//!
//!     cargo run --release -p wpack-plan --example scale -- [TENSORS] [RANKS] [LAYOUT...]
//!
//! Each layout is planned, summed up by rank, and the slices of its last extent are made. Memory is what
//! the process has asked for at most so far, the inventory included.
#![expect(clippy::print_stdout, reason = "prints what it measured")]

use std::error::Error;
use std::time::Instant;

#[path = "../tests/support/mod.rs"]
mod support;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let tensors: usize = args.next().map_or(Ok(100_000), |text| text.parse())?;
    let ranks: u32 = args.next().map_or(Ok(1_000), |text| text.parse())?;
    let wanted: Vec<String> = args.collect();
    let inventory = support::many(tensors);
    println!(
        "{tensors} tensors, {ranks} ranks; the inventory alone: {}",
        peak()
    );
    println!(
        "layout                plan     extents      slices  a rank's slices  a rank's bytes    peak memory"
    );
    for planned in support::plans_of_many(tensors, ranks) {
        let (layout, text) = (planned.name, planned.text);
        if !wanted.is_empty() && !wanted.iter().any(|name| name == layout) {
            continue;
        }
        let start = Instant::now();
        let request = wpack_plan::PlanFile::parse(&text)?.request()?;
        let plan = wpack_plan::plan(&inventory, &request)?;
        let planned = start.elapsed();
        let slices: u64 = plan
            .extents()
            .iter()
            .map(|extent| u64::from(extent.slice_count))
            .sum();
        let most = plan.bytes_by_rank().into_iter().max().unwrap_or(0);
        let start = Instant::now();
        let held: Vec<usize> = plan.extents_of(0).collect();
        for extent in held {
            plan.slices(extent)?;
        }
        println!(
            "{layout:<18} {:>5.2} s {:>10} {slices:>12} {:>13.3} s {most:>15} {:>14}",
            planned.as_secs_f64(),
            plan.extents().len(),
            start.elapsed().as_secs_f64(),
            peak(),
        );
    }
    Ok(())
}

/// The most memory of this process so far, as Linux counts it.
fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or_else(|| "unknown".to_owned(), |line| line.trim().to_owned())
}
