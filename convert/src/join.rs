//! Tensors put together and made longer before any cut: stacked experts, fused weights, vocabularies of
//! a round number of rows.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use globset::Glob;
use regex::Regex;
use wpack_checkpoint::Bytes;
use wpack_format::{DType, TensorName};
use wpack_plan::{MergeText, PadText};

use crate::{
    Error,
    joined::{Joined, Turn},
    names::Used,
};

/// Names of parts that are all told; of more, the first and the last are.
const TOLD: usize = 4;

/// A tensor on its way into model space.
#[derive(Clone)]
pub(crate) struct Loose {
    pub(crate) names: Vec<TensorName>,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<u64>,
    pub(crate) stored_shape: Vec<u64>,
    /// Index of its source file in the pack; none if there are several.
    pub(crate) source: Option<u32>,
    pub(crate) bytes: Arc<dyn Bytes>,
}

impl Loose {
    fn name(&self) -> &str {
        self.names.first().map_or("", |name| name.name.as_str())
    }
}

/// What is wrong with one merge or padding of one component.
struct Fault<'a> {
    component: &'a str,
    what: &'static str,
    pattern: &'a str,
}

impl Fault<'_> {
    fn of(&self, why: impl Into<String>) -> Error {
        Error::Join {
            component: self.component.to_owned(),
            what: self.what,
            pattern: self.pattern.to_owned(),
            why: why.into(),
        }
    }
}

/// Puts tensors together. The whole stands where its first part stood.
pub(crate) fn merge(
    component: &str,
    mut tensors: Vec<Loose>,
    merges: &[MergeText],
    used: &mut Used,
) -> Result<Vec<Loose>, Error> {
    for merge in merges {
        let fault = Fault {
            component,
            what: "merge",
            pattern: &merge.matches,
        };
        let regex = Regex::new(&format!("^(?:{})$", merge.matches))
            .map_err(|error| fault.of(crate::names::last_line(&error.to_string())))?;
        if !regex.capture_names().any(|name| name == Some("part")) {
            return Err(fault.of("it has no group `(?P<part>...)` that tells parts apart"));
        }
        // By the name of the whole: where its first part stands, and its parts.
        let mut wholes: BTreeMap<String, Vec<(usize, String)>> = BTreeMap::new();
        for (at, tensor) in tensors.iter().enumerate() {
            let found = tensor
                .names
                .iter()
                .find_map(|name| regex.captures(&name.name));
            let Some(found) = found else { continue };
            if tensor.names.len() > 1 {
                return Err(fault.of(format!("`{}` is tied to other names", tensor.name())));
            }
            let mut into = String::new();
            found.expand(&merge.into, &mut into);
            let part = found.name("part").map_or("", |part| part.as_str());
            wholes.entry(into).or_default().push((at, part.to_owned()));
        }
        used.note("merge", &merge.matches, !wholes.is_empty());
        let mut made: HashMap<usize, Loose> = HashMap::new();
        let mut gone = vec![false; tensors.len()];
        for (into, parts) in wholes {
            let Some(&(first, _)) = parts.first() else {
                continue;
            };
            for (at, _) in &parts {
                if let Some(gone) = gone.get_mut(*at) {
                    *gone = true;
                }
            }
            let parts = ordered(&into, parts, merge, &fault)?;
            let parts: Vec<&Loose> = parts.iter().filter_map(|at| tensors.get(*at)).collect();
            made.insert(first, join(into, &parts, merge, &fault)?);
        }
        let old = tensors.into_iter().zip(gone).enumerate();
        tensors = old
            .filter_map(|(at, (tensor, gone))| match made.remove(&at) {
                Some(whole) => Some(whole),
                None => (!gone).then_some(tensor),
            })
            .collect();
    }
    Ok(tensors)
}

