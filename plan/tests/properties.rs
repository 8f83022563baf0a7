//! For any inventory, mesh and layout: all ranks together hold the tensors, and each rank what its rule
//! says.

mod support;

use std::collections::HashMap;

use proptest::prelude::*;
use support::{elements, inventory};
use wpack_format::{
    Content, DType, FlatPart, Owners, Role, Slice, SliceTable, Tensor, TensorName, TensorTable,
    spec,
};
use wpack_plan::{Error, Fault, Inventory, Mesh, Plan, Request, plan};

/// A layout, and a mesh text that fits it.
fn layout() -> impl Strategy<Value = (String, Option<String>)> {
    let one = |name: &'static str| {
        (1u32..9).prop_map(move |ranks| (name.to_owned(), Some(format!("any={ranks}"))))
    };
    prop_oneof![
        Just(("replicate".to_owned(), None)),
        Just(("usp".to_owned(), Some("sp=4".to_owned()))),
        one("zero3"),
        one("fsdp2"),
        (1u32..4, 1u32..5)
            .prop_map(|(a, b)| ("fsdp2".to_owned(), Some(format!("dp={a},fsdp={b}")))),
        (1u32..4, 1u32..5)
            .prop_map(|(a, b)| ("fsdp2".to_owned(), Some(format!("fsdp={a},dp={b}")))),
        (1u32..4, 1u32..5).prop_map(|(a, b)| ("zero3".to_owned(), Some(format!("dp={a},sp={b}")))),
    ]
}

