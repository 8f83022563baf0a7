//! Plan files: `--plan`, `--emit`, and what flags do to them.

use crate::support::{Desk, transcript};

/// A small transformer: what every layout needs is in it.
fn desk() -> Desk {
    let desk = Desk::new();
    let tensors: [(&str, &str, &[u64]); 9] = [
        ("embed.weight", "BF16", &[11, 6]),
        ("layers.0.up.weight", "BF16", &[14, 5]),
        ("layers.0.down.weight", "BF16", &[5, 7]),
        ("layers.0.experts", "BF16", &[4, 3, 5]),
        ("layers.1.up.weight", "BF16", &[14, 5]),
        ("layers.1.down.weight", "BF16", &[5, 7]),
        ("layers.1.experts", "BF16", &[4, 3, 5]),
        ("head.weight", "BF16", &[11, 6]),
        ("steps", "I64", &[]),
    ];
    desk.safetensors("model.safetensors", &tensors);
    desk
}

const FACTS: &str = r#"
order = "checkpoint"
default_style = "replicate"
default_place = ["Replicate"]
[fsdp1]
units = ["layers.*"]
use_orig_params = true
[zero]
master = true
[stages]
layers = "layers"
first = ["embed.*"]
last = ["head.*", "steps"]
"#;

const STYLES: &str = r#"
[[rule]]
match = "*.up.*"
style = "packed_colwise"
[[rule]]
match = "*.experts"
style = "grouped_gemm"
"#;

const STEPS: &str = r#"
[[rule]]
regex = 'layers\.\d\.up\.weight'
place = ["tp: Shard(0, strided(2))", "dp: Shard(1, balanced)"]
"#;

const PLANS: [(&str, &str, &str); 17] = [
    ("replicate", "", STYLES),
    ("usp", "sp=2", STYLES),
    ("zero1", "dp=3", STYLES),
    ("zero2", "dp=3", STYLES),
    ("zero3", "dp=3", STYLES),
    ("fsdp1", "fsdp=3", STYLES),
    ("fsdp2", "fsdp=3", STYLES),
    ("hsdp", "dp_replicate=2,fsdp=2", STYLES),
    ("tp", "tp=2", STYLES),
    ("ep", "ep=2", STYLES),
    ("pp", "pp=2", STYLES),
    ("usp+fsdp2", "sp=4", STYLES),
    ("tp+fsdp2", "transformers:tp=2,fsdp=2", STYLES),
    ("ep+fsdp2", "efsdp=2,ep=2", STYLES),
    ("pp+tp", "megatron:tp=2,pp=2", STYLES),
    ("pp+tp+fsdp2", "pp=2,fsdp=2,tp=2", STYLES),
    ("rules", "tp=2,dp=2", STEPS),
];

/// What is emitted makes the same pack, and so does what the pack keeps.
#[test]
fn an_emitted_plan_gives_the_same_bytes() {
    let desk = desk();
    for (at, (layout, mesh, rules)) in PLANS.into_iter().enumerate() {
        let mesh = if mesh.is_empty() {
            String::new()
        } else {
            format!("mesh = {mesh:?}\n")
        };
        let text = format!("{mesh}layout = {layout:?}\n{FACTS}{rules}");
        desk.write("plan.toml", text.as_bytes());
        let (emitted, kept) = (format!("emitted{at}.toml"), format!("kept{at}.toml"));
        desk.done(&format!(
            "plan -q model.safetensors --plan plan.toml --emit {emitted}"
        ));
        desk.done("convert -q model.safetensors -o a.wpack --plan plan.toml --overwrite");
        let kept_text = desk.done("inspect a.wpack --plan").stdout;
        desk.write(&kept, &kept_text);
        desk.done(&format!(
            "convert -q model.safetensors -o b.wpack --plan {emitted} --overwrite"
        ));
        desk.done(&format!(
            "convert -q model.safetensors -o c.wpack --plan {kept} --overwrite"
        ));
        let pack = desk.read("a.wpack");
        assert!(pack == desk.read("b.wpack"), "{layout}: the emitted plan");
        assert!(
            pack == desk.read("c.wpack"),
            "{layout}: the plan of the pack"
        );
        desk.done("verify -q a.wpack --against model.safetensors");
    }
}