/// The parts of a whole in their order.
fn ordered(
    into: &str,
    parts: Vec<(usize, String)>,
    merge: &MergeText,
    fault: &Fault<'_>,
) -> Result<Vec<usize>, Error> {
    let count = parts.len();
    let mut slots: Vec<Option<usize>> = if merge.parts.is_empty() {
        vec![None; count]
    } else {
        vec![None; merge.parts.len()]
    };
    for (at, part) in parts {
        let place = if merge.parts.is_empty() {
            part.parse().ok()
        } else {
            merge.parts.iter().position(|known| *known == part)
        };
        let Some(slot) = place.and_then(|place: usize| slots.get_mut(place)) else {
            return Err(fault.of(if merge.parts.is_empty() {
                format!(
                    "`{into}` has {count} parts, and `{part}` is none of 0 to {}",
                    count - 1
                )
            } else {
                format!("`{into}` has a part `{part}`, which `parts` does not list")
            }));
        };
        if slot.replace(at).is_some() {
            return Err(fault.of(format!("`{into}` has two parts `{part}`")));
        }
    }
    let missing = slots.iter().position(Option::is_none);
    if let Some(missing) = missing {
        let part = merge.parts.get(missing).cloned();
        let part = part.unwrap_or_else(|| missing.to_string());
        return Err(fault.of(format!("`{into}` lacks part `{part}`")));
    }
    Ok(slots.into_iter().flatten().collect())
}

fn product(sizes: &[u64]) -> Option<u64> {
    sizes
        .iter()
        .try_fold(1u64, |all, size| all.checked_mul(*size))
}

/// Bytes of an element, if it is whole bytes.
fn width(tensor: &Loose) -> Option<u64> {
    let bits = u64::from(tensor.dtype.bits());
    (bits.is_multiple_of(8) && tensor.shape == tensor.stored_shape).then_some(bits / 8)
}

fn join(
    into: String,
    parts: &[&Loose],
    merge: &MergeText,
    fault: &Fault<'_>,
) -> Result<Loose, Error> {
    let fail = |why: String| fault.of(format!("`{into}`: {why}"));
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
        return Err(fail("it has no part".into()));
    };
    let (dim, stacks) = match (merge.stack, merge.concat) {
        (Some(dim), None) => (dim, true),
        (None, Some(dim)) => (dim, false),
        _ => return Err(fault.of("it needs `stack` or `concat`, and not both")),
    };
    let groups = match merge.groups {
        Some(_) if stacks => return Err(fault.of("`groups` goes with `concat`")),
        Some(0) => return Err(fault.of("`groups` is 0")),
        groups => groups.unwrap_or(1),
    };
    let dims = first.shape.len();
    let at = usize::try_from(dim).unwrap_or(usize::MAX);
    if at > dims || (at == dims && !stacks) {
        return Err(fail(format!("there is no dimension {dim} among {dims}")));
    }
    let width = width(first).ok_or_else(|| fail(format!("{} is packed", first.dtype)))?;
    let mut size = 0u64;
    let mut turns: Vec<Turn> = Vec::with_capacity(parts.len());
    let too_large = || fail("its bytes exceed 2^64".into());
    for part in parts {
        let own = if stacks {
            1
        } else {
            part.shape.get(at).copied().unwrap_or(0)
        };
        let alike = part.shape.len() == dims
            && part.dtype == first.dtype
            && (0..dims).all(|d| part.shape.get(d) == first.shape.get(d) || (d == at && !stacks));
        if !alike {
            return Err(fail(format!(
                "`{}` is {:?} of {}, `{}` is {:?} of {}",
                first.name(),
                first.shape,
                first.dtype,
                part.name(),
                part.shape,
                part.dtype
            )));
        }
        if !own.is_multiple_of(groups) && !stacks {
            return Err(fail(format!(
                "{own} rows of `{}` do not divide into {groups} groups",
                part.name()
            )));
        }
        size = size.checked_add(own).ok_or_else(too_large)?;
        let behind = part
            .shape
            .get(at + usize::from(!stacks)..)
            .unwrap_or_default();
        let run = product(behind)
            .and_then(|inner| inner.checked_mul(own / groups)?.checked_mul(width))
            .ok_or_else(too_large)?;
        turns.push((Some(Arc::clone(&part.bytes)), run));
    }
    let rounds = product(first.shape.get(..at).unwrap_or_default())
        .and_then(|outer| outer.checked_mul(groups))
        .ok_or_else(too_large)?;
    let mut shape = first.shape.clone();
    if stacks {
        shape.insert(at, size);
    } else if let Some(slot) = shape.get_mut(at) {
        *slot = size;
    }
    let sources: Vec<&str> = parts
        .iter()
        .filter_map(|part| part.names.first())
        .map(|name| name.source.as_str())
        .collect();
    let source = match sources.as_slice() {
        [first, .., last] if sources.len() > TOLD => {
            format!("{first} + ... + {last} ({} tensors)", sources.len())
        }
        _ => sources.join(" + "),
    };
    let same_file = parts.iter().all(|part| part.source == last.source);
    let bytes = Joined::new(turns, rounds).ok_or_else(too_large)?;
    Ok(Loose {
        names: vec![TensorName { name: into, source }],
        dtype: first.dtype,
        stored_shape: shape.clone(),
        shape,
        source: last.source.filter(|_| same_file),
        bytes: Arc::new(bytes),
    })
}

