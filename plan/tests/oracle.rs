//! Every layout against its formula, written once more in the plainest way: indices in, indices out, for
//! each rank alone. What ranks have in common must be stored once.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use support::{model, tensor};
use wpack_format::{BoxPart, Content, DType, FlatPart, Slice, SliceKind};
use wpack_plan::{Inventory, Mesh, Plan, PlanFile, TensorSpec, plan};

/// An element of a tensor, or the number that fills its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Element {
    Of(usize, u64),
    Fill(u8),
}

/// What a rank holds, sorted: the shape and the elements of its part of each tensor or flat group.
type Held = Vec<Piece>;
type Piece = (Vec<u64>, Vec<Element>);

/// Part of a tensor: its shape, and the row-major index of each element in the whole.
#[derive(Clone)]
struct Part {
    shape: Vec<u64>,
    elements: Vec<u64>,
}

impl Part {
    fn whole(spec: &TensorSpec) -> Self {
        Self {
            shape: spec.shape.clone(),
            elements: (0..spec.shape.iter().product()).collect(),
        }
    }

    /// These indices of a dimension.
    fn take(&self, dim: usize, rows: &[u64]) -> Self {
        let inner: u64 = self.shape[dim + 1..].iter().product();
        let outer: u64 = self.shape[..dim].iter().product();
        let mut elements = Vec::new();
        for block in 0..outer {
            for row in rows {
                for at in 0..inner {
                    let flat = (block * self.shape[dim] + row) * inner + at;
                    elements.push(self.elements[usize::try_from(flat).unwrap()]);
                }
            }
        }
        let mut shape = self.shape.clone();
        shape[dim] = u64::try_from(rows.len()).unwrap();
        Self { shape, elements }
    }
}

/// `torch.chunk`: the rows of one part.
fn chunk(rows: &[u64], parts: u64, at: u64) -> Vec<u64> {
    let size = rows.len().div_ceil(usize::try_from(parts).unwrap()).max(1);
    let part = rows.chunks(size).nth(usize::try_from(at).unwrap());
    part.unwrap_or_default().to_vec()
}

/// Two halves, each cut: gate and up.
fn halves(rows: &[u64], parts: u64, at: u64) -> Vec<u64> {
    let mut out = Vec::new();
    for half in rows.chunks(rows.len().div_ceil(2).max(1)) {
        out.extend(chunk(half, parts, at));
    }
    out
}

/// The ranks along some axes of the mesh, and where a rank lies along them; of the only axis, whatever its
/// name.
fn along(mesh: &Mesh, rank: u32, names: &[&str]) -> (u64, u64) {
    let coords = mesh.coords(rank).unwrap();
    let (mut parts, mut at) = (1, 0);
    for (axis, coord) in mesh.axes().iter().zip(coords) {
        if names.contains(&axis.name.as_str()) || mesh.axes().len() == 1 {
            parts *= u64::from(axis.size);
            at = at * u64::from(axis.size) + u64::from(coord);
        }
    }
    (parts, at)
}

/// The layer of a name, and what stands behind it.
fn layer(name: &str) -> Option<(u64, &str)> {
    let (number, rest) = name.strip_prefix("layers.")?.split_once('.')?;
    Some((number.parse().unwrap(), rest))
}

