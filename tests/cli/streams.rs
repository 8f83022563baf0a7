//! Pipes that break, disks that are full, and signals.

use std::{
    fs::{File, OpenOptions},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use crate::support::Desk;

#[test]
fn a_reader_that_went_away_is_no_error() {
    let desk = Desk::with_model();
    desk.done("convert model.safetensors -o m.wpack");
    for line in [
        "inspect m.wpack",
        "inspect m.wpack --json",
        "completions bash",
        "--help",
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = desk
            .command(line.split(' '))
            .stdout(writer)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{line}");
        assert!(
            output.stderr.is_empty(),
            "{line}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn a_full_disk_behind_standard_output_is_one() {
    let Ok(full) = OpenOptions::new().write(true).open("/dev/full") else {
        return;
    };
    let desk = Desk::with_model();
    let mut command = desk.command(["inspect", "model.safetensors"]);
    let output = command.stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.starts_with("error: cannot write to standard output"),
        "{text}"
    );
}

#[test]
fn nothing_but_data_on_standard_output() {
    let desk = Desk::with_model();
    let output = desk.done("convert -v model.safetensors -o m.wpack");
    assert!(output.stdout.is_empty());
    let output = desk.done("verify m.wpack");
    assert!(output.stderr.is_empty());
}

/// Waits until the process handles the signal (the system says so), then sends it.
fn signal(child: &Child, name: &str, number: u32) {
    let status = format!("/proc/{}/status", child.id());
    let start = Instant::now();
    loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .unwrap_or(0);
        if caught & (1 << (number - 1)) != 0 {
            break;
        }
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{name} is never handled"
        );
        sleep(Duration::from_millis(1));
    }
    let status = Command::new("kill")
        .args(["-s", name, &child.id().to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

/// A checkpoint of `len` bytes that takes no room.
fn sparse(desk: &Desk, len: u64) {
    let header =
        format!("{{\"w\":{{\"dtype\":\"U8\",\"shape\":[{len}],\"data_offsets\":[0,{len}]}}}}");
    let header = format!("{header:width$}", width = header.len().next_multiple_of(8));
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    desk.write("big.safetensors", &bytes);
    let file = File::options()
        .write(true)
        .open(desk.path("big.safetensors"))
        .unwrap();
    file.set_len(bytes.len() as u64 + len).unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn a_signal_leaves_nothing_and_exits_130() {
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        let desk = Desk::new();
        sparse(&desk, 3 << 30);
        let mut command = desk.command([
            "convert",
            "big.safetensors",
            "-o",
            "m.wpack",
            "--threads",
            "1",
        ]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        signal(&child, name, number);
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(130), "{name}");
        assert_eq!(desk.names(), ["big.safetensors"], "{name}");
    }
}