/// Puts zeros behind the last row of tensors.
pub(crate) fn pad(
    component: &str,
    tensors: &mut [Loose],
    pads: &[PadText],
    used: &mut Used,
) -> Result<(), Error> {
    for pad in pads {
        let fault = Fault {
            component,
            what: "pad",
            pattern: &pad.matches,
        };
        let glob = Glob::new(&pad.matches)
            .map_err(|error| fault.of(error.kind().to_string()))?
            .compile_matcher();
        let mut matched = false;
        for tensor in tensors.iter_mut() {
            if tensor.names.iter().any(|name| glob.is_match(&name.name)) {
                matched = true;
                lengthen(tensor, pad, &fault)?;
            }
        }
        used.note("pad", &pad.matches, matched);
    }
    Ok(())
}

fn lengthen(tensor: &mut Loose, pad: &PadText, fault: &Fault<'_>) -> Result<(), Error> {
    let name = tensor.name().to_owned();
    let fail = |why: String| fault.of(format!("`{name}`: {why}"));
    let at = usize::try_from(pad.dim).unwrap_or(usize::MAX);
    let dims = tensor.shape.len();
    let Some(&size) = tensor.shape.get(at) else {
        return Err(fail(format!(
            "there is no dimension {} among {dims}",
            pad.dim
        )));
    };
    let width = width(tensor).ok_or_else(|| fail(format!("{} is packed", tensor.dtype)))?;
    let padded = match pad.multiple {
        0 => return Err(fail("`multiple` is 0".into())),
        multiple => size.checked_next_multiple_of(multiple),
    };
    let inner = product(tensor.shape.get(at + 1..).unwrap_or_default());
    let row = inner.and_then(|inner| inner.checked_mul(width));
    let rounds = product(tensor.shape.get(..at).unwrap_or_default());
    let joined = padded
        .zip(row)
        .zip(rounds)
        .and_then(|((padded, row), rounds)| {
            let turns = vec![
                (Some(Arc::clone(&tensor.bytes)), size.checked_mul(row)?),
                (None, (padded - size).checked_mul(row)?),
            ];
            Some((padded, Joined::new(turns, rounds)?))
        });
    let (padded, bytes) = joined.ok_or_else(|| fail("its bytes exceed 2^64".into()))?;
    if padded > size {
        if let Some(slot) = tensor.shape.get_mut(at) {
            *slot = padded;
        }
        tensor.stored_shape.clone_from(&tensor.shape);
        tensor.bytes = Arc::new(bytes);
    }
    Ok(())
}
