//! Choosing tensors by name.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::Error;

/// Globs over tensor names; none choose nothing.
pub(super) struct Chosen(GlobSet);

impl Chosen {
    /// What `--tensors` says.
    pub(super) fn new(pattern: Option<&str>) -> Result<Self, Error> {
        Self::of("--tensors", pattern)
    }

    /// What an option says that may be given several times.
    pub(super) fn of<'p>(
        option: &'static str,
        patterns: impl IntoIterator<Item = &'p str>,
    ) -> Result<Self, Error> {
        let refused = |pattern: &str| {
            let pattern = pattern.to_owned();
            move |source| Error::Glob {
                option,
                pattern,
                source,
            }
        };
        let mut set = GlobSetBuilder::new();
        let mut all = Vec::new();
        for pattern in patterns {
            // As in filters: `*` crosses dots and slashes, names are no paths.
            let glob = GlobBuilder::new(pattern).literal_separator(false).build();
            set.add(glob.map_err(refused(pattern))?);
            all.push(pattern);
        }
        Ok(Self(set.build().map_err(refused(&all.join(" ")))?))
    }

    /// Whether there is anything to list.
    pub(super) fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Whether one of the names is chosen.
    pub(super) fn matches<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> bool {
        self.any() && names.into_iter().any(|name| self.0.is_match(name))
    }
}
