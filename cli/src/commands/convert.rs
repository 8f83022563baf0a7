//! `wpack convert`.

use std::time::Instant;

use wpack_convert::WriteOptions;
use wpack_format::Hex;

use super::{glob::Chosen, options, plan::Planned, plan_file};
use crate::{
    Context, Error, ExitStatus,
    args::ConvertArgs,
    human::{bytes_exact, duration, name, plural, rate},
    report::{ConvertReport, Output, SCHEMA},
};

pub(super) fn run(args: &ConvertArgs, context: &Context) -> Result<ExitStatus, Error> {
    let start = Instant::now();
    let asked = plan_file::of(
        &args.source,
        &args.layout,
        &args.transform,
        args.align,
        args.hash_sources,
    )?;
    let checkpoint = options::open(&args.source, &asked.plan)?;
    asked.check(&checkpoint)?;
    let planned = Planned::new(checkpoint, &asked.plan)?;
    planned.warn(context);
    let Some(output) = args.output.as_deref().filter(|_| !args.dry_run) else {
        planned.print("convert", &Chosen::new(None)?, None, args.json, context);
        return Ok(ExitStatus::Done);
    };
    let skipped = planned.skipped();
    if !skipped.is_empty() {
        context.printer.note(format_args!(
            "{} skipped, no tensors; `wpack plan` lists them",
            plural(skipped.len() as u64, "value")
        ));
    }
    for value in &skipped {
        context
            .printer
            .detail(format_args!("  skipped {} ({})", value.path, value.kind));
    }
    let bar = context.printer.bar("convert");
    let written = wpack_convert::convert(
        &planned.prepared,
        output,
        &WriteOptions {
            threads: context.threads(args.threads),
            overwrite: args.overwrite,
        },
        &wpack_convert::Context {
            progress: &bar,
            interrupt: &context.interrupt,
        },
    )?;
    drop(bar);
    let plan = planned.prepared.plan();
    let tensors = planned.prepared.inventory().components.iter();
    let time = start.elapsed();
    let report = ConvertReport {
        schema: SCHEMA,
        command: "convert",
        output: Output {
            path: output.to_string_lossy().into_owned(),
            bytes: written.file_len,
            digest: Hex(&written.digest).to_string(),
            tensors: tensors
                .map(|component| component.tensors.len() as u64)
                .sum(),
            ranks: plan.ranks(),
            layout: plan.layout().to_owned(),
            seconds: time.as_secs_f64(),
        },
        warnings: planned.warnings,
        skipped,
    };
    if args.json {
        context.printer.json(&report);
    } else {
        let speed =
            rate(report.output.bytes, time).map_or_else(String::new, |rate| format!(", {rate}"));
        context.printer.note(format_args!(
            "wrote {}: {} in {}{speed}",
            name(&report.output.path),
            bytes_exact(report.output.bytes),
            duration(time)
        ));
        context
            .printer
            .note(format_args!("  digest {}", report.output.digest));
    }
    Ok(ExitStatus::Done)
}
