//! Help, refusals and completions.

use crate::support::{Desk, transcript};

#[test]
fn without_arguments() {
    let desk = Desk::new();
    transcript!(desk, "", @"");
}

#[test]
fn version() {
    let desk = Desk::new();
    let output = desk.done("--version");
    let expected = format!("wpack {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

#[test]
fn every_command_has_help() {
    let desk = Desk::new();
    for command in ["convert", "plan", "inspect", "verify", "export", "completions"] {
        let output = desk.done(&format!("{command} --help"));
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{command}");
    }
}

#[test]
fn refusals() {
    let desk = Desk::new();
    transcript!(desk, "frobnicate", @"");
    transcript!(desk, "inspect", @"");
    transcript!(desk, "inspect m.wpack --ranks 3", @"");
    transcript!(desk, "inspect m.wpack --rank three", @"");
    transcript!(desk, "inspect -q -v m.wpack", @"");
    transcript!(desk, "inspect --json --frobnicate m.wpack", @"");
}

#[test]
fn completions() {
    let desk = Desk::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = desk.done(&format!("completions {shell}"));
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(script.contains("hash-sources"), "{shell}: an option is missing");
    }
}
