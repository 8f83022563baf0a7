//! `wpack export`: whole tensors, put together from the ranks' slices, as safetensors.

mod header;
mod runs;

use std::path::{Path, PathBuf};

use wpack_convert::sink::{FileSink, Overwrite, Sink};
use wpack_format::{Extent, SliceKind, Tensor, spec};
use wpack_loader::{ByteSource as _, FileSource, Index, Progress};

use self::{
    header::{Placed, place},
    runs::{Run, runs},
};
use crate::{
    Context, Error, ExitStatus,
    args::ExportArgs,
    human::{bytes_exact, name, plural},
    report::{ExportReport, ExportedFile, SCHEMA},
};

pub(super) fn run(args: &ExportArgs, context: &Context) -> Result<ExitStatus, Error> {
    let source = FileSource::open(&args.pack)?;
    let index = Index::read(&source)?;
    let components = chosen(&index, &args.components)?;
    let targets = targets(&components, &args.output)?;
    if !args.overwrite
        && let Some(target) = targets.iter().find(|target| target.exists())
    {
        return Err(Error::Exists {
            path: target.to_string_lossy().into_owned(),
        });
    }
    let mut files = Vec::new();
    for ((component, component_name), target) in components.iter().zip(&targets) {
        let export = Export {
            source: &source,
            index: &index,
            component: *component,
            context,
        };
        let (bytes, tensors) = export.write(component_name, target, args.overwrite)?;
        let path = target.to_string_lossy().into_owned();
        if !args.json {
            context.printer.note(format_args!(
                "wrote {}: {}, {}",
                name(&path),
                plural(tensors, "tensor"),
                bytes_exact(bytes)
            ));
        }
        files.push(ExportedFile {
            component: component_name.clone(),
            path,
            bytes,
            tensors,
        });
    }
    if args.json {
        context.printer.json(&ExportReport {
            schema: SCHEMA,
            command: "export",
            files,
        });
    }
    Ok(ExitStatus::Done)
}

/// The components asked for, all without asking.
fn chosen(index: &Index, asked: &[String]) -> Result<Vec<(u32, String)>, Error> {
    let all = || {
        (0u32..).zip(
            index
                .root()
                .components
                .iter()
                .map(|record| record.name.clone()),
        )
    };
    if let Some(name) = asked
        .iter()
        .find(|name| !all().any(|(_, found)| found == **name))
    {
        let have = all().map(|(_, name)| name).collect();
        return Err(Error::NoComponent {
            name: name.clone(),
            have,
        });
    }
    Ok(all()
        .filter(|(_, name)| asked.is_empty() || asked.contains(name))
        .collect())
}

/// One file for one component, else one in a folder for each.
fn targets(components: &[(u32, String)], output: &Path) -> Result<Vec<PathBuf>, Error> {
    let is_file = output.extension().is_some_and(|kind| kind == "safetensors");
    if is_file && components.len() == 1 {
        return Ok(vec![output.to_owned()]);
    }
    if is_file {
        return Err(Error::Usage {
            what: format!("{} components do not go into one file", components.len()),
            hint: "give a folder with --output, or one component with --component".to_owned(),
        });
    }
    std::fs::create_dir_all(output).map_err(|source| write_error(output, source))?;
    // A component's name comes from the pack: it must not lead out of the folder.
    let file = |name: &str| {
        let plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0']);
        plain
            .then(|| output.join(format!("{name}.safetensors")))
            .ok_or_else(|| Error::Usage {
                what: format!("component `{name}` cannot name a file"),
                hint: "export it alone, to a file: --component NAME --output FILE.safetensors"
                    .to_owned(),
            })
    };
    components.iter().map(|(_, name)| file(name)).collect()
}

fn write_error(path: &Path, source: std::io::Error) -> Error {
    Error::Write {
        path: path.to_string_lossy().into_owned(),
        source,
    }
}

/// One component on its way into one file.
struct Export<'a> {
    source: &'a FileSource,
    index: &'a Index,
    component: u32,
    context: &'a Context,
}

