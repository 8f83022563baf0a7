//! Arguments that `convert` and `plan` share: where tensors come from, what becomes of their names
//! and values, and who gets which part.

use std::path::PathBuf;

use clap::Args;
use wpack_checkpoint::Input;

/// Where tensors come from.
#[derive(Args, Clone, Debug, Default)]
pub struct SourceArgs {
    /// Checkpoint: a file, a glob, a folder, an index file, or COMPONENT=PATH.
    ///
    /// safetensors and every form of torch.save (.pt, .pth, .bin, .ckpt) are told apart by
    /// content, never by name. A folder is read as Hugging Face or diffusers lay it out. Give
    /// several to put several models into one pack: `dit=wan/dit.safetensors vae=wan/vae.pth`.
    #[arg(required = true, value_name = "CHECKPOINT", value_parser = parse_input)]
    pub inputs: Vec<Input>,
    /// Keep only this component. May be given several times.
    #[arg(long = "component", value_name = "NAME", help_heading = "What to take")]
    pub components: Vec<String>,
    /// Path of the state dict inside a pickled object, dots between keys: `params_ema`.
    #[arg(long, value_name = "PATH", help_heading = "What to take")]
    pub root: Option<String>,
    /// Most bytes that views and compression may expand to. By default a multiple of the input, so
    /// that a small hostile file cannot fill the disk.
    #[arg(long, value_name = "BYTES", value_parser = crate::human::parse_bytes, help_heading = "What to take")]
    pub output_limit: Option<u64>,
}

/// What becomes of names and values before any cut.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "What to take")]
pub struct TransformArgs {
    /// Keep only tensors whose name in the checkpoint matches. May be given several times.
    #[arg(long, value_name = "GLOB")]
    pub include: Vec<String>,
    /// Leave out tensors whose name in the checkpoint matches. May be given several times.
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// Cast floating-point tensors exactly as torch.Tensor.to does: bf16, fp16, fp32, fp64,
    /// fp8_e4m3fn, fp8_e5m2, ... With COMPONENT= for one component.
    #[arg(long, value_name = "[COMPONENT=]DTYPE", value_parser = parse_scoped)]
    pub dtype: Vec<Scoped>,
    /// Remove this prefix from names that have it; of several, the first that fits.
    #[arg(long, value_name = "PREFIX")]
    pub strip_prefix: Vec<String>,
    /// Put this prefix before every name, after stripping.
    #[arg(long, value_name = "PREFIX")]
    pub add_prefix: Option<String>,
    /// Rewrite names by a regular expression; TO may hold $1. May be given several times, applied
    /// in order, after the prefixes. The first `=` separates (write \x3d for one in FROM).
    #[arg(long, value_name = "FROM=TO", value_parser = parse_rename)]
    pub rename: Vec<Rename>,
}

/// Who gets which part.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Layout")]
pub struct LayoutArgs {
    /// A plan file: says in TOML what flags say, and what they cannot (docs/plan.md). A flag takes the
    /// place of the same key; --mesh and --ranks take the place of both.
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// How tensors are spread over the ranks: replicate, usp, zero1, zero2, zero3, fsdp1, fsdp2,
    /// hsdp, tp, ep, pp, rules; joined with `+` where several act. With COMPONENT= for one component. By
    /// default replicate.
    #[arg(long, value_name = "[COMPONENT=]LAYOUT", value_parser = parse_scoped)]
    pub layout: Vec<Scoped>,
    /// Number of ranks. Not needed for replicate and usp, whose packs fit any number.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks: Option<u32>,
    /// The grid of ranks, the last axis varies fastest: `dp=2,fsdp=4`. Behind PROJECT: the axes are put
    /// into the order of a project: `megatron:tp=2,pp=4` (transformers, accelerate, megatron, vllm,
    /// deepspeed, xdit).
    #[arg(long, value_name = "[PROJECT:]AXIS=N,...")]
    pub mesh: Option<String>,
    /// The order in which the model registers its parameters, for fsdp1 and --with-master: `checkpoint`,
    /// or a file with a name in each line, as model.named_parameters() gives them.
    #[arg(long, value_name = "checkpoint|FILE")]
    pub order: Option<String>,
    /// With zero1 and zero2: also each rank's part of the optimizer's fp32 master weights.
    #[arg(long)]
    pub with_master: bool,
    /// Keep tensors whole on every rank whose name in the pack matches.
    #[arg(long, value_name = "GLOB")]
    pub replicate: Vec<String>,
    /// Cut tensors whose name in the pack matches, although the layout would keep them whole.
    #[arg(long, value_name = "GLOB")]
    pub shard: Vec<String>,
}

