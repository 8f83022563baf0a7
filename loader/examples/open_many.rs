//! How long it takes to open one rank's shard of a pack of many tensors, warm: wall time, and time
//! on a core, which other programs do not change.
//!
//! `cargo run --release -p wpack-loader --example open_many -- [TENSORS] [RANKS] [PACK]`
//!
//! Makes a pack of that many small tensors for `zero3`, at that path if there is none yet.
#![expect(clippy::print_stdout, reason = "prints what it measured")]

use std::{error::Error, path::PathBuf, time::Instant};

use wpack_format::DType;
use wpack_loader::Pack;

#[path = "../tests/builder/mod.rs"]
#[expect(dead_code, reason = "tests use the rest")]
mod builder;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let tensors: u32 = args.next().map_or(Ok(100_000), |text| text.parse())?;
    let ranks: u32 = args.next().map_or(Ok(4), |text| text.parse())?;
    let folder = tempfile::tempdir()?;
    let path = args
        .next()
        .map_or_else(|| folder.path().join("many.wpack"), PathBuf::from);
    if !path.exists() {
        std::fs::write(&path, many(tensors, ranks))?;
    }

    let (mut open, mut iterate, mut look_up) = (Vec::new(), Vec::new(), Vec::new());
    let mut slices = 0;
    for _ in 0..21 {
        let clock = Clock::start();
        let pack = Pack::open(&path)?;
        let shard = pack.shard(0)?;
        open.push(clock.stop());

        let clock = Clock::start();
        slices = shard.iter().filter(|view| view.name().is_some()).count();
        iterate.push(clock.stop());

        let name = shard
            .iter()
            .last()
            .and_then(|view| view.name())
            .unwrap_or_default();
        let clock = Clock::start();
        shard.get(name)?;
        look_up.push(clock.stop());
    }
    println!("slices of rank 0:         {slices}");
    for (what, times) in [
        ("open and shard", open),
        ("iterate with names", iterate),
        ("first look-up", look_up),
    ] {
        let (wall, core) = times.into_iter().unzip();
        println!(
            "{what:<20} {:7.2} ms wall, {:7.2} ms on a core",
            median(wall),
            median(core)
        );
    }
    Ok(())
}

/// Milliseconds passed, and spent on a core by this process's only thread.
struct Clock(Instant, f64);

impl Clock {
    fn start() -> Self {
        Self(Instant::now(), core_ms())
    }

    fn stop(self) -> (f64, f64) {
        (self.0.elapsed().as_secs_f64() * 1e3, core_ms() - self.1)
    }
}

fn core_ms() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|nanos| nanos.parse::<f64>().ok())
        .unwrap_or(0.0)
        / 1e6
}

fn many(tensors: u32, ranks: u32) -> Vec<u8> {
    let tensors = (0..tensors).map(|at| {
        let name = format!(
            "model.layers.{}.mlp.experts.{}.up_proj.weight",
            at / 128,
            at % 128
        );
        let tensor = builder::tensor(&name, DType::Bf16, &[16, 16]);
        let bytes = builder::pattern(&tensor, at.into());
        (tensor, bytes)
    });
    let component = builder::Component {
        name: "model".into(),
        tensors: tensors.collect(),
    };
    builder::Builder::planned(vec![component], &builder::request("zero3", ranks)).build()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}
