//! Whatever stops the writer, and wherever: the target is what it was, or the whole new pack; and what
//! a killed run leaves is gone after the next.

use std::{
    fs, io,
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use safetensors::{Dtype, tensor::TensorView};
use wpack_checkpoint::{Input, OpenOptions};
use wpack_convert::{
    Context, Error, Options, Prepared, WriteOptions, convert, convert_into,
    sink::{FileSink, Overwrite, Sink},
};
use wpack_loader::{FileSource, NoProgress, VerifyOptions};
use wpack_plan::Request;

static GO_ON: AtomicBool = AtomicBool::new(false);
const CONTEXT: Context<'_> = Context {
    progress: &NoProgress,
    interrupt: &GO_ON,
};

struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..40_000u32).flat_map(|at| at.to_le_bytes()).collect();
        let view = |len: usize| TensorView::new(Dtype::F32, vec![len / 4], &bytes[..len]).unwrap();
        let views = [("a", view(160_000)), ("b", view(40)), ("c", view(20_000))];
        fs::create_dir(folder.path().join("in")).unwrap();
        fs::create_dir(folder.path().join("out")).unwrap();
        let path = folder.path().join("in/model.safetensors");
        safetensors::serialize_to_file(views, None, &path).unwrap();
        Self { folder }
    }

    fn source(&self) -> PathBuf {
        self.folder.path().join("in/model.safetensors")
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out/model.wpack")
    }

    /// All names beside the target, the target's too.
    fn names(&self) -> Vec<String> {
        list(&self.folder.path().join("out"))
    }
}

fn list(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

fn prepare(source: &Path) -> Prepared {
    let input = Input {
        component: None,
        path: source.to_str().unwrap().to_owned(),
    };
    let checkpoint = wpack_checkpoint::open(&[input], &OpenOptions::default()).unwrap();
    let request = Request {
        layout: "zero3".into(),
        ranks: Some(2),
        ..Request::default()
    };
    Prepared::new(
        checkpoint,
        &Options {
            request,
            ..Options::default()
        },
    )
    .unwrap()
}

fn is_whole(pack: &Path) -> bool {
    let source = FileSource::open(pack).unwrap();
    wpack_loader::verify(&source, &VerifyOptions::default(), &NoProgress, &GO_ON)
        .is_ok_and(|report| report.is_sound())
}

/// What happens at the chosen call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cut {
    /// Never.
    None,
    /// The call fails and has done nothing.
    Fails,
    /// A write fails and has written half.
    Tears,
    /// The process is killed before the call.
    KilledBefore,
    /// The process is killed after the call.
    KilledAfter,
}

/// A sink that stops at one call, and notes them all.
struct Faulty {
    sink: FileSink,
    fault: Fault,
}

struct Fault {
    at: usize,
    cut: Cut,
    calls: AtomicUsize,
    log: Mutex<Vec<&'static str>>,
}

impl Faulty {
    fn new(sink: FileSink, at: usize, cut: Cut) -> Self {
        let fault = Fault {
            at,
            cut,
            calls: AtomicUsize::new(0),
            log: Mutex::default(),
        };
        Self { sink, fault }
    }

    fn log(&self) -> Vec<&'static str> {
        self.fault.log.lock().unwrap().clone()
    }
}

impl Fault {
    fn call<T>(
        &self,
        what: &'static str,
        torn: impl FnOnce(),
        call: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let here = self.calls.fetch_add(1, Ordering::SeqCst) == self.at;
        self.log.lock().unwrap().push(what);
        match self.cut {
            Cut::Fails if here => return Err(io::ErrorKind::StorageFull.into()),
            Cut::Tears if here => {
                torn();
                return Err(io::Error::other("torn"));
            }
            Cut::KilledBefore if here => kill(),
            _ => {}
        }
        let done = call();
        if here && self.cut == Cut::KilledAfter {
            kill();
        }
        done
    }
}

/// As a machine that loses power, but for what the system still has in memory.
fn kill() {
    let own = std::process::id().to_string();
    Command::new("kill").args(["-9", &own]).status().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(60));
}

impl Sink for Faulty {
    fn reserve(&self, len: u64) -> io::Result<()> {
        self.fault.call("reserve", || {}, || self.sink.reserve(len))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let torn = || {
            self.sink
                .write_at(offset, &bytes[..bytes.len() / 2])
                .unwrap();
        };
        self.fault
            .call("write", torn, || self.sink.write_at(offset, bytes))
    }

