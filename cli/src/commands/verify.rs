//! `wpack verify`: every digest of a pack, and its tensors against those of the checkpoint.

use wpack_checkpoint::OpenOptions;
use wpack_convert::TensorId;
use wpack_format::Hex;
use wpack_loader::{FileSource, Index, Part, VerifyOptions};

use crate::{
    Context, Error, ExitStatus,
    args::VerifyArgs,
    report::{Against, Damage, Difference, SCHEMA, TensorRef, VerifyReport},
    view,
};

pub(super) fn run(args: &VerifyArgs, context: &Context) -> Result<ExitStatus, Error> {
    let path = args.pack.to_string_lossy().into_owned();
    let source = FileSource::open(&args.pack)?;
    let threads = context.threads(args.threads);
    let options = VerifyOptions::default()
        .with_rank(args.rank)
        .with_threads(threads);
    let bar = context.printer.bar("verify");
    let found = wpack_loader::verify(&source, &options, &bar, &context.interrupt)?;
    drop(bar);
    let damage: Vec<Damage> = found.damage.iter().map(damage).collect();
    let mut report = VerifyReport {
        schema: SCHEMA,
        command: "verify",
        path: path.clone(),
        ok: damage.is_empty(),
        digest: Hex(&found.digest).to_string(),
        rank: found.rank,
        checked_bytes: found.bytes,
        seconds: found.seconds,
        damage,
        against: None,
        error: None,
    };
    let mut error = None;
    if !report.damage.is_empty() {
        error = Some(Error::Damaged {
            path,
            parts: report.damage.len() as u64,
        });
    } else if !args.against.is_empty() {
        // Only a sound pack is compared: of a damaged one it is known that it differs.
        let against = against(args, &source, threads, context)?;
        let (different, missing, extra) = (&against.different, &against.missing, &against.extra);
        if !(different.is_empty() && missing.is_empty() && extra.is_empty()) {
            error = Some(Error::Differs {
                path,
                different: different.len() as u64,
                missing: missing.len() as u64,
                extra: extra.len() as u64,
            });
        }
        report.against = Some(against);
    }
    report.ok = error.is_none();
    report.error = error.as_ref().map(Error::body);
    if args.json {
        context.printer.json(&report);
    } else {
        context.printer.data(&view::verify(&report));
        if let Some(error) = &error {
            context
                .printer
                .error(&error.chain(), error.hint().as_deref());
        }
    }
    Ok(error.map_or(ExitStatus::Done, |error| error.status()))
}

fn against(
    args: &VerifyArgs,
    source: &FileSource,
    threads: usize,
    context: &Context,
) -> Result<Against, Error> {
    let root = match &args.root {
        Some(root) => Some(root.clone()),
        None => recorded_root(source)?,
    };
    let options = OpenOptions {
        root,
        ..OpenOptions::default()
    };
    let checkpoint = wpack_checkpoint::open(&args.against, &options)?;
    let bar = context.printer.bar("compare");
    let found = wpack_convert::against(
        source,
        checkpoint,
        threads,
        &wpack_convert::Context {
            progress: &bar,
            interrupt: &context.interrupt,
        },
    )?;
    let tensor = |id: TensorId| TensorRef {
        component: id.component,
        name: id.name,
    };
    Ok(Against {
        equal: found.equal,
        different: found
            .different
            .into_iter()
            .map(|difference| Difference {
                component: difference.tensor.component,
                name: difference.tensor.name,
                what: difference.what.to_string(),
            })
            .collect(),
        missing: found.missing.into_iter().map(tensor).collect(),
        extra: found.extra.into_iter().map(tensor).collect(),
        left_out: found.left_out,
    })
}

/// The path of the state dict that the pack was made from, where all of its components have the same:
/// with it, a checkpoint of several state dicts is not ambiguous.
fn recorded_root(source: &FileSource) -> Result<Option<String>, Error> {
    let index = Index::read(source)?;
    let components = &index.root().description.components;
    let mut roots = components
        .iter()
        .map(|component| component.transform.root.as_str());
    let first = roots.next().unwrap_or_default();
    let same = !first.is_empty() && roots.all(|root| root == first);
    Ok(same.then(|| first.to_owned()))
}

fn damage(damage: &wpack_loader::Damage) -> Damage {
    let (extent, block) = match damage.part {
        Part::Block { extent, block } => (Some(extent), Some(block)),
        Part::SliceTable { extent } | Part::BlockTable { extent } | Part::Slice { extent, .. } => {
            (Some(extent), None)
        }
        _ => (None, None),
    };
    Damage {
        part: damage.part.to_string(),
        fault: damage.fault.code(),
        what: damage.fault.to_string(),
        offset: damage.offset,
        bytes: damage.len,
        extent,
        block,
        component: damage.component.clone(),
        tensors: damage.tensors.clone(),
        ranks: (&damage.ranks).into(),
    }
}
