//! Every checkpoint of `fixtures/cases` gives the outcome of its manifest: names, types, shapes and
//! bytes of good ones, class and facts of bad ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use wpack_checkpoint::{Checkpoint, Component, Error, Input, OpenOptions, Tensor, open};

/// Where another outcome than the manifest's is right, and why; the fields replace the manifest's.
fn corrected(id: &str) -> Option<Value> {
    match id {
        // The manifest was made when no name existed for PyTorch's opaque bit types. A packfile
        // names them, so they are read like any other: the bytes are those of the storages.
        "pt-dtypes-bits" => {
            let sha256 = "f4c9670a5c59e00b89d9dd11db514903a33cd1dcc6598a0cfb34a56f708c9b8f";
            Some(json!({
                "outcome": "good",
                "root": "",
                "tensors": [
                    {"name": "a", "dtype": "BITS8", "shape": [4], "nbytes": 4, "sha256": sha256},
                    {"name": "b", "dtype": "BITS4X2", "shape": [4], "nbytes": 4, "sha256": sha256},
                ],
            }))
        }
        // The class is refused where the pickle names it, before any key is known.
        "fw-fsdp-shardedtensor" => Some(json!({"where": null})),
        _ => None,
    }
}

/// Classes whose text must state numbers.
const NUMBERED: &[&str] = &[
    "header-too-large",
    "hole",
    "out-of-bounds",
    "overlap",
    "resource-limit",
    "size-mismatch",
    "trailing-bytes",
    "truncated",
];

/// Classes whose reason in the manifest is a name that the text must repeat.
const NAMING: &[&str] = &[
    "missing-shard",
    "missing-storage",
    "missing-tensor",
    "name-collision",
    "unsafe-path",
    "unsafe-pickle",
];

#[test]
fn every_case_gives_the_outcome_of_the_manifest() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases");
    let manifest: Value =
        serde_json::from_slice(&fs::read(folder.join("manifest.json")).expect("the manifest"))
            .expect("JSON");
    let cases = list(&manifest["cases"]);
    assert_eq!(cases.len(), 210, "a case was lost");
    let mut faults = String::new();
    let mut seen = BTreeSet::new();
    for case in cases {
        let id = text(&case["id"]);
        assert!(seen.insert(id.to_owned()), "{id} is listed twice");
        for fault in check(&folder, case) {
            writeln!(faults, "{id}: {fault}").expect("a string takes all");
        }
    }
    assert!(
        faults.is_empty(),
        "{} faults\n{faults}",
        faults.lines().count()
    );
}

fn check(folder: &Path, case: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let id = text(&case["id"]);
    for file in list(&case["files"]) {
        let path = folder.join(id).join(text(&file["path"]));
        match fs::read(&path) {
            Ok(bytes) if hex(&Sha256::digest(&bytes)) == text(&file["sha256"]) => {}
            Ok(_) => faults.push(format!(
                "{} is not the file of the manifest",
                path.display()
            )),
            Err(error) => faults.push(format!("{}: {error}", path.display())),
        }
    }
    let mut expect = case["expect"].clone();
    if let Some(Value::Object(fields)) = corrected(id) {
        for (name, value) in fields {
            expect[name] = value;
        }
    }
    let expect = &expect;
    let main = folder.join(text(&case["main"]));
    faults.extend(outcome(&main, expect));
    // Further files that hold the same; a remark in brackets says what differs.
    for also in list(&expect["also"]) {
        let (name, remark) = text(also).split_once(" (").unwrap_or((text(also), ""));
        let path = main.with_file_name(name);
        if remark.is_empty() {
            faults.extend(outcome(&path, expect));
        } else if let Err(error) = read_all(&path) {
            faults.push(format!("{name}: {error}"));
        }
    }
    faults
}

/// Opens and reads every byte: some damage shows only then.
fn read_all(path: &Path) -> Result<(Checkpoint, BTreeMap<String, Read>), Error> {
    let input = Input {
        component: None,
        path: path.to_str().expect("UTF-8").to_owned(),
    };
    let checkpoint = open(&[input], &OpenOptions::default())?;
    let mut tensors = BTreeMap::new();
    for tensor in checkpoint
        .components
        .iter()
        .flat_map(|component| &component.tensors)
    {
        let read = Read::new(tensor)?;
        for name in &tensor.names {
            tensors.insert(name.clone(), read.clone());
        }
    }
    Ok((checkpoint, tensors))
}

/// What a tensor turned out to be.
#[derive(Clone)]
struct Read {
    dtype: String,
    stored_shape: Vec<u64>,
    shape: Vec<u64>,
    bytes: u64,
    sha256: String,
}

