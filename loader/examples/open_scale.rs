//! How long one rank of a thousand takes to open a pack of 100 000 tensors, warm, by layout.
//!
//! `cargo run --release -p wpack-loader --example open_scale -- [TENSORS] [RANKS]`
//!
//! The pack holds what the rank reads and nothing else: its data would be terabytes. It lies in memory, as it
//! would in the page cache.
#![expect(clippy::print_stdout, reason = "prints what it measured")]

use std::{error::Error, time::Instant};

use wpack_loader::{ByteSource as _, Index};

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
    Ok(())
}