/// What a rank holds of a tensor; none where the tensor is another stage's.
fn part(
    layout: &str,
    mesh: &Mesh,
    rank: u32,
    spec: &TensorSpec,
    layers: u64,
) -> Option<(Vec<u64>, Vec<Option<u64>>)> {
    let name = spec.names[0].as_str();
    let parameter = !spec.shape.is_empty() && spec.dtype == DType::Bf16;
    let mut part = Part::whole(spec);
    let experts = name.ends_with(".experts");
    for step in layout.split('+') {
        if step == "pp" {
            let (stages, stage) = along(mesh, rank, &["pp"]);
            let owned = match layer(name) {
                Some((number, _)) => {
                    let sizes =
                        (0..stages).map(|at| layers / stages + u64::from(at < layers % stages));
                    let bounds: Vec<u64> = sizes
                        .scan(0, |sum, size| {
                            *sum += size;
                            Some(*sum)
                        })
                        .collect();
                    bounds.iter().position(|end| number < *end)
                        == Some(usize::try_from(stage).unwrap())
                }
                // Tied to the head, the embedding lies on both ends.
                None if name.starts_with("embed") => stage == 0 || stage == stages - 1,
                None => stage == stages - 1,
            };
            if !owned {
                return None;
            }
        }
        if !parameter {
            continue;
        }
        let rows = |dim: usize| (0..part.shape[dim]).collect::<Vec<u64>>();
        match step {
            "fsdp2" | "hsdp" => {
                let axes: &[&str] = match mesh.axis("efsdp") {
                    Some(_) if experts => &["efsdp"],
                    Some(_) => &["efsdp", "ep"],
                    None => &["fsdp", "dp_shard"],
                };
                let (parts, at) = along(mesh, rank, axes);
                part = part.take(0, &chunk(&rows(0), parts, at));
            }
            "tp" => {
                let (parts, at) = along(mesh, rank, &["tp"]);
                let dims = part.shape.len();
                part = match layer(name) {
                    Some((_, "up.weight")) => part.take(0, &halves(&rows(0), parts, at)),
                    Some((_, "up.bias")) => part.take(0, &chunk(&rows(0), parts, at)),
                    Some((_, "down.weight")) => {
                        part.take(dims - 1, &chunk(&rows(dims - 1), parts, at))
                    }
                    Some((_, "experts")) if mesh.axis("ep").is_none() => {
                        part.take(0, &chunk(&rows(0), parts, at))
                    }
                    _ => part,
                };
            }
            "ep" if experts => {
                let (parts, at) = along(mesh, rank, &["ep"]);
                part = part.take(0, &chunk(&rows(0), parts, at));
            }
            "zero3" => {
                let (parts, at) = along(mesh, rank, &["dp", "sp"]);
                let count = u64::try_from(part.elements.len()).unwrap();
                let size = count.div_ceil(parts);
                let held = (size * at..size * at + size)
                    .map(|at| part.elements.get(usize::try_from(at).unwrap()).copied())
                    .collect();
                return Some((vec![size], held));
            }
            _ => {}
        }
    }
    Some((part.shape, part.elements.into_iter().map(Some).collect()))
}

/// What a rank holds of FSDP1's units: each layer, and the rest.
fn units(inventory: &[TensorSpec], parts: u64, at: u64, original: bool) -> Held {
    let mut streams: BTreeMap<Option<u64>, Vec<Element>> = BTreeMap::new();
    let fill = if original { 42 } else { 0 };
    for (number, spec) in inventory.iter().enumerate() {
        if spec.shape.is_empty() || spec.dtype != DType::Bf16 {
            continue;
        }
        let unit = layer(&spec.names[0]).map(|(number, _)| number);
        let stream = streams.entry(unit).or_default();
        if original {
            // Sixteen bytes.
            stream.resize(stream.len().next_multiple_of(8), Element::Fill(fill));
        }
        let count: u64 = spec.shape.iter().product();
        stream.extend((0..count).map(|element| Element::Of(number, element)));
    }
    let mut held = Held::new();
    for mut stream in streams.into_values() {
        let size = stream.len().div_ceil(usize::try_from(parts).unwrap());
        stream.resize(size * usize::try_from(parts).unwrap(), Element::Fill(fill));
        let start = size * usize::try_from(at).unwrap();
        let elements = stream[start..start + size].to_vec();
        held.push((vec![u64::try_from(size).unwrap()], elements));
    }
    held
}

/// All that a rank must hold.
fn expected(layout: &str, mesh: &Mesh, rank: u32, inventory: &Inventory, original: bool) -> Held {
    let tensors = &inventory.components[0].tensors;
    let layers = tensors
        .iter()
        .filter_map(|spec| layer(&spec.names[0]))
        .map(|(number, _)| number + 1)
        .max();
    let mut held = Held::new();
    if layout == "fsdp1" {
        let (parts, at) = along(mesh, rank, &["fsdp"]);
        held = units(tensors, parts, at, original);
    }
    for (number, spec) in tensors.iter().enumerate() {
        if layout == "fsdp1" && !spec.shape.is_empty() && spec.dtype == DType::Bf16 {
            continue;
        }
        if let Some((shape, elements)) = part(layout, mesh, rank, spec, layers.unwrap_or(0)) {
            let elements = elements.into_iter();
            let elements =
                elements.map(|at| at.map_or(Element::Fill(0), |at| Element::Of(number, at)));
            held.push((shape, elements.collect()));
        }
    }
    held
}

