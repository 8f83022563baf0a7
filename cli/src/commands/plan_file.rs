//! The plan file of a command: what `--plan` names, with what flags say in its place.

use std::{
    collections::BTreeSet,
    io::{ErrorKind, Write as _},
    path::Path,
};

use wpack_checkpoint::Checkpoint;
use wpack_plan::{OrderText, PlanFile, Section, TransformText, ZeroText};

use crate::{
    Error,
    args::{LayoutArgs, Scoped, SourceArgs, TransformArgs},
};

/// What an emitted plan file begins with.
const HEAD: &str = "# Written by `wpack plan --emit`; docs/plan.md says what each key means.\n";

/// The plan that the arguments ask for. A flag takes the place of the key of the same name; `--mesh` and
/// `--ranks` take the place of both.
pub(super) fn of(
    source: &SourceArgs,
    layout: &LayoutArgs,
    transform: &TransformArgs,
    align: Option<u64>,
    hash_sources: bool,
) -> Result<Asked, Error> {
    let mut plan = match &layout.plan {
        Some(path) => read(path)?,
        None => PlanFile::default(),
    };
    let overruled = overruled(&plan, layout, transform);
    replace(&mut plan.take, &source.components);
    replace(&mut plan.replicate, &layout.replicate);
    replace(&mut plan.shard, &layout.shard);
    plan.root = source.root.clone().or(plan.root);
    plan.align = align.or(plan.align);
    plan.hash_sources |= hash_sources;
    if layout.mesh.is_some() || layout.ranks.is_some() {
        plan.mesh.clone_from(&layout.mesh);
        plan.ranks = layout.ranks;
    }
    let (of_all, layouts) = Scoped::split(&layout.layout);
    plan.all.layout = of_all.or(plan.all.layout);
    for (component, layout) in layouts {
        plan.component.entry(component).or_default().layout = Some(layout);
    }
    if let Some(order) = &layout.order {
        plan.all.order = Some(read_order(order)?);
    }
    transforms(&mut plan, transform);
    if layout.with_master {
        with_master(&mut plan)?;
    }
    if layout.order.is_some() && !needs_order(&plan) {
        return Err(Error::Usage {
            what: "--order goes with layout fsdp1 and with master copies, which lie in the order of the model"
                .to_owned(),
            hint: "add --layout fsdp1 or --with-master, or leave --order out".to_owned(),
        });
    }
    Ok(Asked { plan, overruled })
}

/// A plan, and what the plan file says against flags.
pub(super) struct Asked {
    pub(super) plan: PlanFile,
    overruled: Vec<Overruled>,
}

/// A flag for all components, and those for which the plan file has a key of their own.
struct Overruled {
    flag: String,
    /// The key in the section of a component.
    key: &'static str,
    /// How the flag is written for one component, if it can be.
    scoped: Option<String>,
    components: BTreeSet<String>,
}

impl Asked {
    /// Refuses a flag that changes nothing: each component that is taken goes by a key of its own.
    pub(super) fn check(&self, checkpoint: &Checkpoint) -> Result<(), Error> {
        let names = checkpoint.components.iter();
        let names = names.map(|component| component.name.as_str());
        let take = &self.plan.take;
        let taken: Vec<&str> = names
            .filter(|name| take.is_empty() || take.iter().any(|taken| taken == name))
            .collect();
        for Overruled {
            flag,
            key,
            scoped,
            components,
        } in &self.overruled
        {
            let Some(first) = taken.first() else { continue };
            if taken.iter().all(|name| components.contains(*name)) {
                let scoped = scoped.as_ref().map(|value| {
                    let option = flag.split(' ').next().unwrap_or_default();
                    format!("write {option} {first}={value}, or ")
                });
                return Err(Error::Usage {
                    what: format!(
                        "{flag} changes nothing: each component has `{key}` of its own in the plan file"
                    ),
                    hint: format!(
                        "{}take `{key}` out of [component.{first}] of the plan file",
                        scoped.unwrap_or_default()
                    ),
                });
            }
        }
        Ok(())
    }
}

/// The flags for all components that the plan file has keys of components against.
fn overruled(plan: &PlanFile, layout: &LayoutArgs, transform: &TransformArgs) -> Vec<Overruled> {
    let mut all = Vec::new();
    let mut add =
        |flag: &str, value: Option<&String>, key, scoped: bool, says: &dyn Fn(&Section) -> bool| {
            let Some(value) = value else { return };
            let sections = plan.component.iter();
            let own = sections.filter(|(_, section)| says(section));
            all.push(Overruled {
                flag: format!("{flag} {value}"),
                key,
                scoped: scoped.then(|| value.clone()),
                components: own.map(|(name, _)| name.clone()).collect(),
            });
        };
    let (of_all, _) = Scoped::split(&layout.layout);
    add("--layout", of_all.as_ref(), "layout", true, &|own| {
        own.layout.is_some()
    });
    add("--order", layout.order.as_ref(), "order", false, &|own| {
        own.order.is_some()
    });
    let of = |says: fn(&TransformText) -> bool| {
        move |own: &Section| own.transform.as_ref().is_some_and(says)
    };
    let (dtype, _) = Scoped::split(&transform.dtype);
    let says = of(|own| own.dtype.is_some());
    add("--dtype", dtype.as_ref(), "transform.dtype", true, &says);
    let TransformArgs {
        include,
        exclude,
        strip_prefix,
        add_prefix,
        rename,
        ..
    } = transform;
    let says = of(|own| !own.include.is_empty());
    add(
        "--include",
        include.first(),
        "transform.include",
        false,
        &says,
    );
    let says = of(|own| !own.exclude.is_empty());
    add(
        "--exclude",
        exclude.first(),
        "transform.exclude",
        false,
        &says,
    );
    let says = of(|own| !own.strip_prefix.is_empty());
    let first = strip_prefix.first();
    add(
        "--strip-prefix",
        first,
        "transform.strip_prefix",
        false,
        &says,
    );
    let says = of(|own| own.add_prefix.is_some());
    let first = add_prefix.as_ref();
    add("--add-prefix", first, "transform.add_prefix", false, &says);
    let says = of(|own| !own.rename.is_empty());
    let first = rename.first().map(|one| format!("{}={}", one.from, one.to));
    add("--rename", first.as_ref(), "transform.rename", false, &says);
    all
}

