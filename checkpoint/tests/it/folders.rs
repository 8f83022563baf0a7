//! Folders, indexes, patterns and names on the command line: which component each file becomes.

use std::os::unix::fs::symlink;

use crate::support::{Folder, code, open_all, show, small_files, warnings};

fn index(map: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = map
        .iter()
        .map(|(name, file)| format!("{name:?}:{file:?}"))
        .collect();
    format!(r#"{{"weight_map":{{{}}}}}"#, pairs.join(","))
}

#[test]
fn a_hugging_face_folder_is_one_component_with_its_small_files() {
    let folder = Folder::default();
    folder.weights("model-00001-of-00002.safetensors", &["a"]);
    folder.weights("model-00002-of-00002.safetensors", &["b"]);
    let map = [
        ("a", "model-00001-of-00002.safetensors"),
        ("b", "model-00002-of-00002.safetensors"),
    ];
    folder.write("model.safetensors.index.json", index(&map));
    for name in [
        "config.json",
        "tokenizer.json",
        "spiece.model",
        "README.md",
        "train.py",
    ] {
        folder.write(name, "{}");
    }
    folder.write("1_Pooling/config.json", "{}");
    folder.write("optimizer.pt", "state");
    folder.write("original/consolidated.00.pth", "other form");
    let checkpoint = open_all(&[&folder.join("")]).expect("a model");
    assert_eq!(show(&checkpoint), "model: a b");
    assert_eq!(checkpoint.components[0].container, "index");
    assert_eq!(
        small_files(&checkpoint),
        "model: config.json\nmodel: spiece.model\nmodel: tokenizer.json\nmodel: 1_Pooling/config.json"
    );
    assert_eq!(warnings(&checkpoint), ["training-state", "unused-folders"]);
}

#[test]
fn another_form_of_the_same_model_is_left_out_with_a_warning() {
    let folder = Folder::default();
    folder.weights("model.safetensors", &["a"]);
    folder.write("pytorch_model.bin", "not even read");
    folder.write("model.fp16.safetensors", "not even read");
    folder.write("consolidated.00.pth", "not even read");
    let checkpoint = open_all(&[&folder.join("")]).expect("a model");
    assert_eq!(show(&checkpoint), "model: a");
    assert_eq!(warnings(&checkpoint), ["unused-files"]);
    let message = &checkpoint.warnings[0].message;
    for name in [
        "pytorch_model.bin",
        "model.fp16.safetensors",
        "consolidated.00.pth",
    ] {
        assert!(message.contains(name), "{message}");
    }
}

#[test]
fn the_form_that_the_framework_would_load_is_taken() {
    // transformers takes the single file, diffusers the index.
    for (stem, expected) in [
        ("model", "model: single"),
        ("diffusion_pytorch_model", "model: part"),
    ] {
        let folder = Folder::default();
        folder.weights(&format!("{stem}.safetensors"), &["single"]);
        let shard = format!("{stem}-00001-of-00001.safetensors");
        folder.weights(&shard, &["part"]);
        folder.write(
            &format!("{stem}.safetensors.index.json"),
            index(&[("part", &shard)]),
        );
        let checkpoint = open_all(&[&folder.join("")]).expect("a model");
        assert_eq!(show(&checkpoint), expected);
        assert_eq!(warnings(&checkpoint), ["unused-files"]);
    }
}

#[test]
fn a_pipeline_gives_a_component_for_each_folder_that_it_names() {
    let folder = Folder::default();
    folder.write(
        "model_index.json",
        r#"{"_class_name":"P","transformer":["diffusers","T"],"vae":["diffusers","V"],
            "text_encoder":["transformers","E"],"tokenizer":["transformers","K"],
            "scheduler":["diffusers","S"],"safety_checker":[null,null],
            "image_encoder":["transformers","I"]}"#,
    );
    let shard = "diffusion_pytorch_model-00001-of-00001.safetensors";
    folder.weights(&format!("transformer/{shard}"), &["t"]);
    folder.write(
        "transformer/diffusion_pytorch_model.safetensors.index.json",
        index(&[("t", shard)]),
    );
    folder.write("transformer/config.json", "{}");
    folder.weights("vae/diffusion_pytorch_model.safetensors", &["v"]);
    folder.weights("text_encoder/model.safetensors", &["e"]);
    folder.write("text_encoder/config.json", "{}");
    folder.write("tokenizer/vocab.json", "{}");
    folder.write("scheduler/scheduler_config.json", "{}");
    folder.weights("old_unet/model.safetensors", &["o"]);
    folder.weights("flux.safetensors", &["all in one"]);
    let checkpoint = open_all(&[&folder.join("")]).expect("a pipeline");
    assert_eq!(show(&checkpoint), "text_encoder: e\ntransformer: t\nvae: v");
    assert_eq!(
        small_files(&checkpoint),
        "text_encoder: config.json\ntransformer: config.json\n-: model_index.json\n\
         -: scheduler/scheduler_config.json\n-: tokenizer/vocab.json"
    );
    let expected = ["missing-folders", "unused-folders", "unused-files"];
    assert_eq!(warnings(&checkpoint), expected);
}

