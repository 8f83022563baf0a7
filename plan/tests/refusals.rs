//! What cannot be planned is refused with the facts and the way out.

mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use support::{model, tensor};
use wpack_format::DType;
use wpack_plan::{ComponentSpec, Error, Inventory, Request, TensorSpec, plan};

fn request(layout: &str) -> Request {
    Request {
        layout: layout.into(),
        ..Request::default()
    }
}

fn ranks(layout: &str, ranks: u32) -> Request {
    Request {
        ranks: Some(ranks),
        ..request(layout)
    }
}

fn mesh(layout: &str, mesh: &str) -> Request {
    Request {
        mesh: Some(mesh.parse().unwrap()),
        ..request(layout)
    }
}

fn simple() -> Inventory {
    model(vec![
        tensor("w", DType::Bf16, &[6, 4]),
        tensor("scale", DType::F32, &[]),
        tensor("packed", DType::F4, &[2, 6]),
    ])
}

/// Every message, so that wording and hints are read side by side.
#[test]
fn messages() {
    let with = |change: &dyn Fn(&mut Request)| {
        let mut request = ranks("zero3", 2);
        change(&mut request);
        request
    };
    let huge = tensor("huge", DType::F32, &[1 << 33, 1 << 33]);
    let nameless = TensorSpec {
        names: vec![],
        dtype: DType::U8,
        shape: vec![1],
    };
    let twice = ComponentSpec {
        name: "vae".into(),
        tensors: vec![],
    };
    let crowd = (0..9000)
        .map(|at| tensor(&format!("t{at}"), DType::U8, &[1]))
        .collect();
    let cases: Vec<(Inventory, Request)> = vec![
        (simple(), request("zero4")),
        (simple(), request("usp+fsdp3")),
        (simple(), request("zero3")),
        (simple(), request("usp+fsdp2")),
        (simple(), ranks("replicate", 0)),
        (simple(), ranks("fsdp2", u32::MAX)),
        (
            simple(),
            Request {
                ranks: Some(3),
                ..mesh("fsdp2", "dp=2,fsdp=2")
            },
        ),
        (simple(), mesh("fsdp2", "dp=2,sp=2")),
        (simple(), mesh("fsdp2", "fsdp=2,tp=2")),
        (simple(), mesh("fsdp2+zero3", "dp=2")),
        (
            simple(),
            with(&|r| r.component_layouts = BTreeMap::from([("dit".into(), "usp".into())])),
        ),
        (simple(), with(&|r| r.replicate = vec!["[".into()])),
        (simple(), with(&|r| r.replicate = vec!["wheight".into()])),
        (simple(), with(&|r| r.shard = vec!["bias".into()])),
        (
            simple(),
            Request {
                shard: vec!["w".into()],
                ..request("replicate")
            },
        ),
        (
            simple(),
            with(&|r| (r.replicate, r.shard) = (vec!["w*".into()], vec!["*w".into()])),
        ),
        (
            simple(),
            Request {
                shard: vec!["scale".into()],
                ..ranks("fsdp2", 2)
            },
        ),
        (
            simple(),
            Request {
                shard: vec!["scale".into()],
                ..ranks("zero3", 2)
            },
        ),
        (simple(), ranks("zero3", 5)),
        (
            Inventory {
                components: vec![twice.clone(), twice],
            },
            request("usp"),
        ),
        (
            model(vec![
                tensor("w", DType::U8, &[1]),
                tensor("w", DType::U8, &[2]),
            ]),
            request("usp"),
        ),
        (model(vec![nameless]), request("usp")),
        (model(vec![huge]), request("usp")),
        (
            model(vec![tensor("deep", DType::U8, &[1; 256])]),
            request("usp"),
        ),
        (model(vec![tensor("odd", DType::F4, &[3])]), request("usp")),
        (
            model(
                (0..3)
                    .map(|at| tensor(&format!("t{at}"), DType::U8, &[1 << 62]))
                    .collect(),
            ),
            request("usp"),
        ),
        (model(crowd), ranks("zero3", 131_072)),
    ];
    let mut text = String::new();
    for (inventory, request) in cases {
        let error = plan(&inventory, &request).unwrap_err();
        writeln!(text, "[{}] {error}", error.code()).unwrap();
        if let Some(hint) = error.hint() {
            writeln!(text, "    hint: {hint}").unwrap();
        }
    }
    insta::assert_snapshot!(text);
}