impl Read {
    fn new(tensor: &Tensor) -> Result<Self, Error> {
        let len = tensor.bytes.len();
        let elements = tensor.shape.iter().product();
        assert_eq!(
            tensor.dtype.bytes(elements),
            Some(len),
            "bytes fit shape and type"
        );
        // Pieces of an odd length, so that they do not fall on elements.
        let mut hash = Sha256::new();
        let mut at = 0;
        while at < len {
            let mut piece = vec![0; usize::try_from(len - at).unwrap_or(usize::MAX).min(4093)];
            tensor.bytes.read_at(at, &mut piece)?;
            at += piece.len() as u64;
            hash.update(&piece);
        }
        Ok(Self {
            dtype: tensor.dtype.name().to_owned(),
            stored_shape: tensor.stored_shape.clone(),
            shape: tensor.shape.clone(),
            bytes: len,
            sha256: hex(&hash.finalize()),
        })
    }
}

fn outcome(path: &Path, expect: &Value) -> Vec<String> {
    let alternatives: Vec<&str> = list(&expect["alternatives"]).iter().map(text).collect();
    match (read_all(path), text(&expect["outcome"])) {
        (Ok((checkpoint, tensors)), "good") => good(&checkpoint, &tensors, expect),
        (Ok((checkpoint, _)), _) if alternatives.contains(&"good") => {
            assert!(
                !checkpoint.components.is_empty(),
                "a checkpoint has a component"
            );
            Vec::new()
        }
        (Ok(_), _) => vec![format!("opened, expected {}", expect["error"])],
        (Err(error), "good") if alternatives.contains(&error.code()) => Vec::new(),
        (Err(error), "good") => vec![format!("{}: {error}", error.code())],
        (Err(error), _) => bad(path, &error, &alternatives, expect),
    }
}

fn good(checkpoint: &Checkpoint, tensors: &BTreeMap<String, Read>, expect: &Value) -> Vec<String> {
    let mut faults = Faults::default();
    let [component] = checkpoint.components.as_slice() else {
        return vec![format!("{} components", checkpoint.components.len())];
    };
    faults.compare("component", &component.name.as_str(), &"model");
    faults.compare(
        "container",
        &component.container.as_str(),
        &text(&expect["container"]),
    );
    faults.compare("root", &component.root.as_str(), &text(&expect["root"]));

    let rows = list(&expect["tensors"]);
    let wanted: BTreeSet<&str> = rows.iter().map(|row| text(&row["name"])).collect();
    let found: BTreeSet<&str> = tensors.keys().map(String::as_str).collect();
    faults.compare("names", &found, &wanted);
    for row in rows {
        let name = text(&row["name"]);
        let Some(read) = tensors.get(name) else {
            continue;
        };
        let shape: Vec<u64> = list(&row["shape"])
            .iter()
            .filter_map(Value::as_u64)
            .collect();
        faults.compare(name, &read.dtype.as_str(), &text(&row["dtype"]));
        faults.compare(name, &read.bytes, &row["nbytes"].as_u64().expect("a size"));
        faults.compare(name, &read.sha256.as_str(), &text(&row["sha256"]));
        faults.compare(name, &read.shape, &shape);
        // Two F4 elements are one of torch's.
        let stored = match (read.dtype.as_str(), shape.split_last()) {
            ("F4", Some((last, front))) => [front, &[last / 2]].concat(),
            _ => shape,
        };
        faults.compare(name, &read.stored_shape, &stored);
    }

    let aliases: BTreeSet<Vec<&str>> = component
        .tensors
        .iter()
        .filter(|tensor| tensor.names.len() > 1)
        .map(|tensor| sorted(tensor.names.iter().map(String::as_str)))
        .collect();
    let wanted = list(&expect["aliases"]).iter();
    let wanted = wanted
        .map(|group| sorted(list(group).iter().map(text)))
        .collect();
    faults.compare("aliases", &aliases, &wanted);
    faults.0.extend(side_notes(checkpoint, component, expect));
    faults.0
}

