//! Every JSON report is what `docs/report.schema.json` says, those of every golden pack too.

use jsonschema::Validator;
use serde_json::{Value, json};

use crate::support::{Desk, root};

fn schema() -> Value {
    let text = std::fs::read_to_string(root().join("docs/report.schema.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A validator of one of the schema's definitions: its errors say more than those of all together.
fn validator(definition: &str) -> Validator {
    let mut schema = schema();
    assert!(schema["$defs"][definition].is_object(), "{definition}");
    let whole = schema.as_object_mut().unwrap();
    whole.remove("oneOf");
    whole.insert("$ref".to_owned(), json!(format!("#/$defs/{definition}")));
    jsonschema::validator_for(&schema).unwrap()
}

#[track_caller]
fn check(definition: &str, report: &Value) {
    let errors: Vec<_> = validator(definition)
        .iter_errors(report)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{definition}: {errors:#?}\n{report:#}");
    let whole = jsonschema::validator_for(&schema()).unwrap();
    assert!(
        whole.is_valid(report),
        "{definition} is not the only kind of report that fits"
    );
}

#[test]
fn reports_of_every_command() {
    let desk = Desk::with_model();
    let convert = "model.safetensors --ranks 4 --layout zero3 --rename blocks=layers --json";
    check("plan", &desk.json(&format!("plan {convert} --tensors")));
    check("plan", &desk.json(&format!("convert {convert} --dry-run")));
    check(
        "convert",
        &desk.json(&format!("convert {convert} -o m.wpack --hash-sources")),
    );
    check(
        "inspect-pack",
        &desk.json("inspect m.wpack --json --tensors"),
    );
    check(
        "inspect-pack",
        &desk.json("inspect m.wpack --json --rank 1 --tensors"),
    );
    check(
        "inspect-checkpoint",
        &desk.json("inspect model.safetensors --json --tensors"),
    );
    check(
        "verify",
        &desk.json("verify m.wpack --json --against model.safetensors"),
    );
    check("export", &desk.json("export m.wpack -o out --json"));
    check(
        "inspect-pack",
        &desk.json("inspect m.wpack --json --processes 4 --trainable *"),
    );
    check(
        "inspect-checkpoint",
        &desk.json("inspect model.safetensors --json --processes 4"),
    );
    check(
        "plan",
        &desk.json(&format!("plan {convert} --processes 4 --host-memory 1G")),
    );
    check(
        "register",
        &desk.json("register m.wpack --model-id A/B --json"),
    );
    check("error", &desk.json("inspect missing --json"));
    check("error", &desk.json("inspect --json"));
    let mut bytes = desk.read("m.wpack");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    desk.write("m.wpack", &bytes);
    check("verify", &desk.json("verify m.wpack --json"));
    bytes[50] ^= 1;
    desk.write("m.wpack", &bytes);
    check("error", &desk.json("verify m.wpack --json"));
}

#[test]
fn reports_of_every_golden_pack() {
    let desk = Desk::new();
    let golden = root().join("fixtures/golden");
    let packs = wpack_tests::files(&golden).into_iter();
    let packs: Vec<_> = packs
        .filter(|path| path.extension().is_some_and(|e| e == "wpack"))
        .collect();
    assert!(!packs.is_empty(), "no golden packs");
    for pack in packs {
        let pack = pack.to_str().unwrap();
        let report = desk.json(&format!("inspect {pack} --json --tensors"));
        check("inspect-pack", &report);
        check(
            "inspect-pack",
            &desk.json(&format!("inspect {pack} --json --rank 0 --tensors")),
        );
        check("verify", &desk.json(&format!("verify {pack} --json")));
    }
}

#[test]
fn a_report_that_does_not_fit_is_noticed() {
    let desk = Desk::with_model();
    desk.done("convert model.safetensors -o m.wpack");
    let report = desk.json("inspect m.wpack --json");
    let validator = validator("inspect-pack");
    for (field, value) in [
        ("schema", json!(2)),
        ("digest", json!("abc")),
        ("bytes", json!(-1)),
        ("mesh", json!("dp=4")),
        ("unheard_of", json!(1)),
    ] {
        let mut report = report.clone();
        report[field] = value;
        assert!(!validator.is_valid(&report), "{field}");
    }
    let mut report = report;
    report.as_object_mut().unwrap().remove("extents");
    assert!(!validator.is_valid(&report));
}
