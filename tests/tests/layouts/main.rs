//! Every layout from checkpoint to pack to tensors: what each rank holds is what its rule says of the
//! checkpoint, and all ranks together hold all of it once.

mod cases;
#[expect(dead_code, reason = "shared with tests that need more of it")]
#[path = "../convert_common/mod.rs"]
mod convert_common;
#[expect(dead_code, reason = "shared with tests that need more of it")]
#[path = "../format_dump/mod.rs"]
mod format_dump;
mod held;
mod reslice;

use std::{collections::BTreeMap, path::Path, process::Command};

use convert_common::{Folder, against, open, verify, write};
use proptest::{array::uniform6, prelude::*};
use safetensors::Dtype;
use wpack_convert::{Options, Prepared, Unlike};
use wpack_format::SliceKind;
use wpack_loader::Pack;
use wpack_plan::PlanFile;

use cases::{Case, cases, model_of};
use held::{Element, elements};

fn options(case: &Case) -> Options {
    let text = format!("align = 4096\n{}", case.plan);
    Options::of_plan(&PlanFile::parse(&text).unwrap_or_else(|why| panic!("{}: {why}", case.name)))
        .unwrap_or_else(|why| panic!("{}: {why}", case.name))
}

/// Every slice of every rank against the checkpoint's values.
fn check(case: &Case, pack: &Path, prepared: &Prepared) {
    let pack = Pack::open(pack).unwrap();
    let index = pack.index();
    let plan = prepared.plan();
    assert_eq!(index.ranks(), plan.ranks(), "{}", case.name);
    let tensors = index.tensors(pack.bytes(), 0).unwrap();
    let tensors: Vec<_> = tensors.iter().map(|tensor| tensor.to_tensor()).collect();
    let values: Vec<_> = tensors
        .iter()
        .map(|tensor| case.model.value(&tensor.names[0].name))
        .collect();
    for (tensor, value) in tensors.iter().zip(&values) {
        assert_eq!(
            tensor.shape, value.shape,
            "{}: {:?}",
            case.name, tensor.names
        );
    }
    // Stored copies of every element: one, whatever the number of ranks that hold it.
    let mut stored: BTreeMap<(SliceKind, u32, u64), Vec<u64>> = BTreeMap::new();
    for rank in 0..plan.ranks().unwrap_or(1) {
        let mut bytes = 0;
        for view in pack.shard(rank).unwrap().iter() {
            let slice = view.slice().to_slice();
            let place = view.entry().file_offset();
            bytes += view.bytes().len() as u64;
            let shape_of = |tensor: u32| tensors[usize::try_from(tensor).unwrap()].shape.clone();
            let held = elements(&slice, &shape_of);
            let width = usize::try_from(slice.dtype.bits() / 8).unwrap();
            assert_eq!(view.bytes().len(), held.len() * width, "{}", case.name);
            for (found, element) in view.bytes().chunks(width).zip(held) {
                match element {
                    Element::Fill(value) => {
                        assert_eq!(found, &value[..width], "{}: fill", case.name);
                        let expected = if slice.kind == SliceKind::Value {
                            case.fill
                        } else {
                            0.0
                        };
                        assert_eq!(
                            case.read(slice.dtype, found),
                            expected,
                            "{}: fill",
                            case.name
                        );
                    }
                    Element::Of(tensor, at) => {
                        let value = &values[usize::try_from(tensor).unwrap()];
                        let expected = value.element(at, slice.dtype);
                        assert_eq!(
                            found,
                            expected,
                            "{}: rank {rank}, {:?} {at}",
                            case.name,
                            tensors[usize::try_from(tensor).unwrap()].names
                        );
                        let places = stored.entry((slice.kind, tensor, at)).or_default();
                        if !places.contains(&place) {
                            places.push(place);
                        }
                    }
                }
            }
        }
        assert_eq!(bytes, plan.rank_bytes(rank), "{}: rank {rank}", case.name);
    }
    for (at, tensor) in (0u32..).zip(&tensors) {
        let count: u64 = tensor.shape.iter().product();
        for element in 0..count {
            let copies = |kind| stored.get(&(kind, at, element)).map_or(0, Vec::len);
            let expected = case.copies(&tensor.names[0].name, element);
            assert_eq!(
                copies(SliceKind::Value),
                expected,
                "{}: {:?} {element}",
                case.name,
                tensor.names
            );
            let master = usize::from(case.has_master(&tensor.names[0].name));
            assert_eq!(
                copies(SliceKind::Master),
                master,
                "{}: {:?}",
                case.name,
                tensor.names
            );
        }
    }
    for (planned, found) in plan.extents().iter().zip(&index.root().extents) {
        assert_eq!(
            (planned.len, planned.slice_count),
            (found.len, found.slice_count)
        );
    }
}