    fn sync(&self) -> io::Result<()> {
        self.fault.call("sync", || {}, || self.sink.sync())
    }

    fn stage(&mut self) -> io::Result<()> {
        self.fault.call("stage", || {}, || self.sink.stage())
    }

    fn publish(&mut self) -> io::Result<()> {
        self.fault.call("publish", || {}, || self.sink.publish())
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.fault
            .call("sync folder", || {}, || self.sink.sync_folder())
    }
}

/// How the target file comes to be.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Way {
    named: bool,
    overwrite: Overwrite,
}

const WAYS: [Way; 4] = [
    Way {
        named: false,
        overwrite: Overwrite::Never,
    },
    Way {
        named: false,
        overwrite: Overwrite::Always,
    },
    Way {
        named: true,
        overwrite: Overwrite::Never,
    },
    Way {
        named: true,
        overwrite: Overwrite::Always,
    },
];

impl Way {
    fn sink(self, out: &Path) -> FileSink {
        if self.named {
            FileSink::create_with_name(out, self.overwrite).unwrap()
        } else {
            FileSink::create(out, self.overwrite).unwrap()
        }
    }
}

/// Runs to the cut; gives the calls made.
fn run(
    source: &Path,
    out: &Path,
    way: Way,
    at: usize,
    cut: Cut,
) -> (Result<(), Error>, Vec<&'static str>) {
    let mut sink = Faulty::new(way.sink(out), at, cut);
    let done = convert_into(&prepare(source), &mut sink, out, 1, &CONTEXT).map(|_| ());
    let log = sink.log();
    (done, log)
}

/// The calls of a run that nothing stops.
fn all_calls(way: Way) -> Vec<&'static str> {
    let scene = Scene::new();
    let (done, calls) = run(&scene.source(), &scene.out(), way, 0, Cut::None);
    done.unwrap();
    calls
}

#[test]
fn the_name_comes_after_the_last_sync() {
    for way in WAYS {
        let calls = all_calls(way);
        let [start @ .., "sync", "stage", "publish", "sync folder"] = calls.as_slice() else {
            panic!("{calls:?}");
        };
        let ["reserve", writes @ ..] = start else {
            panic!("{calls:?}")
        };
        assert!(
            writes.len() >= 8 && writes.iter().all(|call| *call == "write"),
            "{calls:?}"
        );
    }
}

#[test]
fn an_error_anywhere_leaves_the_old_file_or_nothing() {
    for way in WAYS {
        let calls = all_calls(way);
        for (at, call) in calls.iter().enumerate() {
            for cut in [Cut::Fails, Cut::Tears] {
                let scene = Scene::new();
                let old = way.overwrite == Overwrite::Always;
                if old {
                    fs::write(scene.out(), b"old").unwrap();
                }
                let (done, _) = run(&scene.source(), &scene.out(), way, at, cut);
                let error = done.unwrap_err();
                if cut == Cut::Fails {
                    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
                }
                let case = format!("{way:?} {at} {call} {cut:?}");
                if *call == "sync folder" {
                    assert!(is_whole(&scene.out()), "{case}");
                    assert_eq!(scene.names().len(), 1, "{case}");
                } else if old {
                    assert_eq!(scene.names(), ["model.wpack"], "{case}");
                    assert_eq!(fs::read(scene.out()).unwrap(), b"old", "{case}");
                } else {
                    assert_eq!(scene.names(), [""; 0], "{case}");
                }
            }
        }
    }
}

/// The other side of [`child`]; does nothing in an ordinary run.
#[test]
fn child_process() {
    let Ok(words) = std::env::var("WPACK_CRASH_CHILD") else {
        return;
    };
    let words: Vec<&str> = words.split('|').collect();
    let [source, out, named, overwrite, at, cut] = words.as_slice() else {
        panic!("{words:?}")
    };
    let way = Way {
        named: *named == "true",
        overwrite: if *overwrite == "true" {
            Overwrite::Always
        } else {
            Overwrite::Never
        },
    };
    let cut = match *cut {
        "before" => Cut::KilledBefore,
        "after" => Cut::KilledAfter,
        _ => Cut::None,
    };
    let (done, _) = run(
        Path::new(source),
        Path::new(out),
        way,
        at.parse().unwrap(),
        cut,
    );
    if let Err(error) = done {
        panic!("{}: {error}", error.code());
    }
}

