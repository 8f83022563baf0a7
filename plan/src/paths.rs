//! Names of tensors as paths of modules, and globs over them.

use globset::{Glob, GlobMatcher};

/// Globs of which the first that matches counts.
pub(crate) struct Globs(Vec<GlobMatcher>);

impl Globs {
    /// Compiles globs; gives the one that is none, and why.
    pub(crate) fn new<'a>(texts: impl IntoIterator<Item = &'a String>) -> Result<Self, String> {
        texts
            .into_iter()
            .map(|text| match Glob::new(text) {
                Ok(glob) => Ok(glob.compile_matcher()),
                Err(why) => Err(format!("glob `{text}`: {}", why.kind())),
            })
            .collect::<Result<Vec<_>, _>>()
            .map(Self)
    }

    /// The index of the first glob that one of the names falls under.
    pub(crate) fn find(&self, names: &[String]) -> Option<usize> {
        self.0
            .iter()
            .position(|glob| names.iter().any(|name| glob.is_match(name)))
    }
}

/// The longest module path above `name` that a pattern matches; `*` stands for one part.
pub(crate) fn innermost<'n>(name: &'n str, patterns: &[String]) -> Option<&'n str> {
    let mut path = name;
    while let Some((above, _)) = path.rsplit_once('.') {
        if patterns.iter().any(|pattern| matches(pattern, above)) {
            return Some(above);
        }
        path = above;
    }
    None
}

fn matches(pattern: &str, path: &str) -> bool {
    let mut parts = path.split('.');
    pattern.split('.').all(|wanted| {
        parts
            .next()
            .is_some_and(|part| wanted == "*" || wanted == part)
    }) && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn innermost_unit() {
        let units = [
            "blocks.*".to_owned(),
            "blocks.*.attn".to_owned(),
            "head".to_owned(),
        ];
        assert_eq!(
            innermost("blocks.3.attn.q.weight", &units),
            Some("blocks.3.attn")
        );
        assert_eq!(innermost("blocks.3.ffn.0.weight", &units), Some("blocks.3"));
        assert_eq!(innermost("head.weight", &units), Some("head"));
        assert_eq!(innermost("header.weight", &units), None);
        assert_eq!(innermost("blocks.weight", &units), None);
        assert_eq!(innermost("weight", &units), None);
    }
}
