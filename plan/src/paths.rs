//! Names of tensors as paths of modules, and patterns over them.

use std::collections::BTreeSet;

use globset::{Glob, GlobSet, GlobSetBuilder};
use regex::{Regex, RegexSet};

use crate::Pattern;

/// Patterns of which the first that matches counts. All are matched at once: a plan may hold one rule
/// for each tensor.
pub(crate) struct Patterns {
    globs: GlobSet,
    regexes: RegexSet,
    /// The place in the list of each glob, and of each expression.
    glob_at: Vec<usize>,
    regex_at: Vec<usize>,
    texts: Vec<String>,
    used: Vec<bool>,
}

impl Patterns {
    /// Compiles globs; says which is none, and why.
    pub(crate) fn globs<'a>(texts: impl IntoIterator<Item = &'a String>) -> Result<Self, String> {
        let patterns: Vec<Pattern> = texts.into_iter().cloned().map(Pattern::Glob).collect();
        Self::new(&patterns)
    }

    /// Compiles patterns; says which is none, and why.
    pub(crate) fn new<'a>(patterns: impl IntoIterator<Item = &'a Pattern>) -> Result<Self, String> {
        let mut globs = GlobSetBuilder::new();
        let (mut expressions, mut glob_at, mut regex_at) = (Vec::new(), Vec::new(), Vec::new());
        let mut texts = Vec::new();
        for (at, pattern) in patterns.into_iter().enumerate() {
            match pattern {
                Pattern::Glob(text) => {
                    let glob =
                        Glob::new(text).map_err(|why| format!("glob `{text}`: {}", why.kind()))?;
                    globs.add(glob);
                    glob_at.push(at);
                }
                Pattern::Regex(text) => {
                    let whole = format!("^(?:{text})$");
                    Regex::new(&whole).map_err(|why| {
                        let why = why.to_string();
                        let last = why.lines().last().unwrap_or_default();
                        format!(
                            "expression `{text}`: {}",
                            last.trim_start_matches("error: ")
                        )
                    })?;
                    expressions.push(whole);
                    regex_at.push(at);
                }
            }
            texts.push(pattern.text().to_owned());
        }
        Ok(Self {
            globs: globs.build().map_err(|why| why.to_string())?,
            regexes: RegexSet::new(expressions).map_err(|why| why.to_string())?,
            glob_at,
            regex_at,
            used: vec![false; texts.len()],
            texts,
        })
    }

    /// The place of the first pattern that one of the names falls under. Marks all that match as used.
    pub(crate) fn find(&mut self, names: &[String]) -> Option<usize> {
        let mut first: Option<usize> = None;
        for name in names {
            let globs = self.globs.matches(name);
            let globs = globs.iter().filter_map(|&at| self.glob_at.get(at));
            let regexes = self.regexes.matches(name);
            let regexes = regexes.iter().filter_map(|at| self.regex_at.get(at));
            for &at in globs.chain(regexes) {
                if let Some(used) = self.used.get_mut(at) {
                    *used = true;
                }
                first = Some(first.map_or(at, |first| first.min(at)));
            }
        }
        first
    }

    /// Every pattern, and whether a name fell under it.
    pub(crate) fn used(&self) -> impl Iterator<Item = (&str, bool)> {
        let used = self.used.iter().copied();
        self.texts.iter().map(String::as_str).zip(used)
    }
}

/// The longest module path above `name` that a pattern matches; `*` stands for one part.
pub(crate) fn innermost<'n>(name: &'n str, patterns: &[String]) -> Option<&'n str> {
    above(name).find(|path| patterns.iter().any(|pattern| matches(pattern, path)))
}

/// The patterns, and whether a module above one of the names is one that it matches.
pub(crate) fn known_modules<'p, 'n>(
    patterns: &'p [String],
    names: impl Iterator<Item = &'n str>,
) -> impl Iterator<Item = (&'p str, bool)> {
    let paths: BTreeSet<&str> = names.flat_map(above).collect();
    patterns.iter().map(move |pattern| {
        let known = paths.iter().any(|path| matches(pattern, path));
        (pattern.as_str(), known)
    })
}

/// The module paths above a name, the longest first.
fn above(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(up(name), |path| up(path))
}

fn up(path: &str) -> Option<&str> {
    Some(path.rsplit_once('.')?.0)
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
        let names = ["blocks.3.attn.q.weight", "header.weight"];
        let known: Vec<_> = known_modules(&units, names.into_iter()).collect();
        assert_eq!(
            known,
            [("blocks.*", true), ("blocks.*.attn", true), ("head", false)]
        );
    }

    #[test]
    fn the_first_pattern_of_any_kind_counts() {
        let patterns = [
            Pattern::Regex(r"b\.\d".into()),
            Pattern::Glob("*.weight".into()),
            Pattern::Regex(r"[ab]\..*".into()),
            Pattern::Glob("c.*".into()),
        ];
        let mut patterns = Patterns::new(&patterns).unwrap();
        let mut find = |name: &str| patterns.find(&[name.to_owned()]);
        assert_eq!(find("a.weight"), Some(1));
        assert_eq!(find("a.bias"), Some(2));
        // An expression speaks of the whole name.
        assert_eq!(find("b.1"), Some(0));
        assert_eq!(find("b.12"), Some(2));
        assert_eq!(find("d"), None);
        let used: Vec<bool> = patterns.used().map(|(_, used)| used).collect();
        assert_eq!(used, [true, true, true, false]);
        assert!(Patterns::globs(&["[".to_owned()]).is_err());
        assert!(Patterns::new(&[Pattern::Regex("(".into())]).is_err());
    }
}
