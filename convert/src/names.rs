//! Which tensors are taken, and what they are called in the pack.

use std::collections::BTreeMap;

use globset::{Glob, GlobMatcher};
use regex::Regex;
use wpack_format::TensorName;

use crate::{Error, TransformOptions};

/// Names to show when a pattern matched none of them.
const EXAMPLES: usize = 5;

/// Which patterns have matched a tensor of some component, over all of them.
#[derive(Debug, Default)]
pub(crate) struct Used {
    patterns: BTreeMap<(&'static str, String), bool>,
}

impl Used {
    pub(crate) fn note(&mut self, option: &'static str, pattern: &str, matched: bool) {
        match self.patterns.get_mut(&(option, pattern.to_owned())) {
            Some(used) => *used |= matched,
            None => {
                self.patterns.insert((option, pattern.to_owned()), matched);
            }
        }
    }

    /// A pattern that nothing fell under is an error: as a rule its name is misspelt.
    pub(crate) fn check(&self, components: &[wpack_checkpoint::Component]) -> Result<(), Error> {
        let Some(((option, pattern), _)) = self.patterns.iter().find(|(_, used)| !**used) else {
            return Ok(());
        };
        let list = components
            .iter()
            .map(|component| format!("`{}`", component.name));
        let names = components.iter().flat_map(|component| &component.tensors);
        Err(Error::PatternUnused {
            option,
            pattern: pattern.clone(),
            of: list.collect::<Vec<_>>().join(", "),
            names: names
                .flat_map(|tensor| tensor.names.first())
                .take(EXAMPLES)
                .cloned()
                .collect(),
        })
    }
}

/// A compiled filter and renaming; `matched` counts along while it is used.
#[derive(Debug)]
pub(crate) struct Renamer {
    include: Vec<Counted<GlobMatcher>>,
    exclude: Vec<Counted<GlobMatcher>>,
    strip: Vec<Counted<String>>,
    add: String,
    rename: Vec<(Counted<Regex>, String)>,
}

#[derive(Debug)]
struct Counted<P> {
    text: String,
    pattern: P,
    matched: bool,
}

impl<P> Counted<P> {
    fn new(text: &str, pattern: P) -> Self {
        Self {
            text: text.to_owned(),
            pattern,
            matched: false,
        }
    }
}

impl Renamer {
    pub(crate) fn new(options: &TransformOptions) -> Result<Self, Error> {
        Ok(Self {
            include: globs("--include", &options.include)?,
            exclude: globs("--exclude", &options.exclude)?,
            strip: options
                .strip_prefix
                .iter()
                .map(|prefix| Counted::new(prefix, prefix.clone()))
                .collect(),
            add: options.add_prefix.clone().unwrap_or_default(),
            rename: options
                .rename
                .iter()
                .map(|(from, to)| match Regex::new(from) {
                    Ok(regex) => Ok((Counted::new(from, regex), to.clone())),
                    Err(error) => Err(bad_pattern("--rename", from, &error.to_string())),
                })
                .collect::<Result<_, _>>()?,
        })
    }

    /// The name in the pack, if the tensor is taken under this one.
    fn name(&mut self, source: &str) -> Option<String> {
        let included = any_match(&mut self.include, source);
        if any_match(&mut self.exclude, source) || !(included || self.include.is_empty()) {
            return None;
        }
        let mut rest = source;
        for prefix in &mut self.strip {
            if let Some(stripped) = source.strip_prefix(prefix.pattern.as_str()) {
                prefix.matched = true;
                rest = stripped;
                break;
            }
        }
        let mut name = format!("{}{rest}", self.add);
        for (regex, replacement) in &mut self.rename {
            if regex.pattern.is_match(&name) {
                regex.matched = true;
                name = regex
                    .pattern
                    .replace_all(&name, replacement.as_str())
                    .into_owned();
            }
        }
        Some(name)
    }

    /// The names in the pack of a tensor, its ties among them; none if it is not taken.
    pub(crate) fn names(
        &mut self,
        component: &str,
        sources: &[String],
    ) -> Result<Vec<TensorName>, Error> {
        let mut names: Vec<TensorName> = Vec::new();
        for source in sources {
            let Some(name) = self.name(source) else {
                continue;
            };
            if name.is_empty() {
                return Err(Error::EmptyName {
                    component: component.to_owned(),
                    source_name: source.clone(),
                });
            }
            // Two ties that become one name are one name.
            if !names.iter().any(|known| known.name == name) {
                names.push(TensorName {
                    name,
                    source: source.clone(),
                });
            }
        }
        Ok(names)
    }

    /// Adds what has matched to the sum over all components.
    pub(crate) fn report(&self, used: &mut Used) {
        for glob in &self.include {
            used.note("--include", &glob.text, glob.matched);
        }
        for glob in &self.exclude {
            used.note("--exclude", &glob.text, glob.matched);
        }
        for prefix in &self.strip {
            used.note("--strip-prefix", &prefix.text, prefix.matched);
        }
        for (regex, _) in &self.rename {
            used.note("--rename", &regex.text, regex.matched);
        }
    }
}

/// Asks every glob, so that each one's use is seen.
fn any_match(globs: &mut [Counted<GlobMatcher>], name: &str) -> bool {
    let mut any = false;
    for glob in globs {
        let matched = glob.pattern.is_match(name);
        glob.matched |= matched;
        any |= matched;
    }
    any
}

fn globs(option: &'static str, texts: &[String]) -> Result<Vec<Counted<GlobMatcher>>, Error> {
    let compile = |text: &String| match Glob::new(text) {
        Ok(glob) => Ok(Counted::new(text, glob.compile_matcher())),
        Err(error) => Err(bad_pattern(option, text, &error.kind().to_string())),
    };
    texts.iter().map(compile).collect()
}

fn bad_pattern(option: &'static str, pattern: &str, why: &str) -> Error {
    Error::Pattern {
        option,
        pattern: pattern.to_owned(),
        why: last_line(why),
    }
}

/// The regex crate draws the place of a fault over several lines; the last one says what it is.
pub(crate) fn last_line(why: &str) -> String {
    let why = why.lines().last().unwrap_or(why).trim();
    why.strip_prefix("error: ").unwrap_or(why).to_owned()
}
