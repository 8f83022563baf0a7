//! Help, refusals and completions.

use crate::support::{Desk, transcript};

#[test]
fn without_arguments() {
    let desk = Desk::new();
    transcript!(desk, "", @"
    exit 2
    --- stderr
    Rewrites a checkpoint once into a file in which every rank's bytes already lie contiguous, aligned,
    in the right dtype and checksummed

    Usage: wpack [OPTIONS] <COMMAND>

    Commands:
      convert      Rewrite a checkpoint into a packfile
      plan         Say what `convert` would do, from the headers alone
      inspect      Show what a pack or a checkpoint holds
      verify       Check every byte of a pack, and compare it with the checkpoint it came from
      export       Write whole tensors of a pack back as safetensors
      register     Name the packs that stand for checkpoint files
      completions  Print a shell's completion script
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help (see more with '--help')
      -V, --version  Print version

    Output:
      -q, --quiet        Only errors on standard error: no notes, no warnings, no progress
      -v, --verbose      More notes on standard error, such as every value that was skipped
          --no-progress  No progress bar. There is none either where standard error is no terminal
    ");
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
    for command in [
        "convert",
        "plan",
        "inspect",
        "verify",
        "export",
        "register",
        "completions",
    ] {
        let output = desk.done(&format!("{command} --help"));
        assert!(
            !output.stdout.is_empty() && output.stderr.is_empty(),
            "{command}"
        );
    }
}

#[test]
fn refusals() {
    let desk = Desk::new();
    transcript!(desk, "frobnicate", @"
    exit 2
    --- stderr
    error: unrecognized subcommand 'frobnicate'

    Usage: wpack [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
    transcript!(desk, "inspect", @"
    exit 2
    --- stderr
    error: the following required arguments were not provided:
      <PACK>...

    Usage: wpack inspect <PACK>...

    For more information, try '--help'.
    ");
    transcript!(desk, "inspect m.wpack --ranks 3", @"
    exit 2
    --- stderr
    error: unexpected argument '--ranks' found

      tip: a similar argument exists: '--rank'

    Usage: wpack inspect --rank <R> <PACK>...

    For more information, try '--help'.
    ");
    transcript!(desk, "inspect m.wpack --rank three", @"
    exit 2
    --- stderr
    error: invalid value 'three' for '--rank <R>': invalid digit found in string

    For more information, try '--help'.
    ");
    transcript!(desk, "inspect -q -v m.wpack", @"
    exit 2
    --- stderr
    error: the argument '--quiet' cannot be used with '--verbose'

    Usage: wpack inspect --quiet <PACK>...

    For more information, try '--help'.
    ");
    transcript!(desk, "inspect --json --frobnicate m.wpack", @r#"
    exit 2
    --- stdout
    {
      "schema": 1,
      "error": {
        "code": "usage",
        "message": "unexpected argument '--frobnicate' found",
        "hint": "`wpack help COMMAND` shows every option"
      }
    }
    "#);
}

#[test]
fn completions() {
    let desk = Desk::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = desk.done(&format!("completions {shell}"));
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(
            script.contains("hash-sources"),
            "{shell}: an option is missing"
        );
    }
}
