//! Casts are what torch makes of the same bits: `tests/cast/oracle.py` says what that is.

use std::{collections::BTreeMap, path::Path, process::Command};

use wpack_convert::cast::{convert_elements, is_supported, is_target};
use wpack_format::DType;

const TABLE: &str = include_str!("../cast/table.txt");

fn dtype(name: &str) -> DType {
    DType::from_name(name).unwrap_or_else(|| panic!("{name} is no dtype"))
}

/// Little-endian bytes of bits written as a number.
fn bytes_of(bits: &str) -> Vec<u8> {
    let digits: Vec<_> = bits
        .as_bytes()
        .chunks(2)
        .map(|two| str::from_utf8(two).unwrap())
        .collect();
    digits
        .iter()
        .rev()
        .map(|two| u8::from_str_radix(two, 16).unwrap())
        .collect()
}

#[test]
fn the_committed_table_is_met() {
    let mut targets = Vec::new();
    let mut pairs = 0;
    for line in TABLE.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        match words.as_slice() {
            ["#", names @ ..] if names.iter().all(|name| DType::from_name(name).is_some()) => {
                targets = names.to_vec();
            }
            ["#", ..] => {}
            [from, bits, results @ ..] => {
                assert_eq!(results.len(), targets.len(), "{line}");
                for (to, result) in targets.iter().zip(results) {
                    let expected = bytes_of(result);
                    let mut found = vec![0; expected.len()];
                    convert_elements(dtype(from), dtype(to), &bytes_of(bits), &mut found).unwrap();
                    assert_eq!(found, expected, "{from} {bits} to {to}");
                    pairs += 1;
                }
            }
            _ => panic!("{line}"),
        }
    }
    assert!(pairs > 5000, "only {pairs} pairs read");
}

#[test]
fn every_supported_pair_is_in_the_table() {
    for from in DType::all() {
        for to in DType::all().filter(|to| *to != from && is_supported(from, *to)) {
            assert!(is_target(to));
            let prefix = format!("{from} ");
            assert!(
                TABLE.lines().any(|line| line.starts_with(&prefix)),
                "{from} to {to}"
            );
            assert!(
                TABLE
                    .lines()
                    .nth(1)
                    .unwrap()
                    .split(' ')
                    .any(|name| dtype_is(name, to))
            );
        }
    }
}

fn dtype_is(name: &str, dtype: DType) -> bool {
    DType::from_name(name) == Some(dtype)
}

/// True for the bits of a NaN of a type.
fn is_nan(dtype: DType, element: &[u8]) -> bool {
    let mut wide = [0; 8];
    convert_elements(dtype, DType::F64, element, &mut wide).unwrap();
    f64::from_le_bytes(wide).is_nan()
}

/// All of the oracle's values, by pair of types; `portable` asks torch's code without vectors.
fn run_oracle(python: &str, folder: &Path, portable: bool) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/cast/oracle.py");
    let mut command = Command::new(python);
    command.arg(script).arg("full").arg(folder);
    if portable {
        command.env("ATEN_CPU_CAPABILITY", "default");
    } else {
        command.env_remove("ATEN_CPU_CAPABILITY");
    }
    let output = command.output().expect("the interpreter runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Every value of the types of 8 and 16 bits and the hard values of the wider ones, against torch.
///
/// Where torch's vector code and its portable code give the same bits, they must be ours. They differ in
/// NaN payloads alone; there ours are those of the vector code of AVX2 and AVX-512, and on other
/// processors, where that cannot be asked, any NaN will do.
#[test]
fn torch_makes_the_same_of_every_value() {
    let Ok(python) = std::env::var("WPACK_TEST_PYTHON") else {
        let required = std::env::var("WPACK_REQUIRE_FRAMEWORKS").is_ok_and(|value| value == "1");
        assert!(
            !required,
            "WPACK_TEST_PYTHON names no interpreter with torch"
        );
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (vector, portable) = (folder.path().join("vector"), folder.path().join("portable"));
    let code = run_oracle(&python, &vector, false);
    run_oracle(&python, &portable, true);
    let exact = code.contains("AVX2") || code.contains("AVX512");
    let read = |path: &Path| std::fs::read(path).unwrap();
    let mut checked: BTreeMap<(DType, DType), usize> = BTreeMap::new();
    for from in DType::all() {
        for to in DType::all().filter(|to| is_target(*to) && is_supported(from, *to)) {
            let source = read(&vector.join(format!("{from}.src")));
            assert!(source == read(&portable.join(format!("{from}.src"))));
            let file = format!("{from}.{to}");
            let (ours_is, other) = (read(&vector.join(&file)), read(&portable.join(&file)));
            let mut found = vec![0; ours_is.len()];
            convert_elements(from, to, &source, &mut found).unwrap();
            let width = usize::try_from(to.bits() / 8).unwrap();
            let from_width = usize::try_from(from.bits() / 8).unwrap();
            let elements = source.len() / from_width;
            assert!(elements > 1);
            for at in 0..elements {
                let range = at * width..(at + 1) * width;
                let (ours, a, b) = (
                    &found[range.clone()],
                    &ours_is[range.clone()],
                    &other[range],
                );
                let value = || {
                    format!(
                        "{from} {:02x?} to {to}",
                        &source[at * from_width..][..from_width]
                    )
                };
                if a == b {
                    assert_eq!(ours, a, "{}", value());
                    continue;
                }
                assert!(
                    is_nan(to, a) && is_nan(to, b),
                    "torch differs: {} {a:02x?} {b:02x?}",
                    value()
                );
                if exact {
                    assert_eq!(ours, a, "{}", value());
                }
                assert!(is_nan(to, ours), "{}", value());
            }
            checked.insert((from, to), elements);
        }
    }
    assert_eq!(checked.len(), 18 * 9);
    for ((from, _), elements) in checked {
        if from.bits() == 16 {
            assert_eq!(elements, 65_536);
        }
    }
}
