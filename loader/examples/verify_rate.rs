//! How fast `verify` is beside the machine's own multi-threaded SHA-256, both in one run.
//!
//! `cargo run --release -p wpack-loader --example verify_rate -- [MEGABYTES] [THREADS] [PACK]`
//!
//! Makes a pack of a few large tensors of that size in all, at that path if there is none yet. Rounds
//! of both alternate, so that other programs on the machine slow both alike.
#![expect(clippy::print_stdout, reason = "prints what it measured")]

use std::{error::Error, path::PathBuf, sync::atomic::AtomicBool, time::Instant};

use wpack_format::{DType, sha256};
use wpack_loader::{FileSource, NoProgress, VerifyOptions, verify};

#[path = "../tests/builder/mod.rs"]
#[expect(dead_code, reason = "tests use the rest")]
mod builder;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let megabytes: u64 = args.next().map_or(Ok(1024), |text| text.parse())?;
    let threads: usize = args.next().map_or(Ok(2), |text| text.parse())?;
    let folder = tempfile::tempdir()?;
    let path = args
        .next()
        .map_or_else(|| folder.path().join("large.wpack"), PathBuf::from);
    if !path.exists() {
        std::fs::write(&path, large(megabytes))?;
    }
    let file = FileSource::open(&path)?;
    let options = VerifyOptions::default().with_threads(threads);
    let (mut hashed, mut verified, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..7 {
        let hash = hash_rate(threads);
        let report = verify(&file, &options, &NoProgress, &AtomicBool::new(false))?;
        if !report.is_sound() {
            return Err(format!("the pack is damaged: {:?}", report.damage).into());
        }
        hashed.push(hash);
        verified.push(report.rate());
        ratios.push(report.rate() / hash);
    }
    println!("threads: {threads}; medians of 7");
    println!("SHA-256 alone:  {:.2} GB/s", median(hashed) / 1e9);
    println!("verify:         {:.2} GB/s", median(verified) / 1e9);
    println!("ratio:          {:.2}", median(ratios));
    Ok(())
}

/// Bytes per second of SHA-256 on that many threads, each over memory in its own cache.
fn hash_rate(threads: usize) -> f64 {
    const ROUNDS: u32 = 2048;
    let bytes = vec![7; 256 << 10];
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                (0..ROUNDS).for_each(|_| {
                    std::hint::black_box(sha256(&bytes));
                });
            });
        }
    });
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let total = threads as f64 * f64::from(ROUNDS) * bytes.len() as f64;
    total / start.elapsed().as_secs_f64()
}

fn large(megabytes: u64) -> Vec<u8> {
    let tensors = (0..megabytes.div_ceil(16)).map(|at| {
        let tensor = builder::tensor(&format!("layer.{at}.weight"), DType::Bf16, &[2048, 4096]);
        let bytes = builder::pattern(&tensor, at + 1);
        (tensor, bytes)
    });
    let component = builder::Component {
        name: "model".into(),
        tensors: tensors.collect(),
    };
    builder::Builder::planned(vec![component], &builder::request("replicate", 1)).build()
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_unstable_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or(0.0)
}
