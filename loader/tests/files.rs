//! What the loader promises about files that are truncated, replaced or deleted while in use.

use std::{fs, path::Path, sync::atomic::AtomicBool};

use wpack_loader::{
    Error, FileSource, Index, NoProgress, Pack, ReadOptions, Transfers, VerifyOptions, read_into,
    verify,
};

fn golden(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/golden");
    fs::read(folder.join(name)).unwrap()
}

fn plan(file: &FileSource, rank: u32) -> Transfers {
    let index = Index::read(file).unwrap();
    let shard = index.shard(file, rank).unwrap();
    shard.transfers(&index, file, true, |_| true).unwrap()
}

fn load(file: &FileSource, transfers: &Transfers) -> Result<Vec<Vec<u8>>, Error> {
    let sizes = transfers.destinations().iter();
    let mut memory: Vec<Vec<u8>> = sizes
        .map(|slice| vec![0; usize::try_from(slice.len).unwrap()])
        .collect();
    let places = memory.iter_mut().map(Vec::as_mut_slice).collect();
    let (options, interrupt) = (ReadOptions::default(), AtomicBool::new(false));
    read_into(file, transfers, places, &options, &NoProgress, &interrupt)?;
    Ok(memory)
}

/// The bytes of every slice of a rank.
fn views(pack: &Pack<wpack_loader::Map>, rank: u32) -> Vec<Vec<u8>> {
    pack.shard(rank)
        .unwrap()
        .iter()
        .map(|slice| slice.bytes().to_vec())
        .collect()
}

/// Puts other bytes under a name, as `wpack convert` does.
fn replace(path: &Path, bytes: &[u8]) {
    let next = path.with_extension("next");
    fs::write(&next, bytes).unwrap();
    fs::rename(&next, path).unwrap();
}

#[test]
fn a_map_outlives_the_name_and_the_replacement() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.wpack");
    fs::write(&path, golden("v1-owners.wpack")).unwrap();
    let pack = Pack::open(&path).unwrap();
    let before = views(&pack, 0);
    replace(&path, &golden("v1-boxes.wpack"));
    assert_eq!(views(&pack, 0), before);
    fs::remove_file(&path).unwrap();
    assert_eq!(views(&pack, 0), before);
}

#[test]
fn reads_outlive_the_name_and_the_replacement() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.wpack");
    fs::write(&path, golden("v1-owners.wpack")).unwrap();
    let file = FileSource::open(&path).unwrap();
    let transfers = plan(&file, 0);
    let before = load(&file, &transfers).unwrap();
    replace(&path, &golden("v1-boxes.wpack"));
    assert_eq!(load(&file, &transfers).unwrap(), before);
    fs::remove_file(&path).unwrap();
    assert_eq!(load(&file, &transfers).unwrap(), before);
}

#[test]
fn a_file_that_shrinks_is_an_error_for_reads_and_for_verify() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.wpack");
    fs::write(&path, golden("v1-owners.wpack")).unwrap();
    let file = FileSource::open(&path).unwrap();
    let transfers = plan(&file, 0);
    let first = transfers.transfers().first().unwrap();
    let writer = fs::OpenOptions::new().write(true).open(&path).unwrap();
    writer.set_len(first.offset + 1).unwrap();
    let error = load(&file, &transfers).unwrap_err();
    assert!(matches!(error, Error::Truncated { .. }), "{error}");
    let (options, interrupt) = (VerifyOptions::default(), AtomicBool::new(false));
    let error = verify(&file, &options, &NoProgress, &interrupt).unwrap_err();
    assert!(matches!(error, Error::Truncated { .. }), "{error}");
    // Opened afresh, the length is checked before anything else.
    let error = Pack::open(&path).unwrap_err();
    assert!(matches!(error, Error::Format { .. }), "{error}");
}

#[test]
fn a_file_written_in_place_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.wpack");
    let mut bytes = golden("v1-owners.wpack");
    fs::write(&path, &bytes).unwrap();
    let file = FileSource::open(&path).unwrap();
    let transfers = plan(&file, 0);
    // The bytes of a block: its checksum tells.
    let at = usize::try_from(transfers.transfers().first().unwrap().offset).unwrap();
    bytes[at] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let error = load(&file, &transfers).unwrap_err();
    assert!(matches!(error, Error::Checksum { .. }), "{error}");
    // The same bytes, written again: only the time of modification tells.
    bytes[at] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(later)
        .unwrap();
    let error = load(&file, &transfers).unwrap_err();
    assert!(matches!(error, Error::Changed { .. }), "{error}");
}
