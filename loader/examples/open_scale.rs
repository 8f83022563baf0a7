//! How long one rank of a thousand takes to open a pack of 100 000 tensors, warm, by layout.
//!
//! `cargo run --release -p wpack-loader --example open_scale -- [TENSORS] [RANKS]`
//!
//! The pack holds what the rank reads and nothing else: its data would be terabytes. It lies in memory, as it
//! would in the page cache.
#![expect(clippy::print_stdout, reason = "prints what it measured")]

use std::{error::Error, time::Instant};

use wpack_loader::{ByteSource as _, Index, ResliceOptions};

#[path = "../../plan/tests/support/mod.rs"]
mod many;
#[path = "../tests/sparse/mod.rs"]
#[expect(dead_code, reason = "the test uses the rest")]
mod sparse;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let tensors: usize = args.next().map_or(Ok(100_000), |text| text.parse())?;
    let ranks: u32 = args.next().map_or(Ok(1_000), |text| text.parse())?;
    let inventory = many::many(tensors);
    println!("{tensors} tensors, {ranks} ranks; medians of 11");
    println!(
        "layout               slices of the rank       read       pack  header and root     shard"
    );
    for planned in many::plans_of_many(tensors, ranks) {
        let rank = ranks / 2;
        let source = sparse::Sparse::new(&inventory, &planned.text, rank);
        let (mut open, mut shards, mut slices) = (Vec::new(), Vec::new(), 0);
        for _ in 0..11 {
            source.take_read();
            let start = Instant::now();
            let index = Index::read(&source)?;
            let read = start.elapsed();
            let shard = index.shard(&source, rank)?;
            open.push(read);
            shards.push(start.elapsed() - read);
            slices = shard.len();
        }
        open.sort_unstable();
        shards.sort_unstable();
        let ms = |times: &[std::time::Duration]| {
            times
                .get(times.len() / 2)
                .map_or(0.0, std::time::Duration::as_secs_f64)
                * 1e3
        };
        println!(
            "{:<18} {slices:>20} {:>8.1} MB {:>7.2} TB {:>13.2} ms {:>6.2} ms",
            planned.name,
            source.take_read() as f64 / 1e6,
            source.len() as f64 / 1e12,
            ms(&open),
            ms(&shards),
        );
    }
    println!();
    println!("a replicate pack, opened as         without a copy       gathered          time");
    let plans = many::plans_of_many(tensors, ranks);
    let whole = plans.first().map_or("", |planned| planned.text.as_str());
    let source = sparse::Sparse::new(&inventory, whole, 0);
    let index = Index::read(&source)?;
    for planned in &plans {
        let plan = wpack_plan::PlanFile::parse(&planned.text)?;
        let options = ResliceOptions::new(ranks / 2).with_plan(plan);
        let start = Instant::now();
        let reslice = index.reslice(&source, &options)?;
        let time = start.elapsed();
        let cost = reslice.explain();
        println!(
            "{:<31} {:>12.3} GB {:>11.3} GB {:>8.0} ms",
            planned.name,
            cost.zero_copy.bytes as f64 / 1e9,
            cost.gathered.bytes as f64 / 1e9,
            time.as_secs_f64() * 1e3,
        );
    }
    Ok(())
}
