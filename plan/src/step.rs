//! Steps of a rule file: `tp: Shard(0, even)`, `pp: Owned(0, 1)`, `dp*sp: FlatShard`, `tp: colwise`.

use std::fmt;
use std::str::FromStr;

use crate::layouts::Style;
use crate::rule_text::Cursor;
use crate::{Rule, TensorSpec};

/// One step of placing the tensors of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Names of the axes that are cut as one, the last varies fastest.
    pub axes: Vec<String>,
    /// What happens over them.
    pub what: StepKind,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepKind {
    /// A dimension is cut.
    Shard {
        /// The dimension.
        dim: u32,
        /// How.
        rule: Rule,
    },
    /// A dimension is cut as a tensor parallel style says.
    Style(Style),
    /// The flattened tensor is cut into parts of `ceil(n / ranks)`, the tail filled with zeros.
    FlatShard,
    /// Some coordinates hold all, the others nothing.
    Owned(Vec<u64>),
}

/// The steps of a rule: none where every rank holds the whole tensor.
pub(crate) fn steps(texts: &[String]) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    for text in texts {
        if text.trim() != "Replicate" {
            steps.push(text.parse()?);
        } else if texts.len() > 1 {
            return Err("`Replicate` stands alone: a step that names no axis does nothing".into());
        }
    }
    Ok(steps)
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut cursor = Cursor::new(text);
        let mut axes = vec![cursor.word()?.to_owned()];
        while cursor.take('*') {
            axes.push(cursor.word()?.to_owned());
        }
        cursor.expect(':')?;
        let what = match Style::from_name(cursor.rest().trim_end()) {
            Some(style) => StepKind::Style(style),
            None => kind(&mut cursor, text)?,
        };
        Ok(Self { axes, what })
    }
}

fn kind(cursor: &mut Cursor<'_>, text: &str) -> Result<StepKind, String> {
    let kind = match cursor.word()? {
        "Shard" => {
            cursor.expect('(')?;
            let dim = u32::try_from(cursor.number()?)
                .map_err(|_| format!("`{text}`: there is no such dimension"))?;
            cursor.expect(',')?;
            let rule = cursor.rule(0)?;
            cursor.expect(')')?;
            StepKind::Shard { dim, rule }
        }
        "FlatShard" => {
            // As a plan prints it, with the fill.
            if cursor.take('(') {
                let (word, zero) = (cursor.word()?, cursor.number()?);
                if (word, zero) != ("fill", 0) {
                    return Err(format!("`{text}`: a step of a rule is filled with 0"));
                }
                cursor.expect(')')?;
            }
            StepKind::FlatShard
        }
        "Owned" => {
            cursor.expect('(')?;
            let mut at = cursor.list(')', Cursor::number)?;
            at.sort_unstable();
            at.dedup();
            StepKind::Owned(at)
        }
        other => {
            return Err(format!(
                "`{text}`: `{other}` is neither Shard, FlatShard, Owned, nor a style"
            ));
        }
    };
    cursor.end()?;
    Ok(kind)
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.axes.join("*"))?;
        match &self.what {
            StepKind::Shard { dim, rule } => write!(f, "Shard({dim}, {rule})"),
            StepKind::Style(style) => f.write_str(style.name()),
            StepKind::FlatShard => f.write_str("FlatShard(fill 0)"),
            StepKind::Owned(at) => {
                let at: Vec<String> = at.iter().map(u64::to_string).collect();
                write!(f, "Owned({})", at.join(", "))
            }
        }
    }
}

impl Step {
    /// The dimension and rule that it cuts a tensor by; none where it cuts none.
    pub(crate) fn cut(&self, tensor: &TensorSpec) -> Option<(u32, Rule)> {
        match &self.what {
            StepKind::Shard { dim, rule } => Some((*dim, rule.clone())),
            StepKind::Style(style) => style.cut(tensor),
            StepKind::FlatShard | StepKind::Owned(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_as_they_are_printed() {
        for text in [
            "tp: Shard(0, even)",
            "tp: Shard(1, blocks(8: even, 4: kv_replicated(2, 2), 4: kv_replicated(2, 2)))",
            "dp*sp: FlatShard(fill 0)",
            "pp: Owned(0, 3)",
            "ep: grouped_gemm",
            "tp: rowwise",
        ] {
            let step: Step = text.parse().unwrap();
            assert_eq!(step.to_string(), text);
        }
        let short: Step = " dp : FlatShard ".parse().unwrap();
        assert_eq!(short.to_string(), "dp: FlatShard(fill 0)");
        let sorted: Step = "pp: Owned(3, 0, 3)".parse().unwrap();
        assert_eq!(sorted.to_string(), "pp: Owned(0, 3)");
        assert_eq!(steps(&["Replicate".into()]), Ok(vec![]));
    }

    #[test]
    fn faults_are_said() {
        for text in [
            "tp",
            "tp:",
            ": even",
            "tp: even",
            "tp: Shard(0)",
            "tp: Shard(0, even",
            "tp: Shard(9999999999, even)",
            "tp: FlatShard(fill 42)",
            "tp: Owned()",
            "tp*: Owned(0)",
            "tp: colwize",
            "tp: Shard(0, even) x",
            "Replicate",
        ] {
            assert!(text.parse::<Step>().is_err(), "{text}");
        }
        let two = ["Replicate".to_owned(), "tp: Shard(0, even)".to_owned()];
        assert!(steps(&two).is_err());
    }
}