/// All that flags can say.
#[test]
fn flags_are_a_plan_too() {
    let desk = desk();
    desk.write("order.txt", b"head.weight\nembed.weight\n");
    let flags = [
        "--layout replicate --ranks 4",
        "--layout zero3 --ranks 4 --dtype fp16 --exclude steps",
        "--layout fsdp2 --mesh dp=2,fsdp=2 --replicate embed.* --align 4K",
        "--layout zero2 --with-master --ranks 3 --order checkpoint",
        "--layout fsdp1 --ranks 2 --order order.txt --include *d.weight",
        "--layout zero3 --ranks 2 --add-prefix net. --rename ^net=model --shard model.embed.weight",
        "--layout fsdp2 --layout model=zero3 --dtype model=fp32 --ranks 2 --component model --strip-prefix layers.",
    ];
    for (at, line) in flags.into_iter().enumerate() {
        let emitted = format!("emitted{at}.toml");
        desk.done(&format!(
            "plan -q model.safetensors {line} --emit {emitted}"
        ));
        desk.done(&format!(
            "convert -q model.safetensors -o a.wpack {line} --overwrite"
        ));
        desk.done(&format!(
            "convert -q model.safetensors -o b.wpack --plan {emitted} --overwrite"
        ));
        assert!(desk.read("a.wpack") == desk.read("b.wpack"), "{line}");
    }
    // A pack for any number of ranks does not keep the number that nobody needed.
    desk.done("convert -q model.safetensors -o any.wpack");
    desk.done("convert -q model.safetensors -o four.wpack --ranks 4");
    assert!(desk.read("any.wpack") == desk.read("four.wpack"));
}

