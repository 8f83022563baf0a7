//! `docs/cli.md`, made from the definitions of the command line.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command, CommandFactory as _};

use crate::Cli;

const HEAD: &str = "# The command line

<!-- Made from the program's own definitions: cargo run -p wpack-cli --example reference > docs/cli.md -->

Data goes to standard output, everything else to standard error. With `--json`, standard output
carries exactly one JSON object, also when the command fails; [report.schema.json](report.schema.json)
describes every one of them, and `schema` in each is its version.

| exit status | meaning |
| --- | --- |
| 0 | done; also when the reader of standard output went away |
| 1 | the input is at fault: a damaged pack, a checkpoint that cannot be read, tensors that differ |
| 2 | usage, or something unexpected: a full disk, a fault of wpack |
| 130 | interrupted by Ctrl-C, SIGTERM or SIGHUP; a second signal ends the process at once |

An error is one line that says what, where, expected and found; its causes follow, one a line, then
`hint:` with what to do. Sizes are binary: 1 KiB is 1024 bytes.
";

/// The reference of all commands and options, in Markdown.
#[must_use]
pub fn reference() -> String {
    let mut out = HEAD.to_owned();
    let mut root = Cli::command();
    root.build();
    for command in root
        .get_subcommands()
        .filter(|c| c.get_name() != "help" && !c.is_hide_set())
    {
        section(&mut out, command);
    }
    out
}

fn section(out: &mut String, command: &Command) {
    let _ = write!(out, "\n## wpack {}\n\n", command.get_name());
    if let Some(about) = command.get_long_about().or_else(|| command.get_about()) {
        let _ = write!(out, "{}\n\n", about.to_string().trim());
    }
    let mut usage = command.clone();
    let usage = usage.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let _ = write!(out, "```\n{usage}\n```\n");
    let mut headings: Vec<Option<&str>> = Vec::new();
    let shown: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version"))
        .collect();
    for arg in &shown {
        if !headings.contains(&arg.get_help_heading()) {
            headings.push(arg.get_help_heading());
        }
    }
    for heading in headings {
        let _ = write!(out, "\n{}\n\n", heading.unwrap_or("Arguments and options"));
        for arg in shown.iter().filter(|arg| arg.get_help_heading() == heading) {
            item(out, arg);
        }
    }
}

fn item(out: &mut String, arg: &Arg) {
    let mut names = Vec::new();
    if let Some(short) = arg.get_short() {
        names.push(format!("-{short}"));
    }
    if let Some(long) = arg.get_long() {
        names.push(format!("--{long}"));
    }
    let value = arg.get_value_names().unwrap_or_default().join(" ");
    let takes = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let optional = arg
        .get_num_args()
        .is_some_and(|range| range.min_values() == 0);
    let mut head = names.join(", ");
    if takes && !value.is_empty() {
        let value = if optional && !head.is_empty() {
            format!("[{value}]")
        } else {
            value
        };
        head = if head.is_empty() {
            value
        } else {
            format!("{head} {value}")
        };
    }
    let help = arg
        .get_long_help()
        .or_else(|| arg.get_help())
        .map(ToString::to_string);
    let help = help
        .unwrap_or_default()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    let _ = writeln!(out, "* `{head}`: {help}");
}

/// What clap found wrong, in one line.
pub(crate) fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines = text
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.is_empty());
    let line = lines.collect::<Vec<_>>().join(" ");
    line.trim_start_matches("error:")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}
