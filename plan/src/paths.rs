//! Names of tensors as paths of modules, and patterns over them.

use std::collections::{BTreeSet, HashSet};

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

/// Paths of modules; `*` stands for one part. A plan may name each of very many modules in full.
pub(crate) struct Modules<'p> {
    full: HashSet<&'p str>,
    starred: Vec<&'p str>,
}

impl<'p> Modules<'p> {
    pub(crate) fn new(patterns: &'p [String]) -> Self {
        let patterns = patterns.iter().map(String::as_str);
        let (starred, full): (Vec<_>, Vec<_>) = patterns.partition(|text| text.contains('*'));
        Self {
            full: full.into_iter().collect(),
            starred,
        }
    }

    fn has(&self, path: &str) -> bool {
        self.full.contains(path) || self.starred.iter().any(|pattern| matches(pattern, path))
    }

    /// The longest module path above `name` that is one of these.
    pub(crate) fn innermost<'n>(&self, name: &'n str) -> Option<&'n str> {
        above(name).find(|path| self.has(path))
    }

    /// The patterns, and whether a module above one of the names is one that it matches.
    pub(crate) fn known<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
    ) -> impl Iterator<Item = (&'p str, bool)> {
        let paths: BTreeSet<&str> = names.flat_map(above).collect();
        let full = self.full.iter().map(|path| (*path, paths.contains(path)));
        let starred = self.starred.iter().map(|pattern| {
            let known = paths.iter().any(|path| matches(pattern, path));
            (*pattern, known)
        });
        full.chain(starred).collect::<Vec<_>>().into_iter()
    }
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
        let modules = Modules::new(&units);
        let innermost = |name| modules.innermost(name);
        assert_eq!(innermost("blocks.3.attn.q.weight"), Some("blocks.3.attn"));
        assert_eq!(innermost("blocks.3.ffn.0.weight"), Some("blocks.3"));
        assert_eq!(innermost("head.weight"), Some("head"));
        assert_eq!(innermost("header.weight"), None);
        assert_eq!(innermost("blocks.weight"), None);
        assert_eq!(innermost("weight"), None);
        let names = ["blocks.3.attn.q.weight", "header.weight"];
        let mut known: Vec<_> = modules.known(names.into_iter()).collect();
        known.sort_unstable();
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