#[test]
fn all_ranks_together_hold_the_checkpoint() {
    let folder = Folder::new();
    let mut packs = Vec::new();
    for case in cases() {
        let source = case.model.save(&folder);
        let options = options(&case);
        let prepared = Prepared::new(open(&source), &options)
            .unwrap_or_else(|why| panic!("{}: {why}", case.name));
        let out = folder.path(&format!("{}.wpack", packs.len()));
        write(&source, &out, &options, 2);
        check(&case, &out, &prepared);
        verify(&out);
        let same = against(&out, &source);
        assert!(same.is_same(), "{}: {same:?}", case.name);
        packs.push(out);
    }
    python_agrees(&packs);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// The same of other sizes, empty ones among them, in either type.
    #[test]
    fn models_of_any_sizes(which in any::<prop::sample::Index>(), sizes in uniform6(0_usize..20), half in any::<bool>()) {
        let folder = Folder::new();
        let mut cases = cases();
        cases.retain(|case| case.model.is_plain());
        let mut case = cases.swap_remove(which.index(cases.len()));
        case.model = model_of(if half { Dtype::BF16 } else { Dtype::F32 }, sizes);
        let source = case.model.save(&folder);
        let options = options(&case);
        let prepared = Prepared::new(open(&source), &options).unwrap_or_else(|why| panic!("{}: {why}", case.name));
        let out = folder.path("model.wpack");
        write(&source, &out, &options, 2);
        check(&case, &out, &prepared);
        prop_assert!(against(&out, &source).is_same(), "{}", case.name);
    }
}

/// The reader that was written from the format's page alone sees the same in all of them.
fn python_agrees(packs: &[std::path::PathBuf]) {
    let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let program = "import json, sys; sys.path.insert(0, sys.argv[1]); import wpack_reader as r\n\
                   print(json.dumps([r.Pack(open(p, 'rb').read()).dump() for p in sys.argv[2:]]))";
    let output = Command::new(python)
        .args(["-c", program])
        .arg(wpack_tests::root().join("tests/reader"))
        .args(packs)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let read: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(read.len(), packs.len());
    for (pack, read) in packs.iter().zip(read) {
        assert_eq!(read, format_dump::dump(pack), "{}", pack.display());
    }
}

/// A value that differs in a flat group, and one that differs in a master copy alone, are found.
#[test]
fn against_another_checkpoint_every_layout_differs() {
    let folder = Folder::new();
    for case in cases() {
        let source = case.model.save(&folder);
        let out = folder.path("model.wpack");
        write(&source, &out, &options(&case), 2);
        let (name, changed) = case.model.changed(&folder);
        let found = against(&out, &changed);
        let [different] = found.different.as_slice() else {
            panic!("{}: {found:?}", case.name)
        };
        let pack_name = &different.tensor.name;
        assert!(
            case.model.made_of(pack_name).contains(&name),
            "{}: {pack_name} is not made of {name}",
            case.name
        );
        assert!(
            matches!(different.what, Unlike::Values { .. }),
            "{}",
            case.name
        );
    }
}