/// A slice element by element.
fn elements(slice: &Slice, tensors: &[TensorSpec]) -> Vec<Element> {
    let number = |value: &[u8; 16], dtype: DType| match dtype {
        _ if value == &[0; 16] => 0,
        DType::Bf16 if value[..2] == [0x28, 0x42] => 42,
        _ => panic!("{value:?} fills {dtype}"),
    };
    let of = |tensor: u32, at| Element::Of(usize::try_from(tensor).unwrap(), at);
    let mut out = Vec::new();
    match &slice.content {
        Content::Flat { parts } => {
            for piece in parts {
                match *piece {
                    FlatPart::Range { tensor, start, len } => {
                        out.extend((start..start + len).map(|at| of(tensor, at)));
                    }
                    FlatPart::Fill { len, value } => {
                        let fill = Element::Fill(number(&value.0, slice.dtype));
                        out.extend((0..len).map(|_| fill));
                    }
                }
            }
        }
        Content::Whole { tensor } => {
            out.extend((0..slice.shape.iter().product()).map(|at| of(*tensor, at)));
        }
        Content::Boxes { tensor, dim, parts } => {
            let spec = &tensors[usize::try_from(*tensor).unwrap()];
            let along = usize::try_from(*dim).unwrap();
            let mut rows = Vec::new();
            let mut part = Part::whole(spec);
            for piece in parts {
                let BoxPart::Box { start, size } = piece else {
                    panic!("no layout fills boxes")
                };
                rows.extend(start[along]..start[along] + size[along]);
                // All boxes of a slice are alike in the other dimensions.
                if rows.len() == usize::try_from(size[along]).unwrap() {
                    for other in (0..size.len()).filter(|other| *other != along) {
                        let range: Vec<u64> = (start[other]..start[other] + size[other]).collect();
                        part = part.take(other, &range);
                    }
                }
            }
            let part = part.take(along, &rows);
            out.extend(part.elements.into_iter().map(|at| of(*tensor, at)));
        }
    }
    out
}

const FACTS: &str = r#"
order = "checkpoint"
default_style = "replicate"
[stages]
layers = "layers"
first = ["embed.*"]
last = ["embed.*", "head.*", "steps", "one", "none"]
[[rule]]
match = "*.up.*"
style = "packed_colwise"
[[rule]]
match = "*.down.weight"
style = "rowwise"
[[rule]]
match = "*.experts"
style = "grouped_gemm"
"#;

fn layers(sizes: &[(u64, u64)]) -> Inventory {
    let mut tensors = vec![tensor("embed.weight", DType::Bf16, &[11, 3])];
    for (at, &(rows, columns)) in sizes.iter().enumerate() {
        for (name, shape) in [
            ("up.weight", vec![2 * rows, columns]),
            ("up.bias", vec![2 * rows]),
            ("down.weight", vec![columns, rows]),
            ("experts", vec![12, rows, columns]),
            ("norm", vec![columns]),
        ] {
            tensors.push(tensor(&format!("layers.{at}.{name}"), DType::Bf16, &shape));
        }
    }
    tensors.push(tensor("one", DType::Bf16, &[1]));
    tensors.push(tensor("none", DType::Bf16, &[0, 3]));
    tensors.push(tensor("steps", DType::I64, &[]));
    tensors.push(tensor("head.weight", DType::Bf16, &[7, 3]));
    model(tensors)
}