/// Warnings, skipped values, metadata.
fn side_notes(checkpoint: &Checkpoint, component: &Component, expect: &Value) -> Vec<String> {
    let mut faults = Faults::default();
    let codes: BTreeSet<&str> = checkpoint
        .warnings
        .iter()
        .map(|warning| warning.code)
        .collect();
    let wanted: BTreeSet<&str> = list(&expect["warnings"]).iter().map(text).collect();
    faults.compare("warnings", &codes, &wanted);
    let said: String = checkpoint
        .warnings
        .iter()
        .map(|warning| warning.message.as_str())
        .collect();
    for global in list(&expect["opaque_globals"]) {
        let named = component
            .skipped
            .iter()
            .any(|skipped| skipped.kind == text(global));
        if !named && !said.contains(text(global)) {
            faults.0.push(format!("{global} is named nowhere"));
        }
    }
    if let Some(wanted) = expect["skipped"].as_object() {
        let found: BTreeMap<&str, &str> = component
            .skipped
            .iter()
            .map(|skipped| (skipped.path.as_str(), skipped.kind.as_str()))
            .collect();
        let wanted = wanted
            .iter()
            .map(|(path, kind)| (path.as_str(), text(kind)))
            .collect();
        faults.compare("skipped", &found, &wanted);
    }
    if let Some(count) = expect["skipped_count"].as_u64() {
        faults.compare("skipped", &(component.skipped.len() as u64), &count);
    }
    if let Some(wanted) = expect.get("metadata") {
        // `null` is what the file says; it has none then.
        let none = serde_json::Map::new();
        let wanted = wanted.as_object().unwrap_or(&none).iter();
        let wanted = wanted
            .map(|(key, value)| (key.clone(), text(value).to_owned()))
            .collect();
        faults.compare("metadata", &component.metadata, &wanted);
    }
    if let Some(entries) = expect["metadata_entries"].as_u64() {
        faults.compare("metadata", &(component.metadata.len() as u64), &entries);
        let sha256 = hex(&Sha256::digest(python_json(&component.metadata)));
        faults.compare(
            "metadata",
            &sha256.as_str(),
            &text(&expect["metadata_sha256"]),
        );
    }
    if let Some(start) = expect["data_start"].as_u64() {
        let place = component
            .tensors
            .first()
            .and_then(|tensor| tensor.bytes.place());
        faults.compare("data start", &place, &Some(start));
    }
    faults.0
}

fn bad(path: &Path, error: &Error, alternatives: &[&str], expect: &Value) -> Vec<String> {
    let wanted = text(&expect["error"]);
    let code = error.code();
    // Without the path, which may hold what is looked for.
    let said = error.to_string().replace(&path.display().to_string(), "");
    if code != wanted && !alternatives.contains(&code) {
        return vec![format!("{code}, expected {wanted}: {said}")];
    }
    let mut faults = Vec::new();
    if NUMBERED.contains(&code) && !said.contains(|c: char| c.is_ascii_digit()) {
        faults.push(format!("no number in {said:?}"));
    }
    let reason = expect["reason"].as_str().unwrap_or_default();
    if code == wanted && NAMING.contains(&code) && !said.contains(reason) {
        faults.push(format!("{reason:?} is not in {said:?}"));
    }
    if let Error::NotACheckpoint { found, .. } = error
        && found.name() != reason
    {
        faults.push(format!("{} instead of {reason}", found.name()));
    }
    if let Some(place) = expect["where"].as_str()
        && code == wanted
        && !said.contains(&format!("`{place}`"))
    {
        faults.push(format!("{place:?} is not in {said:?}"));
    }
    let hint = expect["hint"].as_str().unwrap_or_default();
    for word in [
        "dcp_to_torch",
        "zero_to_fp32.py",
        "gunzip",
        "torch.jit.load",
        "numpy",
    ] {
        let given = error.hint().unwrap_or_default() + &said;
        if hint.contains(word) && !given.contains(word) {
            faults.push(format!("no {word} in {given:?}"));
        }
    }
    if said.chars().any(char::is_control) {
        faults.push(format!("control characters in {said:?}"));
    }
    faults
}

#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn compare<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, found: &T, wanted: &T) {
        if found != wanted {
            self.0
                .push(format!("{what}: {found:?}, expected {wanted:?}"));
        }
    }
}

/// `json.dumps(.., sort_keys=True)`: what the manifest's digest was made from.
fn python_json(map: &BTreeMap<String, String>) -> String {
    let quote = |text: &str| {
        let json = serde_json::to_string(text).expect("text is JSON");
        let mut out = String::new();
        for unit in json.encode_utf16() {
            match char::from_u32(u32::from(unit)) {
                Some(c) if c.is_ascii() && c != '\x7f' => out.push(c),
                _ => write!(out, "\\u{unit:04x}").expect("a string takes all"),
            }
        }
        out
    };
    let pairs: Vec<String> = map
        .iter()
        .map(|(key, value)| format!("{}: {}", quote(key), quote(value)))
        .collect();
    format!("{{{}}}", pairs.join(", "))
}

fn sorted<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The manifest's own classes are the ones that errors can have.
#[test]
fn the_manifest_knows_its_classes() {
    let path: PathBuf = [
        env!("CARGO_MANIFEST_DIR"),
        "../fixtures/cases/manifest.json",
    ]
    .iter()
    .collect();
    let manifest: Value =
        serde_json::from_slice(&fs::read(path).expect("the manifest")).expect("JSON");
    let classes: BTreeSet<&str> = list(&manifest["error_classes"]).iter().map(text).collect();
    for case in list(&manifest["cases"]) {
        let error = text(&case["expect"]["error"]);
        assert!(error.is_empty() || classes.contains(error), "{error}");
    }
}
