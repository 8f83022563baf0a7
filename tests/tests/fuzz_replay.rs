//! What fuzzing found and what it learnt: every file of the small corpus through its target again.

#[path = "../../fuzz/targets.rs"]
mod targets;

use std::{fs, path::Path};

#[test]
fn the_corpus_is_replayed() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus-min");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let scratch = folder.path().join("scratch");
    for (name, target) in targets::TARGETS {
        let mut files: Vec<_> = fs::read_dir(corpus.join(name))
            .unwrap_or_else(|error| panic!("the corpus of {name}: {error}"))
            .map(|entry| entry.expect("an entry").path())
            .collect();
        files.sort();
        assert!(!files.is_empty(), "the corpus of {name} is empty");
        for path in files {
            let data = fs::read(&path).expect("a file of the corpus");
            // A panic names the file.
            let outcome = std::panic::catch_unwind(|| target(&data, &scratch));
            assert!(outcome.is_ok(), "{} fails", path.display());
        }
    }
}
