//! The texts of rules and back: what a plan prints, a plan file can say.

use std::str::FromStr;

use crate::Rule;

/// Most rules within rules; fused weights need one level.
const MAX_DEPTH: usize = 8;

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut cursor = Cursor::new(text);
        let rule = cursor.rule(0)?;
        cursor.end()?;
        Ok(rule)
    }
}

/// Reads a text from left to right; blanks count nothing.
pub(crate) struct Cursor<'t> {
    whole: &'t str,
    rest: &'t str,
}

impl<'t> Cursor<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self {
            whole: text,
            rest: text.trim_start(),
        }
    }

    fn fail<T>(&self, wanted: &str) -> Result<T, String> {
        let found = match self.rest.chars().next() {
            Some(_) => format!("`{}`", self.rest.trim_end()),
            None => "the end".to_owned(),
        };
        Err(format!(
            "`{}`: {wanted} expected, {found} found",
            self.whole
        ))
    }

    /// Takes `mark` if it stands here.
    pub(crate) fn take(&mut self, mark: char) -> bool {
        match self.rest.strip_prefix(mark) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    /// Takes `mark`, which must stand here.
    pub(crate) fn expect(&mut self, mark: char) -> Result<(), String> {
        if self.take(mark) {
            Ok(())
        } else {
            self.fail(&format!("`{mark}`"))
        }
    }

    /// Takes letters, digits and `_`.
    pub(crate) fn word(&mut self) -> Result<&'t str, String> {
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        if word.is_empty() {
            return self.fail("a word");
        }
        self.rest = rest.trim_start();
        Ok(word)
    }

    pub(crate) fn number(&mut self) -> Result<u64, String> {
        let before = self.rest;
        let number = self.word().ok().and_then(|word| word.parse().ok());
        match number {
            Some(number) => Ok(number),
            None => {
                self.rest = before;
                self.fail("a number")
            }
        }
    }

    /// Nothing may be left.
    pub(crate) fn end(&self) -> Result<(), String> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            self.fail("the end")
        }
    }

    /// `each`, once or several times with commas between, up to `close`.
    pub(crate) fn list<T>(
        &mut self,
        close: char,
        mut each: impl FnMut(&mut Self) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let mut items = vec![each(self)?];
        while self.take(',') {
            items.push(each(self)?);
        }
        self.expect(close)?;
        Ok(items)
    }

    /// The rest of the text.
    pub(crate) fn rest(&self) -> &'t str {
        self.rest
    }

    pub(crate) fn rule(&mut self, depth: usize) -> Result<Rule, String> {
        if depth > MAX_DEPTH {
            return Err(format!("`{}`: rules within rules too deep", self.whole));
        }
        let before = self.rest;
        Ok(match self.word()? {
            "chunk" => Rule::Chunk,
            "even" => Rule::Even,
            "balanced" => Rule::Balanced,
            "strided" => {
                self.expect('(')?;
                let factor = self.number()?;
                self.expect(')')?;
                Rule::Strided(factor)
            }
            "blocks" => {
                self.expect('(')?;
                Rule::Blocks(self.list(')', |cursor| {
                    let size = cursor.number()?;
                    cursor.expect(':')?;
                    Ok((size, cursor.rule(depth + 1)?))
                })?)
            }
            "kv_replicated" => {
                self.expect('(')?;
                let heads = self.number()?;
                self.expect(',')?;
                let head_dim = self.number()?;
                self.expect(')')?;
                Rule::KvReplicated { heads, head_dim }
            }
            "explicit" => {
                self.expect('[')?;
                Rule::Explicit(self.list(']', Self::number)?)
            }
            _ => {
                self.rest = before;
                return self.fail(
                    "chunk, even, balanced, strided(f), blocks(size: rule, ...), \
                     kv_replicated(heads, head_dim) or explicit[bounds]",
                );
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule() -> impl Strategy<Value = Rule> {
        let leaf = prop_oneof![
            Just(Rule::Chunk),
            Just(Rule::Even),
            Just(Rule::Balanced),
            any::<u64>().prop_map(Rule::Strided),
            (any::<u64>(), any::<u64>())
                .prop_map(|(heads, head_dim)| Rule::KvReplicated { heads, head_dim }),
            proptest::collection::vec(any::<u64>(), 1..5).prop_map(Rule::Explicit),
        ];
        leaf.prop_recursive(3, 8, 3, |inner| {
            proptest::collection::vec((any::<u64>(), inner), 1..4).prop_map(Rule::Blocks)
        })
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read(rule in rule()) {
            prop_assert_eq!(rule.to_string().parse::<Rule>(), Ok(rule));
        }
    }

    #[test]
    fn faults_say_what_is_wrong() {
        let texts = [
            "",
            "chunks",
            "strided",
            "strided(",
            "strided(x)",
            "strided(2",
            "blocks()",
            "blocks(2 even)",
            "blocks(2: even",
            "explicit[]",
            "explicit[0, 1",
            "even even",
            "kv_replicated(2)",
        ];
        for text in texts {
            let why = text.parse::<Rule>().unwrap_err();
            assert!(why.contains("expected"), "{text}: {why}");
        }
        let deep = "blocks(1: ".repeat(20) + "even" + &")".repeat(20);
        assert!(deep.parse::<Rule>().unwrap_err().contains("deep"));
    }
}
