//! `docs/format.md` against `spec`: every number of the page is one of the code.
//!
//! The rulers are drawn from the code. `UPDATE_FORMAT_PAGE=1 cargo test -p wpack-format --test page`
//! draws them again.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::PathBuf};

use wpack_format::{
    DType, Role, SliceKind,
    spec::{self, Field},
};

fn page_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/format.md")
}

fn page() -> String {
    fs::read_to_string(page_path()).unwrap()
}

/// Rows of the tables whose header row is `head`, each as its trimmed cells.
fn tables(page: &str, head: &[&str]) -> Vec<Vec<Vec<String>>> {
    let cells = |line: &str| -> Vec<String> {
        let line = line.trim().trim_start_matches('|').trim_end_matches('|');
        line.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let mut tables = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line.starts_with('|') && cells(line) == head {
            let rows = lines
                .by_ref()
                .skip(1)
                .take_while(|line| line.starts_with('|'));
            tables.push(rows.map(cells).collect());
        }
    }
    tables
}

fn code(cell: &str) -> &str {
    cell.trim_matches('`')
}

#[test]
fn every_constant_is_on_the_page() {
    let value = |name: &str| -> Option<String> {
        let magic = spec::MAGIC.map(|byte| format!("{byte:02x}")).join(" ");
        Some(match name {
            "MAGIC" => magic,
            "VERSION" => spec::VERSION.to_string(),
            "OLDEST_VERSION" => spec::OLDEST_VERSION.to_string(),
            "HEADER_LEN" => spec::HEADER_LEN.to_string(),
            "TABLE_ALIGN" => spec::TABLE_ALIGN.to_string(),
            "BLOCK_LEN" => spec::BLOCK_LEN.to_string(),
            "EXTENT_ALIGN_MIN" => spec::EXTENT_ALIGN_MIN.to_string(),
            "EXTENT_ALIGN_MAX" => spec::EXTENT_ALIGN_MAX.to_string(),
            "EXTENT_ALIGN" => spec::EXTENT_ALIGN.to_string(),
            "EXTENT_ALIGN_SMALL" => spec::EXTENT_ALIGN_SMALL.to_string(),
            "SMALL_PACK" => spec::SMALL_PACK.to_string(),
            "SLICE_PAGE" => spec::SLICE_PAGE.to_string(),
            "SLICE_ALIGN" => spec::SLICE_ALIGN.to_string(),
            "WORD_LEN" => spec::WORD_LEN.to_string(),
            "MAX_DIMS" => spec::MAX_DIMS.to_string(),
            "NONE" => spec::NONE.to_string(),
            "SAME_SOURCE" => spec::SAME_SOURCE.to_string(),
            "SAME_SHAPE" => spec::SAME_SHAPE.to_string(),
            "CONTENT_WHOLE" => spec::CONTENT_WHOLE.to_string(),
            "CONTENT_BOXES" => spec::CONTENT_BOXES.to_string(),
            "CONTENT_FLAT" => spec::CONTENT_FLAT.to_string(),
            "PART_DATA" => spec::PART_DATA.to_string(),
            "PART_FILL" => spec::PART_FILL.to_string(),
            _ => return None,
        })
    };
    let mut declared: Vec<&str> = include_str!("../src/spec.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("pub const ")?.split(':').next())
        .filter(|name| *name != "RECORDS")
        .collect();
    let table = tables(&page(), &["constant", "value", "meaning"]).concat();
    let mut listed: Vec<&str> = table.iter().map(|row| code(&row[0])).collect();
    for row in &table {
        let name = code(&row[0]);
        assert_eq!(value(name).as_deref(), Some(code(&row[1])), "{name}");
    }
    declared.sort_unstable();
    listed.sort_unstable();
    assert_eq!(declared, listed);
}

#[test]
fn every_field_is_on_the_page() {
    let tables = tables(&page(), &["at", "bytes", "field", "meaning"]);
    assert_eq!(tables.len(), spec::RECORDS.len());
    let declared = include_str!("../src/spec.rs")
        .matches("\nrecord! {")
        .count();
    assert_eq!(spec::RECORDS.len(), declared);
    for (table, (record, _, fields)) in tables.iter().zip(spec::RECORDS) {
        let listed: Vec<[String; 3]> = table
            .iter()
            .map(|row| [row[0].clone(), row[1].clone(), code(&row[2]).to_owned()])
            .collect();
        let expected: Vec<[String; 3]> = fields
            .iter()
            .map(|field| {
                [
                    field.at.to_string(),
                    field.len.to_string(),
                    field.name.to_owned(),
                ]
            })
            .collect();
        assert_eq!(listed, expected, "record {record}");
        for (row, field) in table.iter().zip(*fields) {
            let says = |word: &str| row[3].starts_with(word);
            assert_eq!(
                field.name.starts_with("RESERVED"),
                says("reserved"),
                "{record}"
            );
            assert_eq!(field.name.starts_with("UNUSED"), says("unused"), "{record}");
        }
    }
}

#[test]
fn every_code_is_on_the_page() {
    let page = page();
    let types = tables(&page, &["name", "code", "bits", "meaning"]).concat();
    let listed: Vec<_> = types
        .iter()
        .map(|row| (code(&row[0]).to_owned(), &*row[1], &*row[2]))
        .collect();
    let known: Vec<_> = DType::all()
        .map(|dtype| {
            (
                dtype.name().to_owned(),
                dtype.code().to_string(),
                dtype.bits().to_string(),
            )
        })
        .collect();
    let known: Vec<_> = known
        .iter()
        .map(|row| (row.0.clone(), &*row.1, &*row.2))
        .collect();
    assert_eq!(listed, known);

    let codes = |what: &str| -> BTreeMap<String, u8> {
        let rows = tables(&page, &[what, "code", "meaning"]).concat();
        rows.into_iter()
            .map(|row| (row[0].clone(), row[1].parse().unwrap()))
            .collect()
    };
    let roles = [
        ("parameter".into(), Role::Parameter as u8),
        ("buffer".into(), Role::Buffer as u8),
    ];
    assert_eq!(codes("role"), BTreeMap::from(roles));
    let kinds = [
        ("value".into(), SliceKind::Value as u8),
        ("master".into(), SliceKind::Master as u8),
    ];
    assert_eq!(codes("kind"), BTreeMap::from(kinds));
}

/// Prose names its numbers, so that none can differ from the tables. What is left is listed here.
#[test]
fn prose_names_its_numbers() {
    // Widths in bits, and the versions of the version table.
    let plain = ["8", "32", "64", "128", "1"];
    let mut in_block = false;
    for line in page().lines() {
        in_block ^= line.starts_with("```");
        if in_block || line.starts_with("```") || line.starts_with('|') || line.starts_with('#') {
            continue;
        }
        let mut text = line.to_owned();
        for known in [
            "CRC-32C",
            "SHA-256",
            "UTF-8",
            "RFC 2119",
            "RFC 8259",
            "U+0020",
            "section 2",
        ] {
            text = text.replace(known, "");
        }
        // Steps of a list.
        if let Some((step, rest)) = text.split_once(". ").filter(|(step, _)| step.len() == 1) {
            text = if step.parse::<u8>().is_ok() {
                rest.to_owned()
            } else {
                text
            };
        }
        let numbers = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for number in numbers.filter(|word| word.starts_with(|c: char| c.is_ascii_digit())) {
            assert!(plain.contains(&number), "{number} in: {line}");
        }
    }
}

const CELL: usize = 8;

fn border() -> String {
    format!("     +{}\n", format!("{}+", "-".repeat(CELL)).repeat(8))
}

/// A record drawn eight bytes wide.
fn ruler(fields: &[Field]) -> String {
    let head: String = (0..8).map(|i| format!("{i:^9}")).collect();
    let mut out = format!("      {}\n{}", head.trim_end(), border());
    let size = fields
        .iter()
        .map(|field| field.at + field.len)
        .max()
        .unwrap();
    let mut hidden = 0;
    for row in (0..size).step_by(8) {
        let cells: Vec<&Field> = fields
            .iter()
            .filter(|field| field.at < row + 8 && field.at + field.len > row)
            .collect();
        let inside = |field: &&Field| field.at < row && field.at + field.len > row + 8;
        if cells.len() == 1 && inside(&cells[0]) {
            hidden += 1;
            if hidden > 1 {
                continue;
            }
            writeln!(out, "     :{:width$}:", "", width = 9 * 8 - 1).unwrap();
            continue;
        }
        if hidden > 0 {
            out.push_str(&border());
        }
        hidden = 0;
        write!(out, "{row:4} |").unwrap();
        for field in cells {
            let (from, to) = (field.at.max(row), (field.at + field.len).min(row + 8));
            let width = 9 * (to - from) - 1;
            let text = if field.at >= row { field.name } else { "" };
            assert!(text.len() < width, "{text} is too long for its cell");
            write!(out, " {text:<rest$}|", rest = width - 1).unwrap();
        }
        out.push('\n');
        let end = (size - row).min(8);
        let goes_on = fields
            .iter()
            .any(|field| field.at < row + 8 && field.at + field.len > row + 16);
        if !goes_on || row + 8 >= size {
            writeln!(
                out,
                "     +{}",
                format!("{}+", "-".repeat(CELL)).repeat(end)
            )
            .unwrap();
        }
    }
    out
}

#[test]
fn rulers_are_drawn_from_the_code() {
    let page = page();
    let mut fresh = page.clone();
    for (record, _, fields) in spec::RECORDS {
        let start = format!("```ruler {record}\n");
        let (before, rest) = fresh
            .split_once(&start)
            .unwrap_or_else(|| panic!("no {record}"));
        let (_, after) = rest.split_once("```\n").unwrap();
        fresh = format!("{before}{start}{}```\n{after}", ruler(fields));
    }
    if std::env::var_os("UPDATE_FORMAT_PAGE").is_some() {
        fs::write(page_path(), &fresh).unwrap();
    } else {
        assert!(
            page == fresh,
            "stale rulers: run this test with UPDATE_FORMAT_PAGE=1"
        );
    }
}
