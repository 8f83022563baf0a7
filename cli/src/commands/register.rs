//! `wpack register`.

use std::{fmt::Write as _, path::Path};

use wpack_format::Hex;
use wpack_loader::{FileSource, Index};

use crate::{
    Context, Error, ExitStatus,
    args::RegisterArgs,
    human::name,
    registry::{Registered, Registry},
    report::{RegisterReport, RegisteredPack, SCHEMA},
};

pub(super) fn run(args: &RegisterArgs, context: &Context) -> Result<ExitStatus, Error> {
    let registry = Registry::of_user()?;
    let packs = if args.packs.is_empty() {
        registry.read()?
    } else if args.remove {
        remove(args, &registry)?
    } else {
        add(args, &registry)?
    };
    let report = RegisterReport {
        schema: SCHEMA,
        command: "register",
        file: registry.file().to_string_lossy().into_owned(),
        packs: packs.into_iter().map(state).collect(),
    };
    if args.json {
        context.printer.json(&report);
    } else {
        context.printer.data(&words(&report));
    }
    Ok(ExitStatus::Done)
}

fn add(args: &RegisterArgs, registry: &Registry) -> Result<Vec<Registered>, Error> {
    let mut new = Vec::new();
    for pack in &args.packs {
        // A pack that does not open now would be an error in the middle of a training run.
        Index::read(&FileSource::open(pack)?)?;
        new.push(Registered {
            path: absolute(pack)?,
            model_id: args.model_id.clone(),
        });
    }
    registry.change(|packs| {
        for pack in new {
            match packs.iter_mut().find(|known| known.path == pack.path) {
                Some(known) => *known = pack,
                None => packs.push(pack),
            }
        }
        Ok(())
    })
}

fn remove(args: &RegisterArgs, registry: &Registry) -> Result<Vec<Registered>, Error> {
    let mut gone = Vec::new();
    for pack in &args.packs {
        gone.push(absolute(pack)?);
    }
    registry.change(|packs| {
        if let Some(unknown) = gone
            .iter()
            .find(|path| packs.iter().all(|known| known.path != **path))
        {
            return Err(Error::Usage {
                what: format!("`{unknown}` is not registered"),
                hint: "`wpack register` lists the registered packs".to_owned(),
            });
        }
        packs.retain(|known| !gone.contains(&known.path));
        Ok(())
    })
}

/// The path from the root on, links kept: a link that is moved to a newer pack stays registered.
fn absolute(pack: &Path) -> Result<String, Error> {
    let path = std::path::absolute(pack).map_err(|source| Error::Write {
        path: pack.to_string_lossy().into_owned(),
        source,
    })?;
    path.into_os_string()
        .into_string()
        .map_err(|path| Error::Usage {
            what: format!("the path `{}` is not UTF-8", path.to_string_lossy()),
            hint: "rename the pack, or its folder".to_owned(),
        })
}

fn state(pack: Registered) -> RegisteredPack {
    let index = FileSource::open(&pack.path).and_then(|file| Index::read(&file));
    let (digest, problem) = match index {
        Ok(index) => (Some(Hex(&index.digest()).to_string()), None),
        Err(error) => (None, Some(Error::from(error).chain().join(": "))),
    };
    RegisteredPack {
        path: pack.path,
        model_id: pack.model_id,
        digest,
        problem,
    }
}

fn words(report: &RegisterReport) -> String {
    let mut out = String::new();
    if report.packs.is_empty() {
        let _ = writeln!(out, "no pack is registered in {}", name(&report.file));
    }
    for pack in &report.packs {
        let _ = write!(out, "{}", name(&pack.path));
        if let Some(id) = &pack.model_id {
            let _ = write!(out, "  stands for {}", name(id));
        }
        match (&pack.digest, &pack.problem) {
            (Some(digest), _) => {
                let _ = writeln!(out, "  digest {}", digest.get(..16).unwrap_or(digest));
            }
            (None, problem) => {
                let why = problem.as_deref().unwrap_or_default();
                let _ = writeln!(out, "  cannot be opened: {}", name(why));
            }
        }
    }
    out
}
