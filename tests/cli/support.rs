//! A folder with small inputs, and the command run in it.

use std::{
    fmt::Write as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

/// Runs a command line in a [`Desk`] and compares exit status, standard output and standard error with
/// the snapshot beside the call.
macro_rules! transcript {
    ($desk:expr, $line:expr, @$snapshot:literal) => {
        insta::assert_snapshot!($desk.transcript($line), @$snapshot)
    };
}
pub(crate) use transcript;

/// A working directory.
pub(crate) struct Desk(TempDir);

impl Desk {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// One with `model.safetensors`: two matrices, a vector, a scalar and an integer tensor.
    pub(crate) fn with_model() -> Self {
        let desk = Self::new();
        desk.safetensors(
            "model.safetensors",
            &[
                ("embed.weight", "BF16", &[10, 8]),
                ("blocks.0.weight", "BF16", &[8, 6]),
                ("blocks.0.bias", "F32", &[5]),
                ("scale", "F32", &[]),
                ("positions", "I64", &[4]),
            ],
        );
        desk
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// Names in the folder, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> = entries
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Writes a safetensors file whose bytes count up.
    pub(crate) fn safetensors(&self, name: &str, tensors: &[(&str, &str, &[u64])]) {
        let mut header = String::from("{");
        let mut end = 0;
        for (i, (tensor, dtype, shape)) in tensors.iter().enumerate() {
            let width = match *dtype {
                "I64" | "F64" => 8,
                "F32" => 4,
                "BF16" | "F16" => 2,
                _ => 1,
            };
            let len = shape.iter().product::<u64>() * width;
            let comma = if i == 0 { "" } else { "," };
            write!(
                header,
                "{comma}\"{tensor}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape:?},\"data_offsets\":[{end},{}]}}",
                end + len
            )
            .unwrap();
            end += len;
        }
        header.push('}');
        while header.len() % 8 != 0 {
            header.push(' ');
        }
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.as_bytes());
        file.extend((0..end).map(|i| u8::try_from(i % 251).unwrap()));
        self.write(name, &file);
    }

    /// The command, ready to run here.
    pub(crate) fn command<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wpack"));
        command
            .args(args)
            .current_dir(self.0.path())
            .stdin(Stdio::null())
            .env_remove("RUST_BACKTRACE")
            .env("XDG_DATA_HOME", self.path("data"))
            .env("COLUMNS", "100")
            .env("NO_COLOR", "1");
        command
    }

    /// Runs it. Arguments are parted at spaces.
    pub(crate) fn run(&self, line: &str) -> Output {
        self.command(line.split(' ').filter(|arg| !arg.is_empty()))
            .output()
            .unwrap()
    }

    /// Runs it and demands success.
    pub(crate) fn done(&self, line: &str) -> Output {
        let output = self.run(line);
        assert!(
            output.status.success(),
            "{line}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        output
    }

    /// What it printed as JSON.
    pub(crate) fn json(&self, line: &str) -> serde_json::Value {
        let output = self.run(line);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!(
                "{line}: {error}\n{}",
                String::from_utf8_lossy(&output.stdout)
            )
        })
    }

    /// Exit status, standard output and standard error, without what differs from run to run.
    pub(crate) fn transcript(&self, line: &str) -> String {
        let output = self.run(line);
        let status = output
            .status
            .code()
            .map_or_else(|| "signal".to_owned(), |c| c.to_string());
        let mut text = format!("exit {status}\n");
        for (name, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
            if !bytes.is_empty() {
                let _ = write!(
                    text,
                    "--- {name}\n{}",
                    self.steady(&String::from_utf8_lossy(bytes))
                );
            }
        }
        text
    }

    /// Replaces the folder, times and rates.
    fn steady(&self, text: &str) -> String {
        let folder = self.0.path().to_string_lossy();
        let mut out = String::new();
        for line in text.replace(&*folder, "[folder]").lines() {
            let line = match line.split_once(" in ") {
                Some((before, after)) if is_time(after) => format!("{before} in [time]"),
                _ => line.to_owned(),
            };
            let line = match line.split_once("\"seconds\": ") {
                Some((before, after)) => {
                    let comma = if after.ends_with(',') { "," } else { "" };
                    format!("{before}\"seconds\": [time]{comma}")
                }
                None => line,
            };
            out.push_str(&line);
            out.push('\n');
        }
        out
    }
}

/// `0.01 s`, `0.01 s, 3.2 MiB/s`.
fn is_time(text: &str) -> bool {
    let time = text.split(',').next().unwrap_or_default();
    time.ends_with(" s") && time.starts_with(|c: char| c.is_ascii_digit())
}

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    wpack_tests::root()
}
