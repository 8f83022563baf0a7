//! The zip container of PyTorch 1.6 and later.
//!
//! Records below one folder: `data.pkl`, `data/KEY`, `version`; since 2.1 `byteorder`, later
//! `.format_version`, `.storage_alignment` and `.data/serialization_id`. The folder's name is that
//! of the file when it was saved, and it does not follow a rename.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use super::{
    archive::Archive,
    memory_for, output_limit,
    record::Storage,
    storages::{Loaded, References, Referent, references},
};
use crate::{
    Error, OpenOptions, Warning,
    error::{Foreign, Name},
    file::SourceReader,
    pickle::{Id, Input, Pickle, run},
};

const PICKLE: &str = "data.pkl";
/// `kMaxSupportedFileFormatVersion` of `caffe2/serialize/versions.h`, PyTorch 2.11.
const MAX_VERSION: u64 = 10;
/// A compressed pickle may expand to this many times its size, and this many bytes more.
const PICKLE_RATIO: u64 = 64;
const PICKLE_SLACK: u64 = 1 << 20;

/// Reads directory, object and references.
pub(super) fn load(file: &Arc<SourceReader>, options: &OpenOptions) -> Result<Loaded, Error> {
    let mut archive = Archive::open(Arc::clone(file))?;
    let mut warnings = archive.take_warnings();
    let prefix = prefix(&archive)?;
    refuse_programs(&archive, &prefix)?;

    let name = |record: &str| format!("{prefix}{record}");
    version(&archive, &name("version"))?;
    let big_endian = byte_order(&archive, &name("byteorder"))?;
    let pickle_name = name(PICKLE);
    let (pickle, pickle_len) = object(&archive, &pickle_name)?;
    let references = references(file, PICKLE, &pickle, false)?;
    let limit = output_limit(file, options);
    let (storages, referents) = storages(&archive, &prefix, &references, limit)?;

    if archive.compressed() {
        warnings.push(Warning {
            code: "compressed-records",
            message: "records are compressed: they are unpacked into the temporary folder"
                .to_owned(),
        });
    }
    strangers(&archive, &prefix, &references, &mut warnings);
    Ok(Loaded {
        pickle,
        record: PICKLE.to_owned(),
        pickle_len,
        referents,
        storages,
        big_endian,
        metadata: BTreeMap::new(),
        warnings,
    })
}

/// The folder that holds the one `data.pkl`, with its slash; empty at the root of the archive.
fn prefix(archive: &Archive) -> Result<String, Error> {
    let path = || archive.file().path().to_owned();
    let mut found = archive.names().iter().filter_map(|name| {
        let at = name.len().checked_sub(PICKLE.len())?;
        let (folder, last) = (name.get(..at)?, name.get(at..)?);
        let whole = folder.is_empty() || folder.ends_with('/');
        (whole && last.eq_ignore_ascii_case(PICKLE)).then_some(folder)
    });
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one.to_owned()),
        (Some(one), Some(two)) => Err(Error::AmbiguousArchive {
            path: path(),
            what: format!(
                "two objects, {} and {}",
                Name(&format!("{one}{PICKLE}")),
                Name(&format!("{two}{PICKLE}"))
            ),
        }),
        (None, _) => {
            if exported(archive.names()) {
                return Err(unsupported(archive, "torch.export archive (.pt2)"));
            }
            let arrays = archive.names().iter().all(|name| name.ends_with(".npy"));
            let npz = arrays && !archive.names().is_empty();
            let found = if npz {
                Foreign::Npz
            } else {
                Foreign::ZipOfFiles
            };
            Err(Error::NotACheckpoint {
                path: path(),
                found,
            })
        }
    }
}

fn exported(names: &[String]) -> bool {
    let last = |name: &String| name.rsplit('/').next().map(str::to_owned);
    names
        .iter()
        .filter_map(last)
        .any(|name| name == "archive_format")
}

/// Programs: their weights are not to be had without their code.
fn refuse_programs(archive: &Archive, prefix: &str) -> Result<(), Error> {
    let has = |record: &str| archive.entry(&format!("{prefix}{record}")).is_some();
    if has("bytecode.pkl") {
        return Err(unsupported(
            archive,
            "TorchScript archive for mobile (bytecode.pkl present)",
        ));
    }
    if has("constants.pkl") {
        return Err(unsupported(
            archive,
            "TorchScript archive (constants.pkl present)",
        ));
    }
    let code = format!("{prefix}code/");
    if archive.names().iter().any(|name| name.starts_with(&code)) {
        return Err(unsupported(archive, "TorchScript archive (code/ present)"));
    }
    if exported(archive.names()) {
        return Err(unsupported(archive, "torch.export archive (.pt2)"));
    }
    Ok(())
}

fn unsupported(archive: &Archive, what: &str) -> Error {
    let remedy = "save its state dict: torch.save(torch.jit.load(FILE).state_dict(), OUT), or \
                  torch.export.load(FILE).state_dict for a .pt2";
    Error::UnsupportedFormat {
        path: archive.file().path().to_owned(),
        what: what.to_owned(),
        remedy: Some(remedy.to_owned()),
    }
}

