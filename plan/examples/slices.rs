//! Prints who holds what, as JSON: the slices of every rank of a plan.
//!
//!     cargo run -p wpack-plan --example slices -- INVENTORY.json PLAN.toml
//!
//! The inventory is a list of `{"name": .., "dtype": .., "shape": [..]}`. The proofs under `tests/frameworks`
//! compare what this prints with what a framework holds.

use std::error::Error;
use std::io::Write as _;

use serde_json::{Value, json};
use wpack_format::{BoxPart, Content, DType, Fill, FlatPart, Slice, SliceKind};
use wpack_plan::{ComponentSpec, Inventory, PlanFile, TensorSpec, plan};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(inventory), Some(file)) = (args.next(), args.next()) else {
        return Err("usage: slices INVENTORY.json PLAN.toml".into());
    };
    let tensors = serde_json::from_str::<Vec<Value>>(&std::fs::read_to_string(inventory)?)?
        .iter()
        .map(tensor)
        .collect::<Option<Vec<_>>>()
        .ok_or("the inventory is no list of names, types and shapes")?;
    let component = ComponentSpec {
        name: "model".into(),
        tensors,
    };
    let request = PlanFile::parse(&std::fs::read_to_string(file)?)?.request()?;
    let plan = plan(
        &Inventory {
            components: vec![component],
        },
        &request,
    )?;
    let mut ranks = Vec::new();
    for rank in 0..plan.ranks().unwrap_or(1) {
        let mut slices = Vec::new();
        for extent in plan.extents_of(rank) {
            slices.extend(plan.slices(extent)?.iter().map(shown));
        }
        ranks.push(slices);
    }
    writeln!(std::io::stdout(), "{}", json!(ranks))?;
    Ok(())
}

fn tensor(entry: &Value) -> Option<TensorSpec> {
    let shape = entry.get("shape")?.as_array()?;
    Some(TensorSpec {
        names: vec![entry.get("name")?.as_str()?.to_owned()],
        dtype: DType::from_name(entry.get("dtype")?.as_str()?)?,
        shape: shape.iter().map(Value::as_u64).collect::<Option<_>>()?,
    })
}

fn hex(value: &Fill) -> String {
    value.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn shown(slice: &Slice) -> Value {
    let (content, dim, parts): (_, _, Vec<Value>) = match &slice.content {
        Content::Whole { tensor } => {
            let start = vec![0; slice.shape.len()];
            ("whole", 0, vec![json!([tensor, start, slice.shape])])
        }
        Content::Boxes { tensor, dim, parts } => {
            let part = |part: &BoxPart| match part {
                BoxPart::Box { start, size } => json!([tensor, start, size]),
                BoxPart::Fill { size, value } => json!({ "fill": size, "value": hex(value) }),
            };
            ("boxes", *dim, parts.iter().map(part).collect())
        }
        Content::Flat { parts } => {
            let part = |part: &FlatPart| match part {
                FlatPart::Range { tensor, start, len } => json!([tensor, [start], [len]]),
                FlatPart::Fill { len, value } => json!({ "fill": len, "value": hex(value) }),
            };
            ("flat", 0, parts.iter().map(part).collect())
        }
    };
    json!({
        "kind": if slice.kind == SliceKind::Master { "master" } else { "value" },
        "dtype": slice.dtype.name(),
        "shape": slice.shape,
        "content": content,
        "dim": dim,
        "parts": parts,
    })
}
