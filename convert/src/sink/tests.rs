//! The file: nameless until whole, swept after a kill, never in the way of another's.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use super::{FileSink, Overwrite, Sink, litter, sweep};
use crate::Error;

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn write(sink: &mut dyn Sink) {
    sink.reserve(8192).unwrap();
    sink.write_at(4096, b"data").unwrap();
    sink.sync().unwrap();
    sink.stage().unwrap();
    sink.publish().unwrap();
    sink.sync_folder().unwrap();
}

#[test]
fn no_name_before_publish() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a.wpack");
    let mut sink = FileSink::create(&out, Overwrite::Never).unwrap();
    sink.reserve(4096).unwrap();
    sink.write_at(0, b"x").unwrap();
    sink.sync().unwrap();
    assert!(!out.exists());
    sink.stage().unwrap();
    assert!(!out.exists());
    sink.publish().unwrap();
    assert_eq!(names(folder.path()), ["a.wpack"]);
    assert_eq!(fs::metadata(&out).unwrap().len(), 4096);
}

#[test]
fn dropped_early_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a.wpack");
    for overwrite in [Overwrite::Never, Overwrite::Always] {
        let mut sink = FileSink::create(&out, overwrite).unwrap();
        sink.reserve(4096).unwrap();
        sink.stage().unwrap();
        drop(sink);
        assert_eq!(names(folder.path()), [""; 0]);
    }
}

#[test]
fn a_named_temporary_does_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a.wpack");
    let mut sink = FileSink::create_with_name(&out, Overwrite::Never).unwrap();
    assert_eq!(names(folder.path()).len(), 1);
    assert_ne!(names(folder.path()), ["a.wpack"]);
    write(&mut sink);
    assert_eq!(names(folder.path()), ["a.wpack"]);
    drop(FileSink::create_with_name(&out, Overwrite::Always).unwrap());
    assert_eq!(names(folder.path()), ["a.wpack"]);
    write(&mut FileSink::create_with_name(&out, Overwrite::Always).unwrap());
    assert_eq!(names(folder.path()), ["a.wpack"]);
}

#[test]
fn what_is_there_is_replaced_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a.wpack");
    fs::write(&out, b"old").unwrap();
    let refused = FileSink::create(&out, Overwrite::Never).unwrap_err();
    assert!(matches!(refused, Error::Exists { .. }), "{refused}");
    let before = fs::metadata(&out).unwrap().ino();
    write(&mut FileSink::create(&out, Overwrite::Always).unwrap());
    assert_ne!(fs::metadata(&out).unwrap().ino(), before);
    assert_eq!(names(folder.path()), ["a.wpack"]);
}

#[test]
fn one_that_came_meanwhile_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a.wpack");
    for named in [false, true] {
        let mut sink = if named {
            FileSink::create_with_name(&out, Overwrite::Never).unwrap()
        } else {
            FileSink::create(&out, Overwrite::Never).unwrap()
        };
        fs::write(&out, b"other").unwrap();
        sink.stage().unwrap();
        assert_eq!(
            sink.publish().unwrap_err().kind(),
            std::io::ErrorKind::AlreadyExists
        );
        drop(sink);
        assert_eq!(fs::read(&out).unwrap(), b"other");
        assert_eq!(names(folder.path()), ["a.wpack"]);
        fs::remove_file(&out).unwrap();
    }
}

#[test]
fn folders_and_devices_are_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path(), Path::new("/dev/null")] {
        let refused = FileSink::create(path, Overwrite::Always).unwrap_err();
        assert!(matches!(refused, Error::NotAFile { .. }), "{refused}");
    }
    let refused =
        FileSink::create(&folder.path().join("no/a.wpack"), Overwrite::Never).unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Io {
                op: "open folder",
                ..
            }
        ),
        "{refused}"
    );
}

#[test]
fn litter_of_the_dead_is_swept_and_of_the_living_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a.wpack");
    let name = litter::temporary_name(out.file_name().unwrap());
    fs::write(folder.path().join(&name), b"half").unwrap();
    let foreign = [
        ".a.wpack.wpack-tmp",
        ".b.wpack.0123456789abcdef.wpack-tmp",
        ".a.wpack.0123.wpack-tmp",
    ];
    for name in foreign {
        fs::write(folder.path().join(name), b"").unwrap();
    }
    let living = FileSink::create_with_name(&out, Overwrite::Never).unwrap();
    assert!(!folder.path().join(&name).exists());
    assert_eq!(names(folder.path()).len(), foreign.len() + 1);
    let handle = fs::File::open(folder.path()).unwrap();
    assert_eq!(sweep(&handle, out.file_name().unwrap()), 0);
    assert_eq!(names(folder.path()).len(), foreign.len() + 1);
    drop(living);
    assert_eq!(names(folder.path()).len(), foreign.len());
}

#[test]
fn a_long_name_has_a_temporary_too() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("n".repeat(255));
    write(&mut FileSink::create(&out, Overwrite::Always).unwrap());
    write(&mut FileSink::create(&out, Overwrite::Always).unwrap());
    assert_eq!(names(folder.path()).len(), 1);
}

#[test]
fn others_may_read_it_as_the_umask_allows() {
    let folder = tempfile::tempdir().unwrap();
    // What the umask makes of 0666, without touching the umask of a process with other threads.
    let plain = folder.path().join("plain");
    fs::File::create(&plain).unwrap();
    let expected = fs::metadata(&plain).unwrap().permissions().mode();
    for named in [false, true] {
        let out = folder.path().join(format!("{named}.wpack"));
        let mut sink = if named {
            FileSink::create_with_name(&out, Overwrite::Never).unwrap()
        } else {
            FileSink::create(&out, Overwrite::Never).unwrap()
        };
        write(&mut sink);
        assert_eq!(fs::metadata(&out).unwrap().permissions().mode(), expected);
    }
}

#[test]
fn direct_and_cached_writes_meet_in_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a.wpack");
    let mut sink = FileSink::create(&out, Overwrite::Never).unwrap();
    sink.reserve(16384).unwrap();
    let memory = vec![7u8; 3 * 4096];
    let start = memory.as_ptr().align_offset(4096);
    sink.write_at(8192, &memory[start..start + 4096]).unwrap();
    sink.write_at(4090, b"0123456789").unwrap();
    sink.write_at(12288, &memory[start + 1..start + 11])
        .unwrap();
    sink.stage().unwrap();
    sink.publish().unwrap();
    let mut expected = vec![0; 16384];
    expected[8192..12288].fill(7);
    expected[4090..4100].copy_from_slice(b"0123456789");
    expected[12288..12298].fill(7);
    assert_eq!(fs::read(&out).unwrap(), expected);
}