fn version(archive: &Archive, name: &str) -> Result<(), Error> {
    let Some(bytes) = archive.small(name)? else {
        return Ok(());
    };
    let text = String::from_utf8_lossy(&bytes);
    match text.trim().parse::<u64>() {
        Ok(version) if version <= MAX_VERSION => Ok(()),
        Ok(version) => Err(Error::UnsupportedFormat {
            path: archive.file().path().to_owned(),
            what: format!("archive version {version}, the highest known is {MAX_VERSION}"),
            remedy: None,
        }),
        Err(_) => Err(Error::Corrupt {
            path: archive.file().path().to_owned(),
            what: format!("the version record says {}", Name(&text)),
        }),
    }
}

fn byte_order(archive: &Archive, name: &str) -> Result<bool, Error> {
    match archive.small(name)?.as_deref() {
        None | Some(b"little") => Ok(false),
        Some(b"big") => Ok(true),
        Some(other) => Err(Error::Corrupt {
            path: archive.file().path().to_owned(),
            what: format!(
                "unknown byteorder {}",
                Name(&String::from_utf8_lossy(other))
            ),
        }),
    }
}

/// Reads the pickle twice: damage is to be called damage, not a malformed pickle.
fn object(archive: &Archive, name: &str) -> Result<(Pickle, u64), Error> {
    let path = archive.file().path();
    let Some(entry) = archive.entry(name) else {
        return Err(Error::MissingStorage {
            path: path.to_owned(),
            storage: name.to_owned(),
            what: "the archive holds no object".to_owned(),
        });
    };
    let limit = archive
        .file()
        .size()
        .saturating_mul(PICKLE_RATIO)
        .saturating_add(PICKLE_SLACK);
    if entry.len() > limit {
        return Err(Error::ResourceLimit {
            path: path.to_owned(),
            what: format!("{PICKLE} in bytes"),
            found: entry.len().into(),
            limit,
        });
    }
    archive.verify(name, entry)?;
    let mut input = Input::new(archive.stream(name, entry)?);
    let pickle = run(&mut input, memory_for(archive.file()))
        .map_err(|fault| fault.into_error(path, PICKLE, false))?;
    let end = input.position();
    let more = entry.len().saturating_sub(end);
    if more > 0 {
        return Err(Error::MalformedPickle {
            path: path.to_owned(),
            record: PICKLE.to_owned(),
            at: end,
            what: format!("{more} bytes after STOP"),
        });
    }
    Ok((pickle, end))
}

/// Storages, and what the persistent ids stand for.
type Found = (Vec<Arc<Storage>>, HashMap<Id, Referent>);

/// Finds a record for each storage and compares the sizes.
fn storages(
    archive: &Archive,
    prefix: &str,
    references: &References,
    limit: u64,
) -> Result<Found, Error> {
    let path = || archive.file().path().to_owned();
    let mut storages = Vec::with_capacity(references.declared.len());
    let mut at = BTreeMap::new();
    let mut expanded = 0_u64;
    for (key, declared) in &references.declared {
        let plain =
            !key.is_empty() && !key.contains(['/', '\\', '\0']) && key != "." && key != "..";
        if !plain {
            return Err(Error::UnsafePath {
                path: path(),
                value: key.clone(),
            });
        }
        let name = format!("data/{key}");
        let full = format!("{prefix}{name}");
        let Some(entry) = archive.entry(&full) else {
            return Err(Error::MissingStorage {
                path: path(),
                storage: name,
                what: format!("the object needs {} bytes of it", declared.len),
            });
        };
        if entry.len() != declared.len {
            return Err(Error::SizeMismatch {
                path: path(),
                what: name,
                expected: declared.len,
                found: entry.len(),
            });
        }
        expanded = expanded.saturating_add(entry.expanded());
        if expanded > limit {
            return Err(Error::ResourceLimit {
                path: path(),
                what: "bytes that compressed records expand to".to_owned(),
                found: expanded.into(),
                limit,
            });
        }
        at.insert(key.clone(), storages.len());
        storages.push(Arc::new(archive.storage(&full, entry)?));
    }
    Ok((storages, references.referents(&at)))
}

/// Records that nothing refers to: they are never read, but their presence is told.
fn strangers(
    archive: &Archive,
    prefix: &str,
    references: &References,
    warnings: &mut Vec<Warning>,
) {
    const KNOWN: &[&str] = &[
        PICKLE,
        "version",
        "byteorder",
        ".format_version",
        ".storage_alignment",
        ".data/serialization_id",
        ".data/version",
    ];
    let keys: BTreeSet<String> = references
        .declared
        .keys()
        .map(|key| key.to_ascii_lowercase())
        .collect();
    let mut unreferenced = Vec::new();
    let mut foreign = Vec::new();
    for name in archive.names().iter().filter(|name| !name.ends_with('/')) {
        let Some(record) = name.strip_prefix(prefix) else {
            foreign.push(name.clone());
            continue;
        };
        let lower = record.to_ascii_lowercase();
        let used = lower
            .strip_prefix("data/")
            .is_some_and(|key| keys.contains(key));
        if !used && !KNOWN.contains(&lower.as_str()) {
            unreferenced.push(name.clone());
        }
    }
    for (code, list) in [
        ("unreferenced-records", unreferenced),
        ("foreign-records", foreign),
    ] {
        if !list.is_empty() {
            let message = format!("records that no tensor uses: {}", crate::error::list(&list));
            warnings.push(Warning { code, message });
        }
    }
}