#[test]
fn a_tied_name_is_a_duplicate_too() {
    let tied = TensorSpec {
        names: vec!["a".into(), "b".into()],
        dtype: DType::U8,
        shape: vec![1],
    };
    let error = plan(
        &model(vec![tied, tensor("b", DType::U8, &[1])]),
        &request("usp"),
    )
    .unwrap_err();
    assert_eq!(
        error,
        Error::DuplicateTensor {
            component: "model".into(),
            name: "b".into()
        }
    );
}

#[test]
fn overrides_decide_what_is_cut() {
    let cut = Request {
        shard: vec!["id*".into()],
        replicate: vec!["packed".into(), "?".into()],
        ..ranks("zero3", 8)
    };
    let mut inventory = simple();
    inventory.components[0].tensors[1] = tensor("ids", DType::I64, &[3]);
    let plan = plan(&inventory, &cut).unwrap();
    let reasons: Vec<_> = (0..3)
        .map(|at| {
            let rule = usize::try_from(plan.decision(0, at).unwrap().rule).unwrap();
            let rule = &plan.resolved().rules[rule];
            (rule.placements.join("; "), rule.reason.clone())
        })
        .collect();
    let flat = "dp: FlatShard(fill 0)";
    assert_eq!(
        reasons,
        [
            ("Replicate".into(), "zero3: --replicate ?".into()),
            (flat.into(), "zero3: --shard id*".into()),
            ("Replicate".into(), "zero3: --replicate packed".into()),
        ]
    );
    assert_eq!(plan.decision(0, 3), None);
    assert_eq!(plan.decision(1, 0), None);
}

#[test]
fn whole_layouts_need_no_ranks_and_ignore_them() {
    for request in [request("replicate"), ranks("usp", 8), mesh("usp", "sp=8")] {
        let plan = plan(&simple(), &request).unwrap();
        assert_eq!(plan.mesh(), None);
        assert_eq!(plan.ranks(), None);
        assert_eq!(plan.extents().len(), 1);
        assert_eq!(plan.rank_bytes(7), 48 + 4 + 6);
    }
}

#[test]
fn components_have_layouts_of_their_own() {
    let inventory = Inventory {
        components: ["dit", "vae"]
            .map(|name| ComponentSpec {
                name: name.into(),
                tensors: vec![tensor("w", DType::Bf16, &[5, 4])],
            })
            .to_vec(),
    };
    let layouts = BTreeMap::from([("dit".to_owned(), "fsdp2".to_owned())]);
    let request = Request {
        component_layouts: layouts,
        ..ranks("replicate", 4)
    };
    let plan = plan(&inventory, &request).unwrap();
    assert_eq!(plan.mesh().unwrap().to_string(), "fsdp=4");
    assert_eq!(plan.component_layout(0), Some("fsdp2"));
    assert_eq!(plan.component_layout(1), Some("replicate"));
    assert_eq!(plan.extents().len(), 5);
    assert_eq!(plan.bytes_by_rank(), [16 + 40, 16 + 40, 8 + 40, 40]);
    assert!(plan.slices(5).is_err());
}

#[test]
fn empty_inventories_plan_to_nothing() {
    for inventory in [Inventory::default(), model(vec![])] {
        let plan = plan(&inventory, &ranks("zero3", 2)).unwrap();
        assert!(plan.extents().is_empty());
        assert_eq!(plan.rank_bytes(0), 0);
    }
}

/// Rules that name no axis cut nothing, and still must speak of every parameter.
#[test]
fn rules_without_an_axis_speak_of_every_parameter() {
    let inventory = model(vec![
        tensor("a", DType::F32, &[4]),
        tensor("b", DType::F32, &[4]),
    ]);
    let planned = |text: &str| {
        let file = wpack_plan::PlanFile::parse(&format!("layout = \"rules\"\n{text}")).unwrap();
        plan(&inventory, &file.request().unwrap()).map(|plan| plan.ranks())
    };
    let rule = "[[rule]]\nmatch = \"a\"\nplace = [\"Replicate\"]\n";
    assert_eq!(planned("").unwrap_err().code(), "no-rule");
    let error = planned(rule).unwrap_err();
    assert!(error.to_string().contains("`b`"), "{error}");
    assert_eq!(planned("default_place = [\"Replicate\"]"), Ok(None));
    assert_eq!(planned(&rule.replace("\"a\"", "\"*\"")), Ok(None));
}