fn cases() -> impl Strategy<Value = (&'static str, String)> {
    (1u32..5, 1u32..5, 0usize..21).prop_map(|(a, b, which)| match which {
        0 => ("zero1", format!("dp={a}")),
        1 => ("zero2", format!("dp={a}")),
        2 => ("zero3", format!("dp={a},sp={b}")),
        3 => ("fsdp1", format!("fsdp={a}")),
        4 => ("fsdp1", format!("dp={b},fsdp={a}")),
        5 => ("fsdp2", format!("fsdp={}", a * b)),
        6 => ("hsdp", format!("dp_replicate={b},fsdp={a}")),
        7 => ("tp", format!("tp={a}")),
        8 => ("tp", format!("tp={a},dp={b}")),
        9 => ("ep", format!("dp={b},ep={a}")),
        10 => ("pp", format!("pp={a}")),
        11 => ("usp+fsdp2", format!("sp={a}")),
        12 => ("tp+fsdp2", format!("fsdp={a},tp={b}")),
        13 => ("tp+fsdp2", format!("tp={b},fsdp={a}")),
        14 => ("ep+fsdp2", format!("efsdp={a},ep={b}")),
        15 => ("pp+fsdp2", format!("pp={b},fsdp={a}")),
        16 => ("pp+zero3", format!("pp={b},dp={a}")),
        17 => ("pp+tp", format!("tp={b},pp={a}")),
        18 => ("pp+tp+fsdp2", format!("pp={a},fsdp=2,tp={b}")),
        19 => ("pp+ep+fsdp2", format!("pp=2,efsdp={a},ep={b}")),
        _ => ("tp+ep+fsdp2", format!("tp={a},efsdp=2,ep={b}")),
    })
}

/// The slices of a rank, and where each is stored.
fn slices_of(plan: &Plan, rank: u32) -> Vec<((usize, u64), Slice)> {
    let slices = plan.extents_of(rank).flat_map(|at| {
        let slices = plan.slices(at).unwrap().into_iter();
        slices.map(move |slice| ((at, slice.offset), slice))
    });
    slices.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_rank_holds_what_the_formula_says(
        (layout, mesh) in cases(),
        sizes in proptest::collection::vec((1u64..6, 1u64..6), 1..5),
        original in any::<bool>(),
    ) {
        let inventory = layers(&sizes);
        let fsdp1 = format!("fsdp1 = {{ units = [\"layers.*\"], use_orig_params = {original} }}");
        let text = format!("mesh = {mesh:?}\nlayout = {layout:?}\n{fsdp1}\n{FACTS}");
        let request = PlanFile::parse(&text).unwrap().request().unwrap();
        let planned = plan(&inventory, &request);
        let planned = match planned {
            Ok(planned) => planned,
            Err(why) => return Err(TestCaseError::fail(format!("{why}: {text}"))),
        };
        let mesh: Mesh = mesh.parse().unwrap();
        let tensors = &inventory.components[0].tensors;
        let mut union: BTreeSet<Element> = BTreeSet::new();
        // Where content is stored, and by whom it is wanted.
        let mut places: BTreeMap<Piece, BTreeSet<(usize, u64)>> = BTreeMap::new();
        for rank in 0..mesh.ranks() {
            let mut found = Held::new();
            let mut bytes = 0;
            for (place, slice) in slices_of(&planned, rank) {
                prop_assert_eq!(slice.kind, SliceKind::Value);
                let elements = elements(&slice, tensors);
                prop_assert_eq!(u64::try_from(elements.len()).unwrap(), slice.shape.iter().product::<u64>());
                bytes += slice.len_bytes().unwrap();
                union.extend(&elements);
                let content = (slice.shape.clone(), elements);
                if content.1.iter().any(|element| matches!(element, Element::Of(..))) {
                    places.entry(content.clone()).or_default().insert(place);
                }
                found.push(content);
            }
            found.sort_unstable();
            let mut wanted = expected(layout, &mesh, rank, &inventory, original);
            wanted.sort_unstable();
            prop_assert_eq!(&found, &wanted, "rank {} of {}", rank, text);
            if planned.ranks().is_some() {
                prop_assert_eq!(planned.rank_bytes(rank), bytes);
            }
        }
        // Replicas have one place.
        for (content, places) in places {
            prop_assert_eq!(places.len(), 1, "{:?}", content);
        }
        let real = union.iter().filter(|element| matches!(element, Element::Of(..))).count();
        let all: u64 = tensors.iter().map(|spec| spec.shape.iter().product::<u64>()).sum();
        prop_assert_eq!(u64::try_from(real).unwrap(), all);
    }
}
