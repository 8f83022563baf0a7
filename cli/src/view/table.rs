//! Columns.

use std::fmt::Write as _;

use crate::human::grouped;

/// Which side of a column its cells stand at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// Rows of cells, written with two spaces in front and between.
#[derive(Debug)]
pub(super) struct Table {
    heads: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
    more: usize,
}

impl Table {
    pub(super) fn new(heads: &[(&str, Align)]) -> Self {
        let heads = heads
            .iter()
            .map(|(head, align)| ((*head).to_owned(), *align))
            .collect();
        Self {
            heads,
            rows: Vec::new(),
            more: 0,
        }
    }

    pub(super) fn column(&mut self, head: &str, align: Align) {
        self.heads.push((head.to_owned(), align));
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Says that of `all` rows only `shown` are here.
    pub(super) fn rest(&mut self, all: usize, shown: usize) {
        self.more = all.saturating_sub(shown);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn write(&self, out: &mut String) {
        let heads: Vec<String> = self.heads.iter().map(|(head, _)| head.clone()).collect();
        let with_heads = heads.iter().any(|head| !head.is_empty());
        let lines: Vec<&Vec<String>> = with_heads
            .then_some(&heads)
            .into_iter()
            .chain(&self.rows)
            .collect();
        let widths: Vec<usize> = (0..self.heads.len())
            .map(|column| {
                let widths = lines
                    .iter()
                    .filter_map(|line| Some(line.get(column)?.chars().count()));
                widths.max().unwrap_or(0)
            })
            .collect();
        for line in lines {
            let mut text = String::new();
            for ((cell, (_, align)), width) in line.iter().zip(&self.heads).zip(&widths) {
                text.push_str("  ");
                let _ = match align {
                    Align::Left => write!(text, "{cell:<width$}"),
                    Align::Right => write!(text, "{cell:>width$}"),
                };
            }
            out.push_str(text.trim_end());
            out.push('\n');
        }
        if self.more > 0 {
            let _ = writeln!(
                out,
                "  ... and {} more; --json lists all",
                grouped(self.more as u64)
            );
        }
    }
}