#[test]
fn a_flag_takes_the_place_of_a_key() {
    let desk = desk();
    let text = "mesh = \"dp=2,fsdp=2\"\nlayout = \"fsdp2\"\nreplicate = [\"embed.*\"]\n\
                transform = { dtype = \"F16\", exclude = [\"steps\"] }\n[component.model]\nlayout = \"zero3\"\n";
    desk.write("plan.toml", text.as_bytes());
    let plan = |flags: &str, name: &str| {
        desk.done(&format!(
            "plan -q model.safetensors --plan plan.toml {flags} --emit {name}"
        ));
        String::from_utf8(desk.read(name)).unwrap()
    };
    insta::assert_snapshot!(plan("--ranks 3 --replicate head.* --dtype fp32", "a.toml"), @r#"
    # Written by `wpack plan --emit`; docs/plan.md says what each key means.
    mesh = "dp=3"
    replicate = ["head.*"]
    layout = "fsdp2"

    [transform]
    exclude = ["steps"]
    dtype = "fp32"

    [component.model]
    layout = "zero3"
    "#);
    insta::assert_snapshot!(plan("--mesh fsdp=4 --layout model=fsdp2 --dtype model=bf16", "b.toml"), @r#"
    # Written by `wpack plan --emit`; docs/plan.md says what each key means.
    mesh = "fsdp=4"
    replicate = ["embed.*"]
    layout = "fsdp2"

    [transform]
    exclude = ["steps"]
    dtype = "F16"

    [component.model]
    layout = "fsdp2"

    [component.model.transform]
    dtype = "bf16"
    "#);
}

/// A flag for all components that counts for none is refused: each goes by a key of its own.
#[test]
fn a_flag_that_changes_nothing_is_refused() {
    let desk = desk();
    let own = "order = \"checkpoint\"\ntransform = { dtype = \"F16\", include = [\"*\"], exclude = [\"steps\"], \
               strip_prefix = [\"layers.\"], add_prefix = \"net.\", rename = [[\"embed\", \"emb\"]] }\n";
    let text =
        format!("ranks = 2\nlayout = \"zero3\"\n[component.model]\nlayout = \"fsdp1\"\n{own}");
    desk.write("own.toml", text.as_bytes());
    for (flag, key) in [
        ("--layout zero3", "layout"),
        ("--order checkpoint", "order"),
        ("--dtype bf16", "transform.dtype"),
        ("--include *", "transform.include"),
        ("--exclude steps", "transform.exclude"),
        ("--strip-prefix model.", "transform.strip_prefix"),
        ("--add-prefix model.", "transform.add_prefix"),
        ("--rename a=b", "transform.rename"),
    ] {
        for command in [
            "plan model.safetensors",
            "convert model.safetensors -o own.wpack",
        ] {
            let text = desk.transcript(&format!("{command} --plan own.toml {flag}"));
            let expected =
                format!("error: {flag} changes nothing: each component has `{key}` of its own");
            assert!(
                text.starts_with("exit 2") && text.contains(&expected),
                "{text}"
            );
        }
    }
    assert!(!desk.path("own.wpack").exists());
    transcript!(desk, "plan model.safetensors --plan own.toml --layout zero3", @"
    exit 2
    --- stderr
    error: --layout zero3 changes nothing: each component has `layout` of its own in the plan file
    hint: write --layout model=zero3, or take `layout` out of [component.model] of the plan file
    ");
    // It counts where there is a component without the key.
    desk.done("plan -q model=model.safetensors vae=model.safetensors --plan own.toml --layout zero3 --dtype bf16");
    desk.done("plan -q model.safetensors --plan own.toml --layout model=zero3 --dtype model=bf16");
    transcript!(desk, "plan model.safetensors --layout zero3 --ranks 2 --order checkpoint", @"
    exit 2
    --- stderr
    error: --order goes with layout fsdp1 and with master copies, which lie in the order of the model
    hint: add --layout fsdp1 or --with-master, or leave --order out
    ");
}

#[test]
fn masters_on_the_command_line() {
    let desk = desk();
    desk.done("convert -q model.safetensors -o m.wpack --layout zero2 --with-master --ranks 2 --order checkpoint");
    transcript!(desk, "inspect m.wpack --rank 1 --tensors *down*", @"
    exit 0
    --- stdout
    m.wpack: wpack format 1, 256 KiB (262,144 B)
      digest  47afe3184d772dd8e290e0b5c566ba9ccf64abd0f896f351c0ec30cd8389d6fc
      layout  zero2 over 2 ranks, mesh dp=2
      file    64 KiB of header and index, extents aligned to 64 KiB
      plan    8 lines, --plan prints them

    Rank 1 at dp=1: 4.91 KiB (5,032 B) in 2 extents, 10 slices
      extents 0, 2

      component  name                                                                        dtype  local shape  content               extent  at byte  bytes
      model      layers.0.down.weight                                                        BF16   [5, 7]       whole                      0   66,560     70
      model      layers.1.down.weight                                                        BF16   [5, 7]       whole                      0   68,096     70
      model      layers.1.up.weight + layers.1.down.weight + layers.1.experts + head.weight  F32    [232]        flat, master, 2 fill       2  196,608    928
    ");
    transcript!(desk, "inspect m.wpack --plan", @r#"
    exit 0
    --- stdout
    mesh = "dp=2"
    layout = "zero2"
    order = "checkpoint"

    [zero]
    master = true
    round_robin_gradients = false
    parameter_alignment = false
    "#);
    transcript!(desk, "plan model.safetensors --layout zero2 --with-master --ranks 2", @r#"
    exit 1
    --- stderr
    error: component `model`: layout `zero2` lays parameters one after the other in the order of the model, which is not known
    hint: give --order, or `order` in the plan file: the names of `model.named_parameters()`, or "checkpoint" if the checkpoint keeps that order
    "#);
    transcript!(desk, "plan model.safetensors --layout zero3 --with-master --ranks 2", @"
    exit 2
    --- stderr
    error: --with-master goes with layouts zero1 and zero2, whose optimizer keeps master copies
    hint: add --layout zero2 (or zero1), or leave --with-master out
    ");
}

#[test]
fn faults_of_plan_files() {
    let desk = desk();
    transcript!(desk, "plan model.safetensors --plan none.toml", @"
    exit 1
    --- stderr
    error: cannot read `none.toml`
      because: No such file or directory (os error 2)
    hint: check the path; a relative one starts at the working directory
    ");
    desk.write(
        "typo.toml",
        b"ranks = 2\nlayout = \"tp\"\n[stages]\nlayer = \"x\"\n",
    );
    transcript!(desk, "plan model.safetensors --plan typo.toml", @"
    exit 1
    --- stderr
    error: `typo.toml` is no plan
      because: plan file: unknown field `layer`, expected one of `layers`, `counts`, `first`, `last`
    hint: docs/plan.md lists what a plan file may say
    ");
    desk.write(
        "style.toml",
        b"ranks = 2\nlayout = \"tp\"\ndefault_style = \"column\"\n",
    );
    transcript!(desk, "plan model.safetensors --plan style.toml", @"
    exit 1
    --- stderr
    error: `style.toml` is no plan
      because: plan file: unknown style `column`
    hint: docs/plan.md lists what a plan file may say
    ");
    desk.write("unused.toml", b"ranks = 2\nlayout = \"tp\"\ndefault_style = \"replicate\"\n[[rule]]\nmatch = \"*.upp.*\"\nstyle = \"colwise\"\n");
    transcript!(desk, "plan model.safetensors --plan unused.toml", @"
    exit 2
    --- stderr
    error: rule `*.upp.*` matches no tensor of the components that it is for
    hint: names are those in the pack; `wpack plan --tensors` lists them
    ");
    desk.write("rest.toml", b"ranks = 2\nlayout = \"rules\"\n[[rule]]\nmatch = \"*.up.*\"\nplace = [\"tp: Shard(0, even)\"]\n");
    transcript!(desk, "plan model.safetensors --plan rest.toml", @r#"
    exit 1
    --- stderr
    error: component `model`, tensor `embed.weight`: no rule of layout `rules` matches it
    hint: give a rule for `embed.weight` in the plan file, or `default_place = ["Replicate"]`
    "#);
    desk.write("twice.toml", b"ranks = 2\nlayout = \"rules\"\n[[rule]]\nmatch = \"*\"\nplace = [\"tp: Shard(0, even)\", \"tp: Shard(1, even)\"]\n");
    transcript!(desk, "plan model.safetensors --plan twice.toml", @"
    exit 1
    --- stderr
    error: component `model`: layout `rules`: rule `*` names axis `tp` twice
    hint: docs/plan.md lists what a plan file may say
    ");
    desk.write(
        "owner.toml",
        b"ranks = 2\nlayout = \"rules\"\n[[rule]]\nmatch = \"*\"\nplace = [\"pp: Owned(2)\"]\n",
    );
    transcript!(desk, "plan model.safetensors --plan owner.toml", @"
    exit 1
    --- stderr
    error: component `model`: layout `rules`: rule `*`: `pp: Owned(2)` names coordinate 2 of an axis of 2
    hint: docs/plan.md lists what a plan file may say
    ");
    desk.write(
        "component.toml",
        b"[component.vae]\nlayout = \"replicate\"\n",
    );
    transcript!(desk, "plan model.safetensors --plan component.toml", @"
    exit 2
    --- stderr
    error: no component `vae` to lay out
    hint: components: model
    ");
    desk.write("kv.toml", b"ranks = 3\nlayout = \"rules\"\ndefault_place = [\"Replicate\"]\n[[rule]]\nmatch = \"*.up.weight\"\nplace = [\"tp: Shard(0, kv_replicated(7, 2))\"]\n");
    transcript!(desk, "plan model.safetensors --plan kv.toml", @"
    exit 1
    --- stderr
    error: component `model`, tensor `layers.0.up.weight` [14, 5] of BF16: `tp: Shard(0, kv_replicated(7, 2))` cannot cut it: 7 elements do not divide into 3 parts
    hint: keep it whole on every rank: --replicate 'layers.0.up.weight'
    ");
    desk.done("plan -q model.safetensors --emit there.toml");
    transcript!(desk, "plan -q model.safetensors --emit there.toml", @"
    exit 2
    --- stderr
    error: `there.toml` exists
    hint: give --emit another name; a plan file is not overwritten
    ");
    transcript!(desk, "inspect model.safetensors --plan", @"
    exit 2
    --- stderr
    error: a checkpoint has no plan
    hint: `wpack plan --emit FILE` writes one
    ");
}

#[test]
fn faults_of_merges() {
    let desk = desk();
    let merge = |name: &str, text: &str| {
        let text = format!("[[transform.merge]]\n{text}\n");
        desk.write(name, text.as_bytes());
        desk.transcript(&format!("plan model.safetensors --plan {name}"))
    };
    let m = r#"match = 'layers\.(?P<part>\d)\.up\.weight'"#;
    insta::assert_snapshot!(merge("a.toml", "match = 'layers'\ninto = \"x\"\nstack = 0"), @"
    exit 1
    --- stderr
    error: component `model`, merge `layers`: it has no group `(?P<part>...)` that tells parts apart
    hint: `wpack plan --tensors` lists names and shapes; docs/plan.md says how tensors are put together
    ");
    insta::assert_snapshot!(merge("b.toml", &format!("{m}\ninto = \"x\"\nstack = 3")), @r"
    exit 1
    --- stderr
    error: component `model`, merge `layers\.(?P<part>\d)\.up\.weight`: `x`: there is no dimension 3 among 2
    hint: `wpack plan --tensors` lists names and shapes; docs/plan.md says how tensors are put together
    ");
    insta::assert_snapshot!(merge("c.toml", &format!("{m}\ninto = \"x\"\nconcat = 0\ngroups = 4")), @r"
    exit 1
    --- stderr
    error: component `model`, merge `layers\.(?P<part>\d)\.up\.weight`: `x`: 14 rows of `layers.0.up.weight` do not divide into 4 groups
    hint: `wpack plan --tensors` lists names and shapes; docs/plan.md says how tensors are put together
    ");
    insta::assert_snapshot!(merge("d.toml", &format!("{m}\ninto = \"x\"\nconcat = 0\nparts = [\"0\", \"1\", \"2\"]")), @r"
    exit 1
    --- stderr
    error: component `model`, merge `layers\.(?P<part>\d)\.up\.weight`: `x` lacks part `2`
    hint: `wpack plan --tensors` lists names and shapes; docs/plan.md says how tensors are put together
    ");
    insta::assert_snapshot!(merge("e.toml", &format!("{m}\ninto = \"x\"")), @r"
    exit 1
    --- stderr
    error: component `model`, merge `layers\.(?P<part>\d)\.up\.weight`: it needs `stack` or `concat`, and not both
    hint: `wpack plan --tensors` lists names and shapes; docs/plan.md says how tensors are put together
    ");
    insta::assert_snapshot!(merge("f.toml", "match = 'layers\\.(\\d)\\.(?P<part>.*)\\.weight'\ninto = \"x$1\"\nparts = [\"up\", \"down\"]\nconcat = 0"), @r"
    exit 1
    --- stderr
    error: component `model`, merge `layers\.(\d)\.(?P<part>.*)\.weight`: `x0`: `layers.0.up.weight` is [14, 5] of BF16, `layers.0.down.weight` is [5, 7] of BF16
    hint: `wpack plan --tensors` lists names and shapes; docs/plan.md says how tensors are put together
    ");
    insta::assert_snapshot!(merge("g.toml", "match = 'layer\\.(?P<part>\\d)'\ninto = \"x\"\nstack = 0"), @r"
    exit 2
    --- stderr
    error: merge `layer\.(?P<part>\d)` matches no tensor of `model`
    hint: names there are: embed.weight, layers.0.up.weight, layers.0.down.weight, layers.0.experts, layers.1.up.weight
    ");
}