/// Whether a layout lays parameters one after the other.
fn needs_order(plan: &PlanFile) -> bool {
    let sections = plan.component.keys().map(|name| plan.section(name));
    std::iter::once(plan.all.clone())
        .chain(sections)
        .any(|section| {
            let layout = section.layout.unwrap_or_default();
            let masters = section.zero.is_some_and(|zero| zero.master);
            layout
                .split('+')
                .any(|part| part == "fsdp1" || (masters && matches!(part, "zero1" | "zero2")))
        })
}

fn replace(list: &mut Vec<String>, flags: &[String]) {
    if !flags.is_empty() {
        *list = flags.to_vec();
    }
}

fn transforms(plan: &mut PlanFile, args: &TransformArgs) {
    let (dtype, dtypes) = Scoped::split(&args.dtype);
    let mut all = plan.all.transform.take().unwrap_or_default();
    replace(&mut all.include, &args.include);
    replace(&mut all.exclude, &args.exclude);
    replace(&mut all.strip_prefix, &args.strip_prefix);
    all.add_prefix = args.add_prefix.clone().or(all.add_prefix);
    if !args.rename.is_empty() {
        let renames = args.rename.iter();
        all.rename = renames.map(|r| (r.from.clone(), r.to.clone())).collect();
    }
    all.dtype = dtype.or(all.dtype);
    plan.all.transform = (all != TransformText::default()).then_some(all);
    for (component, dtype) in dtypes {
        let section = plan.component.entry(component).or_default();
        section.transform.get_or_insert_default().dtype = Some(dtype);
    }
}

/// Asks for masters wherever the layout is one that has them.
fn with_master(plan: &mut PlanFile) -> Result<(), Error> {
    let has_masters = |layout: Option<&String>| {
        layout.is_some_and(|text| {
            text.split('+')
                .any(|part| matches!(part, "zero1" | "zero2"))
        })
    };
    let master = |zero: &Option<ZeroText>| ZeroText {
        master: true,
        ..zero.clone().unwrap_or_default()
    };
    let mut found = has_masters(plan.all.layout.as_ref());
    if found {
        plan.all.zero = Some(master(&plan.all.zero));
    }
    let names: BTreeSet<String> = plan.component.keys().cloned().collect();
    for name in names {
        let zero = plan.section(&name).zero;
        if let Some(own) = plan.component.get_mut(&name)
            && (own.zero.is_some() || !found)
            && has_masters(own.layout.as_ref())
        {
            own.zero = Some(master(&zero));
            found = true;
        }
    }
    if found {
        return Ok(());
    }
    Err(Error::Usage {
        what:
            "--with-master goes with layouts zero1 and zero2, whose optimizer keeps master copies"
                .to_owned(),
        hint: "add --layout zero2 (or zero1), or leave --with-master out".to_owned(),
    })
}

/// `checkpoint`, or a file with a name in each line.
fn read_order(text: &str) -> Result<OrderText, Error> {
    if text == "checkpoint" {
        return Ok(OrderText::Word(text.to_owned()));
    }
    let lines = read_text(Path::new(text))?;
    let names = lines.lines().map(str::trim).filter(|line| !line.is_empty());
    Ok(OrderText::Names(names.map(str::to_owned).collect()))
}

fn read(path: &Path) -> Result<PlanFile, Error> {
    let text = read_text(path)?;
    // What it asks for is worked out here too, so that a fault names the file.
    let file = PlanFile::parse(&text).and_then(|file| file.request().map(|_| file));
    file.map_err(|source| Error::PlanFile {
        path: path.to_string_lossy().into_owned(),
        source,
    })
}

fn read_text(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::Read {
        path: path.to_string_lossy().into_owned(),
        source,
    })
}

/// Writes the plan that a pack would keep to a new file.
pub(super) fn emit(path: &Path, text: &str) -> Result<(), Error> {
    let shown = path.to_string_lossy().into_owned();
    let file = std::fs::File::create_new(path);
    let written = file.and_then(|mut file| file.write_all(format!("{HEAD}{text}").as_bytes()));
    written.map_err(|source| match source.kind() {
        ErrorKind::AlreadyExists => Error::Usage {
            what: format!("`{shown}` exists"),
            hint: "give --emit another name; a plan file is not overwritten".to_owned(),
        },
        _ => Error::Write {
            path: shown,
            source,
        },
    })
}