#[test]
fn a_wan_folder_gives_a_component_for_each_model() {
    let folder = Folder::default();
    folder.weights("models_t5_umt5-xxl-enc-bf16.pth", &["t5"]);
    folder.weights("Wan2.1_VAE.pth", &["vae"]);
    folder.write("configuration.json", "{}");
    folder.write("google/umt5-xxl/tokenizer.json", "{}");
    folder.write("assets/logo.png", "x");
    for (name, tensor) in [("high_noise_model", "high"), ("low_noise_model", "low")] {
        let shard = "diffusion_pytorch_model-00001-of-00001.safetensors";
        folder.weights(&format!("{name}/{shard}"), &[tensor]);
        let map = index(&[(tensor, shard)]);
        folder.write(
            &format!("{name}/diffusion_pytorch_model.safetensors.index.json"),
            map,
        );
        folder.write(&format!("{name}/config.json"), "{}");
    }
    let checkpoint = open_all(&[&folder.join("")]).expect("the models");
    assert_eq!(
        show(&checkpoint),
        "dit: high\ndit2: low\ntext_encoder: t5\nvae: vae"
    );
    assert_eq!(
        small_files(&checkpoint),
        "dit: config.json\ndit2: config.json\n-: configuration.json\n\
         -: google/umt5-xxl/tokenizer.json"
    );
    // The bytes are safetensors: content counts, and the name is worth a warning.
    assert_eq!(
        warnings(&checkpoint),
        ["extension-mismatch", "extension-mismatch"]
    );
}

#[test]
fn a_wan_folder_with_the_weights_at_its_top() {
    let folder = Folder::default();
    folder.weights("diffusion_pytorch_model.safetensors", &["d"]);
    folder.weights("Wan2.2_VAE.safetensors", &["v"]);
    folder.weights("models_clip_open-clip-vit-huge-14.safetensors", &["c"]);
    folder.weights("xlm/model.safetensors", &["x"]);
    folder.write("config.json", "{}");
    let checkpoint = open_all(&[&folder.join("")]).expect("the models");
    assert_eq!(
        show(&checkpoint),
        "dit: d\nimage_encoder: c\nvae: v\nxlm: x"
    );
    assert_eq!(small_files(&checkpoint), "dit: config.json");
}

#[test]
fn names_that_would_be_given_twice_become_the_names_of_the_files() {
    let folder = Folder::default();
    folder.weights("vae_a.safetensors", &["a"]);
    folder.weights("vae b.safetensors", &["b"]);
    let checkpoint = open_all(&[&folder.join("")]).expect("two models");
    assert_eq!(show(&checkpoint), "vae_a: a\nvae_b: b");
    folder.weights("vae_b.safetensors", &["b"]);
    assert_eq!(code(open_all(&[&folder.join("")])), "name-collision");
}

#[test]
fn inputs_merge_by_component() {
    let folder = Folder::default();
    let a = folder
        .weights("a.safetensors", &["a"])
        .display()
        .to_string();
    let b = folder
        .weights("b.safetensors", &["b"])
        .display()
        .to_string();
    let merged = open_all(&[&a, &b]).expect("one model of two files");
    assert_eq!(show(&merged), "model: a b");
    assert_eq!(merged.sources.len(), 2);
    assert_eq!(merged.components[0].tensors[1].source, 1);
    let named = open_all(&[&format!("x={a}"), &format!("y={b}")]).expect("two components");
    assert_eq!(show(&named), "x: a\ny: b");
    let same = open_all(&[&format!("x={a}"), &format!("x={b}")]).expect("one component");
    assert_eq!(show(&same), "x: a b");
    let error = open_all(&[&a, &a]).expect_err("a tensor twice");
    assert_eq!(error.code(), "name-collision");
    assert!(
        error
            .to_string()
            .ends_with("`a`: `a.safetensors` and `a.safetensors`"),
        "{error}"
    );
}

#[test]
fn a_folder_of_several_models_takes_no_single_name() {
    let folder = Folder::default();
    folder.weights("a.safetensors", &["a"]);
    let one = open_all(&[&format!("x={}", folder.join(""))]).expect("one model");
    assert_eq!(show(&one), "x: a");
    folder.weights("b.safetensors", &["b"]);
    assert_eq!(
        code(open_all(&[&format!("x={}", folder.join(""))])),
        "several-components"
    );
}

