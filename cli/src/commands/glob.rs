//! Choosing tensors by name.

use globset::{GlobBuilder, GlobMatcher};

use crate::Error;

/// A glob over tensor names; none chooses nothing.
pub(super) struct Chosen(Option<GlobMatcher>);

impl Chosen {
    pub(super) fn new(pattern: Option<&str>) -> Result<Self, Error> {
        let compile = |pattern: &str| {
            // As in filters: `*` crosses dots and slashes, names are no paths.
            GlobBuilder::new(pattern)
                .literal_separator(false)
                .build()
                .map_err(|source| Error::Glob {
                    option: "--tensors",
                    pattern: pattern.to_owned(),
                    source,
                })
        };
        Ok(Self(
            pattern
                .map(compile)
                .transpose()?
                .map(|glob| glob.compile_matcher()),
        ))
    }

    /// Whether there is anything to list.
    pub(super) fn any(&self) -> bool {
        self.0.is_some()
    }

    /// Whether one of the names is chosen.
    pub(super) fn matches<'a>(&self, mut names: impl Iterator<Item = &'a str>) -> bool {
        self.0
            .as_ref()
            .is_some_and(|glob| names.any(|name| glob.is_match(name)))
    }
}
