//! Patterns of paths.

use std::path::{Path, PathBuf};

use globset::GlobBuilder;

use crate::{Error, file::base_name, names::WeightName};

use super::{choose, listing::Listing};

/// Most entries that a pattern is held against.
const WALK_LIMIT: usize = 100_000;
/// Deepest folder below the fixed part of a pattern.
const DEPTH_LIMIT: usize = 16;

/// Whether a path that does not exist may be meant as a pattern.
pub(super) fn is_pattern(path: &str) -> bool {
    path.contains(['*', '?', '[', '{'])
}

/// The files of weights that match, in ascending order.
pub(super) fn expand(pattern: &str) -> Result<Vec<PathBuf>, Error> {
    let none = |what: String| Error::NoInput {
        input: pattern.to_owned(),
        what,
    };
    let matcher = GlobBuilder::new(pattern)
        .literal_separator(true)
        .build()
        .map_err(|error| none(error.kind().to_string()))?
        .compile_matcher();

    // The walk starts below the part in front of the first special character.
    let fixed = pattern
        .split(['*', '?', '[', '{'])
        .next()
        .unwrap_or_default();
    let start = match fixed.rfind('/') {
        Some(0) => "/",
        Some(end) => fixed.get(..end).unwrap_or_default(),
        None => "",
    };
    let levels = pattern
        .matches('/')
        .count()
        .saturating_sub(fixed.matches('/').count());
    let depth = if pattern.contains("**") {
        DEPTH_LIMIT
    } else {
        levels
    };

    let mut found = Vec::new();
    let mut seen = 0;
    let mut open = vec![(PathBuf::from(start), 0)];
    while let Some((folder, level)) = open.pop() {
        let listing = match Listing::read(if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            &folder
        }) {
            Ok(listing) => listing,
            // The fixed part leads nowhere: nothing matches.
            Err(_) if level == 0 => return Err(none("nothing matches".to_owned())),
            Err(error) => return Err(error),
        };
        seen += listing.files.len() + listing.folders.len();
        if seen > WALK_LIMIT {
            return Err(Error::ResourceLimit {
                path: PathBuf::from(pattern),
                what: "entries that the pattern is held against".to_owned(),
                found: u128::try_from(seen).unwrap_or(u128::MAX),
                limit: u64::try_from(WALK_LIMIT).unwrap_or(u64::MAX),
            });
        }
        for (name, _) in listing.files {
            let path = folder.join(name);
            if matcher.is_match(&path) {
                found.push(path);
            }
        }
        if level < depth {
            for (name, _) in listing.folders {
                open.push((folder.join(name), level + 1));
            }
        }
    }
    found.sort();
    let is_weights = |path: &PathBuf| {
        let name = base_name(path);
        WeightName::parse(&name).is_some() && !WeightName::is_training_state(&name)
    };
    if found.iter().any(is_weights) {
        found.retain(is_weights);
    }
    if found.is_empty() {
        return Err(none("nothing matches".to_owned()));
    }
    choose::check_sets(&found)?;
    Ok(found)
}
