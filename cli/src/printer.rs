//! The one place that writes to the standard streams: data to standard output, all else to standard
//! error.

use std::{
    fmt,
    io::{self, IsTerminal as _, Write},
    sync::{Arc, Mutex},
};

use serde::Serialize;
use wpack_loader::Progress;

use crate::{args::OutputArgs, human, progress::Bar};

/// What is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Quiet,
    Normal,
    Verbose,
}

/// Writes for the commands.
pub struct Printer {
    level: Level,
    bars: bool,
    told: Option<Arc<dyn Progress + Send>>,
    out: Mutex<Out>,
}

/// Standard output, and what became of it.
struct Out {
    stream: Box<dyn Write + Send>,
    /// The reader has gone: further data is dropped, the command ends as it would have.
    closed: bool,
    failure: Option<io::Error>,
}

impl fmt::Debug for Printer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Printer")
            .field("level", &self.level)
            .field("bars", &self.bars)
            .finish()
    }
}

impl Printer {
    /// A printer as the options ask for.
    #[must_use]
    pub fn new(args: OutputArgs) -> Self {
        let level = match args {
            OutputArgs { quiet: true, .. } => Level::Quiet,
            OutputArgs { verbose: true, .. } => Level::Verbose,
            OutputArgs { .. } => Level::Normal,
        };
        let bars = !args.quiet && !args.no_progress && io::stderr().is_terminal();
        Self {
            level,
            bars,
            told: None,
            out: Out::to(Box::new(io::BufWriter::new(io::stdout()))),
        }
    }

    /// A printer for a program: data goes to `stream`, progress to `told`, and nothing to the standard
    /// streams.
    pub(crate) fn captured(
        stream: impl Write + Send + 'static,
        told: Arc<dyn Progress + Send>,
    ) -> Self {
        let out = Out::to(Box::new(stream));
        Self {
            level: Level::Quiet,
            bars: false,
            told: Some(told),
            out,
        }
    }

    /// Data: text as it is. Control characters other than line ends must have been escaped.
    pub fn data(&self, text: &str) {
        self.write(text.as_bytes());
    }

    /// Data: one JSON object and a line end.
    pub fn json(&self, report: &impl Serialize) {
        match serde_json::to_vec_pretty(report) {
            Ok(mut text) => {
                text.push(b'\n');
                self.write(&text);
            }
            Err(error) => self.fail(error.into()),
        }
    }

    /// A line that a person may want to know; not when quiet.
    pub fn note(&self, text: impl fmt::Display) {
        if self.level != Level::Quiet {
            to_stderr(&text.to_string());
        }
    }

    /// A line for those who asked for more.
    pub fn detail(&self, text: impl fmt::Display) {
        if self.level == Level::Verbose {
            to_stderr(&text.to_string());
        }
    }

    /// Something to look at; not when quiet.
    pub fn warning(&self, text: impl fmt::Display) {
        self.note(format_args!("warning: {text}"));
    }

    /// What went wrong: the error, each cause on a line of its own, then what to do.
    pub fn error(&self, chain: &[String], hint: Option<&str>) {
        let mut lines = Vec::new();
        for (i, text) in chain.iter().enumerate() {
            lines.push(if i == 0 {
                format!("error: {text}")
            } else {
                format!("  because: {text}")
            });
        }
        if let Some(hint) = hint {
            lines.push(format!("hint: {hint}"));
        }
        to_stderr(&lines.join("\n"));
    }

    /// Help, version or a refusal, in clap's own words and on the stream that it belongs to.
    pub fn clap(&self, error: &clap::Error) {
        // A stream that is closed is no reason to fail.
        let _ = error.print();
    }

    /// A progress bar; one that draws nothing where nobody would see it.
    #[must_use]
    pub fn bar(&self, verb: &'static str) -> Bar {
        Bar::new(verb, self.bars, self.told.clone())
    }

    /// Writes what is buffered, and says whether all data got out. A reader that went away is no
    /// error.
    ///
    /// # Errors
    /// When standard output refused data, for instance on a full disk.
    pub fn finish(&self) -> io::Result<()> {
        let mut out = self.lock();
        if !out.closed
            && let Err(error) = out.stream.flush()
        {
            out.note_failure(error);
        }
        out.failure.take().map_or(Ok(()), Err)
    }

    fn write(&self, bytes: &[u8]) {
        let mut out = self.lock();
        if !out.closed
            && let Err(error) = out.stream.write_all(bytes)
        {
            out.note_failure(error);
        }
    }

    fn fail(&self, error: io::Error) {
        self.lock().note_failure(error);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Out> {
        self.out
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Out {
    fn to(stream: Box<dyn Write + Send>) -> Mutex<Self> {
        Mutex::new(Self {
            stream,
            closed: false,
            failure: None,
        })
    }

    fn note_failure(&mut self, error: io::Error) {
        self.closed = true;
        if error.kind() != io::ErrorKind::BrokenPipe {
            self.failure.get_or_insert(error);
        }
    }
}

/// Escapes what could drive the terminal, keeping line ends. A closed standard error is no reason to
/// fail.
fn to_stderr(text: &str) {
    let mut lines: Vec<String> = text.lines().map(human::name).collect();
    lines.push(String::new());
    let _ = io::stderr().lock().write_all(lines.join("\n").as_bytes());
}