/// A value for all components or for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scoped {
    /// The component; none for all.
    pub component: Option<String>,
    /// The value.
    pub value: String,
}

/// A regular expression and its replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rename {
    /// The expression.
    pub from: String,
    /// The replacement.
    pub to: String,
}

impl Scoped {
    /// The value for all components (the last one given), and those for single ones.
    #[must_use]
    pub fn split(list: &[Self]) -> (Option<String>, Vec<(String, String)>) {
        let mut all = None;
        let mut single = Vec::new();
        for Self { component, value } in list {
            match component {
                None => all = Some(value.clone()),
                Some(component) => single.push((component.clone(), value.clone())),
            }
        }
        (all, single)
    }
}

/// `COMPONENT=PATH` or `PATH`. What stands before the first `=` is a component only if it is a plain
/// name and the whole is no path that exists, so that files with a `=` in their name need no escape.
pub(super) fn parse_input(text: &str) -> Result<Input, String> {
    if text.is_empty() {
        return Err("an empty path".to_owned());
    }
    if let Some((component, path)) = text.split_once('=')
        && is_component(component)
        && !path.is_empty()
        && std::fs::symlink_metadata(text).is_err()
    {
        return Ok(Input {
            component: Some(component.to_owned()),
            path: path.to_owned(),
        });
    }
    Ok(Input {
        component: None,
        path: text.to_owned(),
    })
}

fn is_component(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

fn parse_scoped(text: &str) -> Result<Scoped, String> {
    match text.split_once('=') {
        None if text.is_empty() => Err("an empty value".to_owned()),
        None => Ok(Scoped {
            component: None,
            value: text.to_owned(),
        }),
        Some((component, value)) if component.is_empty() || value.is_empty() => {
            Err("expected COMPONENT=VALUE or VALUE".to_owned())
        }
        Some((component, value)) => Ok(Scoped {
            component: Some(component.to_owned()),
            value: value.to_owned(),
        }),
    }
}

fn parse_rename(text: &str) -> Result<Rename, String> {
    match text.split_once('=') {
        Some((from, to)) if !from.is_empty() => Ok(Rename {
            from: from.to_owned(),
            to: to.to_owned(),
        }),
        _ => Err("expected FROM=TO".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn component_and_path_part_at_a_plain_name_only() {
        let input = parse_input("vae=a/b=c.pth").unwrap();
        assert_eq!(input.component.as_deref(), Some("vae"));
        assert_eq!(input.path, "a/b=c.pth");
        for path in ["a/b=c.pth", "=x", "vae=", "./vae=x"] {
            let input = parse_input(path).unwrap();
            assert_eq!((input.component, input.path.as_str()), (None, path));
        }
        assert!(parse_input("").is_err());
    }

    #[test]
    fn the_last_value_for_all_counts() {
        let list: Vec<_> = ["fsdp2", "vae=replicate", "zero3"]
            .map(|text| parse_scoped(text).unwrap())
            .into();
        let (all, single) = Scoped::split(&list);
        assert_eq!(all.as_deref(), Some("zero3"));
        assert_eq!(single, [("vae".to_owned(), "replicate".to_owned())]);
        assert!(parse_scoped("=zero3").is_err());
    }

    #[test]
    fn the_help_names_every_layout() {
        use clap::CommandFactory as _;
        let mut command = crate::Cli::command();
        let convert = command.find_subcommand_mut("convert").unwrap();
        let help = convert.render_long_help().to_string();
        for layout in wpack_plan::layouts() {
            let named = help
                .split(|c: char| !c.is_alphanumeric())
                .any(|word| word == layout.name);
            assert!(named, "{}", layout.name);
        }
    }

    #[test]
    fn a_rename_may_remove() {
        assert_eq!(
            parse_rename("^model\\.="),
            Ok(Rename {
                from: "^model\\.".to_owned(),
                to: String::new()
            })
        );
        assert!(parse_rename("x").is_err());
    }
}