#[test]
fn patterns_find_weights_and_miss_gaps() {
    let folder = Folder::default();
    folder.weights("m-00001-of-00003.safetensors", &["a"]);
    folder.weights("m-00002-of-00003.safetensors", &["b"]);
    folder.weights("deep/er/n.safetensors", &["n"]);
    folder.write("m.json", "{}");
    let all = folder.join("m*");
    let error = open_all(&[&all]).expect_err("a gap");
    assert_eq!(error.code(), "missing-shard");
    assert!(
        error
            .to_string()
            .contains("`m-00003-of-00003.safetensors`: 2 of 3"),
        "{error}"
    );
    folder.weights("m-00003-of-00003.safetensors", &["c"]);
    assert_eq!(show(&open_all(&[&all]).expect("all")), "model: a b c");
    let some = open_all(&[&folder.join("m-0000[13]*")]);
    assert_eq!(code(some), "missing-shard");
    let deep = open_all(&[&format!("x={}", folder.join("**/n.*"))]).expect("a file below");
    assert_eq!(show(&deep), "x: n");
    assert_eq!(code(open_all(&[&folder.join("*.bin")])), "no-input");
    assert_eq!(code(open_all(&[&folder.join("nowhere/*.bin")])), "no-input");
    assert_eq!(code(open_all(&[&folder.join("[")])), "no-input");
}

#[test]
fn a_single_file_of_a_set_is_taken_with_a_warning() {
    let folder = Folder::default();
    let path = folder.weights("m-00001-of-00003.safetensors", &["a"]);
    let checkpoint = open_all(&[&path.display().to_string()]).expect("what was asked for");
    assert_eq!(warnings(&checkpoint), ["incomplete-shards"]);
}

#[test]
fn caches_keep_files_behind_links() {
    let folder = Folder::default();
    let blob = folder.weights("models--x/blobs/0a1b", &["a"]);
    let config = folder.write("models--x/blobs/2c3d", "{}");
    let secret = folder.write("secret", "key");
    folder.write("models--x/refs/main", "5e6f\n");
    folder.write("models--x/snapshots/old/note.txt", "");
    folder.write("models--x/snapshots/5e6f/note.txt", "");
    let snapshot = folder.path().join("models--x/snapshots/5e6f");
    symlink(blob, snapshot.join("model.safetensors")).expect("a link");
    symlink(config, snapshot.join("config.json")).expect("a link");
    symlink(secret, snapshot.join("vocab.json")).expect("a link");
    for input in ["models--x", "models--x/snapshots/5e6f"] {
        let checkpoint = open_all(&[&folder.join(input)]).expect("the snapshot");
        assert_eq!(show(&checkpoint), "model: a");
        assert_eq!(small_files(&checkpoint), "model: config.json");
        assert_eq!(warnings(&checkpoint), ["small-file-left-out"]);
    }
}

#[test]
fn a_link_in_a_circle_ends() {
    let folder = Folder::default();
    folder.weights("model.safetensors", &["a"]);
    folder.write("sub/config.json", "{}");
    symlink(folder.path(), folder.path().join("sub/again")).expect("a link");
    symlink(folder.path(), folder.path().join("snapshots")).expect("a link");
    assert_eq!(
        show(&open_all(&[&folder.join("")]).expect("a model")),
        "model: a"
    );
}

#[test]
fn what_is_no_weights_is_said() {
    let folder = Folder::default();
    folder.write("readme.md", "");
    assert_eq!(code(open_all(&[&folder.join("")])), "no-input");
    assert_eq!(code(open_all(&[&folder.join("absent.safetensors")])), "io");
    folder.write("config.json", "{}");
    let error = open_all(&[&folder.join("config.json")]).expect_err("no index");
    assert_eq!(error.code(), "bad-index");
    assert!(error.to_string().ends_with("no weight_map"), "{error}");
    assert_eq!(code(open_all(&["a b=x"])), "io", "a space makes it a path");
    folder.write("sub/zero_pp_rank_0_mp_rank_00_optim_states.pt", "");
    let error = open_all(&[&folder.join("sub")]).expect_err("one rank's part");
    assert_eq!(error.code(), "partitioned");
    assert!(
        error
            .hint()
            .is_some_and(|hint| hint.contains("zero_to_fp32.py"))
    );
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let folder = Folder::default();
    let path = folder.path().join("p.safetensors");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).expect("a pipe");
    assert_eq!(code(open_all(&[&path.display().to_string()])), "io");
}

#[test]
fn a_file_cut_after_it_was_opened_is_an_error() {
    let folder = Folder::default();
    let path = folder.weights("model.safetensors", &["a", "b"]);
    let checkpoint = open_all(&[&path.display().to_string()]).expect("a model");
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("the file");
    let size = file.metadata().expect("its size").len();
    file.set_len(size - 1).expect("a cut");
    let tensor = &checkpoint.components[0].tensors[1];
    let error = tensor
        .bytes
        .read_at(0, &mut [0])
        .expect_err("the byte is gone");
    assert_eq!(error.code(), "truncated");
    let text = error.to_string();
    assert!(
        text.contains(&format!("needs {size} bytes, the file has {}", size - 1)),
        "{text}"
    );
    assert_eq!(
        tensor.bytes.read_at(1, &mut [0]).map_err(|e| e.code()),
        Err("out-of-bounds")
    );
}
