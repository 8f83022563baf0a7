//! Text from a file as messages show it.

use std::fmt;

/// Most characters of a name from a file that a message repeats.
const NAME_SHOWN: usize = 200;

/// A name from a file as messages show it: quoted, control characters escaped, long ones cut.
pub(crate) struct Name<'a>(pub(crate) &'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", shown(self.0))
    }
}

/// Text from a file as messages show it: control characters escaped, long text cut.
pub(crate) fn shown(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().take(NAME_SHOWN) {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    if text.chars().nth(NAME_SHOWN).is_some() {
        out.push_str("...");
    }
    out
}

/// Names from a file, or that there are none.
pub(super) struct Names<'a>(pub(super) &'a [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            f.write_str("none")
        } else {
            f.write_str(&list(self.0))
        }
    }
}

/// The first names of a list, and how many more there are.
pub(crate) fn list(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<String> = names
        .iter()
        .take(SHOWN)
        .map(|name| Name(name).to_string())
        .collect();
    let mut text = shown.join(", ");
    if let Some(more @ 1..) = names.len().checked_sub(SHOWN) {
        text.push_str(&format!(" and {more} more"));
    }
    text
}