/// The request, and the plan; none where a packed type cannot be cut, which is checked.
fn planned(inventory: &Inventory, layout: &str, mesh: Option<&str>) -> Option<Plan> {
    let request = Request {
        layout: layout.to_owned(),
        mesh: mesh.map(|text| text.parse().unwrap()),
        ..Request::default()
    };
    match plan(inventory, &request) {
        Ok(plan) => {
            let again = self::plan(inventory, &request).unwrap();
            assert_eq!(format!("{plan:?}"), format!("{again:?}"));
            Some(plan)
        }
        Err(Error::CannotCut {
            dtype,
            why: Fault::PartialByte { .. },
            ..
        }) => {
            assert!(
                matches!(dtype, DType::F4 | DType::F6E2M3 | DType::F6E3M2),
                "{dtype}"
            );
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// What a rank must hold of a parameter, by the frameworks' formulas written once more.
fn expected(layout: &str, mesh: &Mesh, rank: u32, shape: &[u64]) -> (Vec<u64>, Vec<Option<u64>>) {
    let coords = mesh.coords(rank).unwrap();
    let (mut parts, mut at) = (1, 0);
    for (axis, coord) in mesh.axes().iter().zip(coords) {
        let cuts = mesh.axes().len() == 1
            || axis.name == "fsdp"
            || (layout == "zero3" && ["dp", "sp"].contains(&axis.name.as_str()));
        if cuts {
            parts *= u64::from(axis.size);
            at = at * u64::from(axis.size) + u64::from(coord);
        }
    }
    let count: u64 = shape.iter().product();
    if layout == "zero3" {
        let part = count.div_ceil(parts);
        let held = (part * at..part * at + part)
            .map(|flat| (flat < count).then_some(flat))
            .collect();
        (vec![part], held)
    } else {
        let rows = shape[0].div_ceil(parts);
        let (lo, hi) = ((rows * at).min(shape[0]), (rows * at + rows).min(shape[0]));
        let width: u64 = shape[1..].iter().product();
        let mut local = shape.to_vec();
        local[0] = hi - lo;
        (local, (lo * width..hi * width).map(Some).collect())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ranks_together_hold_every_element_once((layout, mesh) in layout(), inventory in inventory()) {
        let Some(plan) = planned(&inventory, &layout, mesh.as_deref()) else { return Ok(()) };
        let shape_of = |component: u32| {
            let spec = &inventory.components[usize::try_from(component).unwrap()];
            move |tensor: u32| spec.tensors[usize::try_from(tensor).unwrap()].shape.clone()
        };
        // Stored copies of each element: one, whatever the number of ranks that hold it.
        let mut stored: HashMap<(u32, u32, u64), u32> = HashMap::new();
        for (at, extent) in plan.extents().iter().enumerate() {
            let slices = plan.slices(at).unwrap();
            prop_assert_eq!(slices.len(), usize::try_from(extent.slice_count).unwrap());
            let (mut end, mut sum) = (0, 0);
            for slice in &slices {
                let count: u64 = slice.shape.iter().product();
                let bytes = slice.dtype.bytes(count).unwrap();
                let align = if bytes >= spec::SLICE_PAGE { spec::SLICE_PAGE } else { spec::SLICE_ALIGN };
                prop_assert!(slice.offset >= end && slice.offset - end < align && slice.offset % align == 0);
                prop_assert_eq!(slice.crc32c, None);
                end = slice.offset + bytes;
                sum += bytes;
                let held = elements(slice, &shape_of(extent.component));
                prop_assert_eq!(u64::try_from(held.len()).unwrap(), count);
                for (tensor, element) in held.into_iter().flatten() {
                    *stored.entry((extent.component, tensor, element)).or_default() += 1;
                }
            }
            prop_assert_eq!((end, sum), (extent.len, extent.bytes));
            let tensors = format_tensors(&inventory, extent.component);
            let count = u32::try_from(tensors.len()).unwrap();
            let table = SliceTable::decode(SliceTable::encode(&slices), extent.slice_count, end, count);
            let tensors = TensorTable::decode(TensorTable::encode(&tensors), count).unwrap();
            table.unwrap().check_tensors(&tensors).unwrap();
        }
        prop_assert!(stored.values().all(|&copies| copies == 1));
        let all: u64 = inventory.components.iter().flat_map(|c| &c.tensors)
            .map(|t| t.shape.iter().product::<u64>()).sum();
        prop_assert_eq!(u64::try_from(stored.len()).unwrap(), all);
    }

    #[test]
    fn each_rank_holds_what_the_formula_says((layout, mesh) in layout(), inventory in inventory()) {
        let Some(plan) = planned(&inventory, &layout, mesh.as_deref()) else { return Ok(()) };
        let predicted = plan.bytes_by_rank();
        for rank in 0..plan.ranks().unwrap_or(2) {
            let mut seen = HashMap::new();
            let mut bytes = 0;
            for at in plan.extents_of(rank) {
                let component = plan.extents()[at].component;
                let spec = &inventory.components[usize::try_from(component).unwrap()];
                for slice in plan.slices(at).unwrap() {
                    bytes += slice.dtype.bytes(slice.shape.iter().product()).unwrap();
                    let shape_of = |tensor: u32| spec.tensors[usize::try_from(tensor).unwrap()].shape.clone();
                    let held = elements(&slice, &shape_of);
                    let old = seen.insert((component, tensor_of(&slice)), (slice.shape.clone(), held));
                    prop_assert!(old.is_none());
                }
            }
            prop_assert_eq!(plan.rank_bytes(rank), bytes);
            if let Some(expected) = predicted.get(usize::try_from(rank).unwrap()) {
                prop_assert_eq!(*expected, bytes);
            }
            for (component, spec) in inventory.components.iter().enumerate() {
                let component = u32::try_from(component).unwrap();
                for (tensor, spec) in spec.tensors.iter().enumerate() {
                    let tensor = u32::try_from(tensor).unwrap();
                    let decision = plan.decision(component, tensor).unwrap();
                    let parameter = !spec.shape.is_empty() && spec.dtype.is_floating();
                    prop_assert_eq!(decision.role == Role::Parameter, parameter);
                    let (got_shape, got) = &seen[&(component, tensor)];
                    let (shape, held) = match plan.mesh() {
                        Some(mesh) if parameter => expected(&layout, mesh, rank, &spec.shape),
                        _ => (spec.shape.clone(), (0..spec.shape.iter().product()).map(Some).collect()),
                    };
                    prop_assert_eq!(got_shape, &shape);
                    let got: Vec<_> = got.iter().map(|place| place.map(|(_, at)| at)).collect();
                    prop_assert_eq!(got, held);
                }
            }
        }
    }

    #[test]
    fn who_holds_an_extent_is_told_alike((layout, mesh) in layout(), inventory in inventory()) {
        let Some(plan) = planned(&inventory, &layout, mesh.as_deref()) else { return Ok(()) };
        let all = plan.extents().iter().all(|extent| extent.owners == Owners::All);
        prop_assert_eq!(all, plan.mesh().is_none());
        for rank in 0..plan.ranks().unwrap_or(3) {
            for (at, extent) in plan.extents().iter().enumerate() {
                let holds = plan.extents_of(rank).any(|held| held == at);
                prop_assert_eq!(holds, extent.owners.ranks(rank + 1).any(|owner| owner == rank));
            }
        }
        for pair in plan.extents().windows(2) {
            prop_assert!(pair[0].component <= pair[1].component);
            prop_assert!((pair[0].component, &pair[0].owners) != (pair[1].component, &pair[1].owners));
        }
    }
}

/// A component's tensors as a pack describes them.
fn format_tensors(inventory: &Inventory, component: u32) -> Vec<Tensor> {
    inventory.components[usize::try_from(component).unwrap()]
        .tensors
        .iter()
        .map(|spec| Tensor {
            names: spec
                .names
                .iter()
                .map(|name| TensorName {
                    name: name.clone(),
                    source: name.clone(),
                })
                .collect(),
            dtype: spec.dtype,
            source_dtype: spec.dtype,
            shape: spec.shape.clone(),
            stored_shape: match spec.dtype.bytes(spec.shape.iter().product()) {
                Some(bytes) if spec.dtype.bits() < 8 => vec![bytes],
                _ => spec.shape.clone(),
            },
            role: Role::Parameter,
            rule: 0,
            source: None,
        })
        .collect()
}

/// The tensor that a slice is of.
fn tensor_of(slice: &Slice) -> u32 {
    match &slice.content {
        Content::Whole { tensor } | Content::Boxes { tensor, .. } => *tensor,
        Content::Flat { parts } => match parts.first() {
            Some(FlatPart::Range { tensor, .. }) => *tensor,
            other => panic!("{other:?}"),
        },
    }
}