impl Export<'_> {
    /// Writes the file; says how long it is and how many tensors it has.
    fn write(&self, name: &str, target: &Path, overwrite: bool) -> Result<(u64, u64), Error> {
        let table = self.index.tensors(self.source, self.component)?;
        let tensors: Vec<Tensor> = (0u32..).map_while(|at| table.get(at)).collect();
        let components = &self.index.root().description.components;
        let info = usize::try_from(self.component)
            .ok()
            .and_then(|at| components.get(at));
        let metadata = info.map(|info| info.metadata.clone()).unwrap_or_default();
        let placed = place(name, &tensors, &metadata)?;
        let overwrite = if overwrite {
            Overwrite::Always
        } else {
            Overwrite::Never
        };
        let mut sink = FileSink::create(target, overwrite)?;
        let io = |source| write_error(target, source);
        sink.reserve(placed.file_len).map_err(io)?;
        sink.write_at(0, &placed.header).map_err(io)?;
        let bar = self.context.printer.bar("export");
        let extents = self.index.root().extents.iter();
        let extents: Vec<_> = extents
            .zip(0u32..)
            .filter(|(extent, _)| extent.component == self.component)
            .collect();
        bar.begin(
            "export",
            extents
                .iter()
                .fold(0, |sum: u64, (e, _)| sum.saturating_add(e.len)),
        );
        let mut written = vec![0u64; tensors.len()];
        for (extent, number) in extents {
            self.extent(
                (extent, number),
                &tensors,
                &placed,
                &mut written,
                &bar,
                |at, bytes| sink.write_at(at, bytes).map_err(io),
            )?;
        }
        bar.finish();
        for ((tensor, written), len) in tensors.iter().zip(&written).zip(&placed.lens) {
            if written < len {
                let name = tensor
                    .names
                    .first()
                    .map(|name| name.name.clone())
                    .unwrap_or_default();
                return Err(Error::Incomplete {
                    tensor: name,
                    found: *written,
                    expected: *len,
                });
            }
        }
        sink.sync().map_err(io)?;
        sink.stage().map_err(io)?;
        sink.publish().map_err(io)?;
        sink.sync_folder().map_err(io)?;
        let names = tensors.iter().map(|tensor| tensor.names.len() as u64).sum();
        Ok((placed.file_len, names))
    }

    /// Reads an extent block by block, checks each, and writes what it has of tensors to its places.
    fn extent(
        &self,
        (extent, number): (&Extent, u32),
        tensors: &[Tensor],
        placed: &Placed,
        written: &mut [u64],
        bar: &impl Progress,
        mut write: impl FnMut(u64, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let slices = self.index.slices(self.source, extent)?;
        let blocks = self.index.blocks(self.source, extent)?;
        let mut pending = (0..extent.slice_count)
            .map_while(|at| slices.get(at))
            .filter(|slice| slice.kind == SliceKind::Value)
            .flat_map(|slice| runs(&slice, tensors))
            .peekable();
        let mut left: Option<Run> = None;
        let mut begin = 0;
        for block in 0.. {
            let len = extent.len.saturating_sub(begin).min(spec::BLOCK_LEN);
            if len == 0 {
                break;
            }
            if self
                .context
                .interrupt
                .load(std::sync::atomic::Ordering::Relaxed)
            {
                return Err(Error::Interrupted);
            }
            let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
            let offset = extent.offset.saturating_add(begin);
            self.source.read_exact_at(offset, &mut bytes)?;
            let expected = usize::try_from(block).ok().and_then(|at| blocks.get(at));
            let expected = expected.map(|block| block.crc32c);
            let found = crc32c::crc32c(&bytes);
            if expected != Some(found) {
                return Err(Error::Loader(wpack_loader::Error::Checksum {
                    path: self.index.label().to_owned(),
                    extent: number,
                    block,
                    offset,
                    expected: expected.unwrap_or_default(),
                    found,
                }));
            }
            let end = begin.saturating_add(len);
            while let Some(run) = left
                .take()
                .or_else(|| pending.next_if(|run| run.from < end))
            {
                let (now, later) = run.split(end);
                let from = now.from.saturating_sub(begin);
                let range = usize::try_from(from)
                    .ok()
                    .zip(usize::try_from(now.len).ok());
                let part = range.and_then(|(from, len)| bytes.get(from..)?.get(..len));
                let tensor = usize::try_from(now.tensor).unwrap_or(usize::MAX);
                if let (Some(part), Some(places)) = (part, placed.places.get(tensor)) {
                    for place in places {
                        write(place.saturating_add(now.to), part)?;
                    }
                    if let Some(written) = written.get_mut(tensor) {
                        *written = written.saturating_add(now.len);
                    }
                }
                left = later;
                if left.is_some() {
                    break;
                }
            }
            bar.advance(len);
            begin = end;
        }
        Ok(())
    }
}