/// Converts in another process, after `setup` in its shell.
fn child(scene: &Scene, out: &Path, way: Way, at: usize, cut: &str, setup: &str) -> Output {
    let words = [
        scene.source().to_str().unwrap().to_owned(),
        out.to_str().unwrap().to_owned(),
        way.named.to_string(),
        (way.overwrite == Overwrite::Always).to_string(),
        at.to_string(),
        cut.to_owned(),
    ];
    Command::new("bash")
        .args([
            "-c",
            &format!("{setup}\nexec \"$0\" child_process --exact --nocapture"),
        ])
        .arg(std::env::current_exe().unwrap())
        .env("WPACK_CRASH_CHILD", words.join("|"))
        .output()
        .unwrap()
}

#[test]
fn a_kill_anywhere_leaves_only_litter_that_the_next_run_sweeps() {
    for way in WAYS {
        let calls = all_calls(way);
        for (at, call) in calls.iter().enumerate() {
            // Between two calls one kill is enough; the steps of the name get both.
            let cuts: &[&str] = if *call == "write" {
                &["after"]
            } else {
                &["before", "after"]
            };
            for cut in cuts {
                let scene = Scene::new();
                let out = scene.out();
                let old = way.overwrite == Overwrite::Always;
                if old {
                    fs::write(&out, b"old").unwrap();
                }
                let output = child(&scene, &out, way, at, cut, "");
                let case = format!("{way:?} {at} {call} {cut}: {output:?}");
                assert_eq!(output.status.signal(), Some(9), "{case}");
                let published = *call == "sync folder" || (*call == "publish" && *cut == "after");
                match fs::read(&out) {
                    Ok(_) if published => assert!(is_whole(&out), "{case}"),
                    Ok(bytes) => assert!(old && bytes == b"old", "{case}"),
                    Err(_) => assert!(!old && !published, "{case}"),
                }
                let write = WriteOptions {
                    threads: 1,
                    overwrite: true,
                };
                convert(&prepare(&scene.source()), &out, &write, &CONTEXT).unwrap();
                assert!(is_whole(&out), "{case}");
                assert_eq!(scene.names(), ["model.wpack"], "{case}");
            }
        }
    }
}

#[test]
fn the_mode_follows_the_umask() {
    for (umask, mode) in [
        ("022", 0o644),
        ("027", 0o640),
        ("000", 0o666),
        ("077", 0o600),
    ] {
        for way in WAYS {
            let scene = Scene::new();
            let output = child(
                &scene,
                &scene.out(),
                way,
                0,
                "none",
                &format!("umask {umask}"),
            );
            assert!(output.status.success(), "{output:?}");
            let found = fs::metadata(scene.out()).unwrap().permissions().mode();
            assert_eq!(found & 0o7777, mode, "{way:?} umask {umask}");
        }
    }
}

#[test]
fn a_file_size_limit_is_a_full_disk() {
    for way in WAYS {
        let scene = Scene::new();
        // 64 KiB; the signal is ignored, as a program that wants the error does.
        let output = child(
            &scene,
            &scene.out(),
            way,
            0,
            "none",
            "trap '' XFSZ; ulimit -f 64",
        );
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && text.contains("no-space"),
            "{output:?}"
        );
        assert_eq!(scene.names(), [""; 0]);
        // Where it is not ignored, it kills: nothing but litter either.
        let output = child(&scene, &scene.out(), way, 0, "none", "ulimit -f 64");
        assert!(!output.status.success(), "{output:?}");
        assert!(!scene.out().exists());
    }
}

/// A real full file system: a small tmpfs, where mounting is allowed.
#[test]
fn a_full_file_system_is_noticed_and_left_as_it_was() {
    let scene = Scene::new();
    let mount = scene.folder.path().join("out");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=128k", "tmpfs"])
        .arg(&mount)
        .output()
        .is_ok_and(|output| output.status.success());
    if !mounted {
        return;
    }
    let found: Vec<_> = WAYS
        .iter()
        .map(|way| {
            let (done, calls) = run(&scene.source(), &scene.out(), *way, 0, Cut::None);
            (done, calls, scene.names())
        })
        .collect();
    // Unmounted before anything may fail.
    assert!(
        Command::new("umount")
            .arg(&mount)
            .status()
            .unwrap()
            .success()
    );
    for (done, calls, names) in found {
        assert!(matches!(done, Err(Error::NoSpace { .. })), "{done:?}");
        assert_eq!(calls, ["reserve"], "noticed before any work");
        assert_eq!(names, [""; 0]);
    }
}
