//! The small checkpoints of `fixtures/checkpoints` are what their README says.

use crate::support::{open_all, small_files, warnings};

fn fixture(name: &str) -> String {
    format!(
        "{}/../fixtures/checkpoints/{name}",
        env!("CARGO_MANIFEST_DIR")
    )
}

#[test]
fn a_model_of_two_shards() {
    let checkpoint = open_all(&[&fixture("llama-tiny")]).expect("a model");
    let [model] = checkpoint.components.as_slice() else {
        panic!("one component")
    };
    assert_eq!(
        (model.name.as_str(), model.container.as_str()),
        ("model", "index")
    );
    assert_eq!(model.tensors.len(), 21);
    assert_eq!(checkpoint.sources.len(), 2);
    let parameters: u64 = model
        .tensors
        .iter()
        .map(|tensor| tensor.shape.iter().product::<u64>())
        .sum();
    assert_eq!(parameters, 124_736);
    assert_eq!(
        small_files(&checkpoint),
        "model: config.json\nmodel: generation_config.json"
    );
    assert_eq!(warnings(&checkpoint), Vec::<&str>::new());
}

#[test]
fn a_pipeline_of_three_models() {
    let checkpoint = open_all(&[&fixture("wan-tiny")]).expect("a pipeline");
    let models: Vec<(&str, usize)> = checkpoint
        .components
        .iter()
        .map(|component| (component.name.as_str(), component.tensors.len()))
        .collect();
    assert_eq!(
        models,
        [("text_encoder", 6), ("transformer", 55), ("vae", 4)]
    );
    assert_eq!(warnings(&checkpoint), Vec::<&str>::new());
    assert!(
        checkpoint
            .files
            .iter()
            .any(|file| file.path == "model_index.json")
    );
}
