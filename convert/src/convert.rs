//! From a prepared conversion to a packfile.

use std::{
    io,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use wpack_loader::Progress;

use crate::{
    Error, Prepared,
    sink::{FileSink, Overwrite, Sink},
    writer::Writer,
};

/// How to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Threads that gather and hash; 0 takes one for each processor. Does not change a byte.
    pub threads: usize,
    /// Put the pack in the place of a file that is there already, once it is whole.
    pub overwrite: bool,
}

/// The caller's side of a long job.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Told how far the job is.
    pub progress: &'a dyn Progress,
    /// Set to stop; looked at once a block.
    pub interrupt: &'a AtomicBool,
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Bytes of the file.
    pub file_len: u64,
    /// Bytes of its extents, alignment padding between slices included.
    pub data_len: u64,
    /// SHA-256 of the root: the pack's identity.
    pub digest: [u8; 32],
    /// From the start to the durable file.
    pub elapsed: Duration,
}

impl Report {
    /// Bytes of the file per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let bytes = self.file_len as f64;
        bytes / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// Writes the pack to `out`. On success the file is complete and on stable storage; on any error, and if
/// the process dies, `out` is what it was before: an old file, or nothing.
///
/// # Errors
///
/// An `out` that exists without [`WriteOptions::overwrite`], or that is a source; a source that cannot be read; a
/// full disk (noticed before any work where the file system can reserve room); an interrupt.
pub fn convert(
    prepared: &Prepared,
    out: &Path,
    options: &WriteOptions,
    context: &Context<'_>,
) -> Result<Report, Error> {
    if let Some(target) = FileSink::identity(out) {
        let mut sources = prepared.model.source_paths();
        if sources.any(|source| FileSink::identity(source) == Some(target)) {
            return Err(Error::TargetIsSource {
                path: out.to_owned(),
            });
        }
    }
    let overwrite = if options.overwrite {
        Overwrite::Always
    } else {
        Overwrite::Never
    };
    let mut sink = FileSink::create(out, overwrite)?;
    convert_into(prepared, &mut sink, out, options.threads, context)
}

/// As [`convert`], into a sink of the caller's; `out` is for messages.
pub fn convert_into(
    prepared: &Prepared,
    sink: &mut dyn Sink,
    out: &Path,
    threads: usize,
    context: &Context<'_>,
) -> Result<Report, Error> {
    let started = Instant::now();
    let file_len = prepared.header.file_len;
    let at = |op| move |source: io::Error| io_error(op, out, file_len, source);
    sink.reserve(file_len).map_err(at("make room for"))?;

    let writer = Writer::new(prepared, sink, out, context.progress);
    let digest = writer.run(threads, context.interrupt)?;

    sink.sync().map_err(at("sync"))?;
    sink.stage().map_err(at("name"))?;
    if context.interrupt.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    sink.publish().map_err(at("name"))?;
    sink.sync_folder().map_err(at("sync the folder of"))?;
    context.progress.finish();
    Ok(Report {
        file_len,
        data_len: data_len(prepared),
        digest,
        elapsed: started.elapsed(),
    })
}

pub(crate) fn data_len(prepared: &Prepared) -> u64 {
    prepared.root.extents.iter().map(|extent| extent.len).sum()
}

pub(crate) fn io_error(op: &'static str, out: &Path, needed: u64, source: io::Error) -> Error {
    let path = out.to_owned();
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            Error::NoSpace {
                path,
                needed,
                source,
            }
        }
        io::ErrorKind::AlreadyExists => Error::Exists { path },
        _ => Error::Io { op, path, source },
    }
}
