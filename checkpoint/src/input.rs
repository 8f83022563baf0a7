//! What the command line says an input is.

use std::fmt;

use crate::Input;

impl Input {
    /// Reads `component=path` or a bare path.
    ///
    /// What stands before the first `=` is a component if it consists of letters, digits, `_`, `-`
    /// and `.` only; a path that looks so can be given as `./a=b`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text.split_once('=') {
            Some((name, path)) if is_component_name(name) && !path.is_empty() => Self {
                component: Some(name.to_owned()),
                path: path.to_owned(),
            },
            _ => Self {
                component: None,
                path: text.to_owned(),
            },
        }
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(component) = &self.component {
            write!(f, "{component}=")?;
        }
        f.write_str(&self.path)
    }
}

/// A name that needs no quoting on a command line and starts no option.
pub(crate) fn is_component_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') && name.chars().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_is_told_from_a_path() {
        let parse = |text: &str| {
            let input = Input::parse(text);
            (input.component, input.path)
        };
        let named = |name: &str, path: &str| (Some(name.to_owned()), path.to_owned());
        let bare = |path: &str| (None, path.to_owned());
        assert_eq!(parse("vae=a/b.pth"), named("vae", "a/b.pth"));
        assert_eq!(parse("dit.2=a=b"), named("dit.2", "a=b"));
        assert_eq!(parse("./a=b"), bare("./a=b"));
        assert_eq!(parse("dir/a=b"), bare("dir/a=b"));
        assert_eq!(parse("=b"), bare("=b"));
        assert_eq!(parse("a="), bare("a="));
        assert_eq!(parse("model.safetensors"), bare("model.safetensors"));
    }
}
