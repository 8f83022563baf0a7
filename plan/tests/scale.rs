//! A thousand ranks and a hundred thousand tensors are planned without holding the slices.

mod support;

use support::{model, tensor};
use wpack_format::DType;
use wpack_plan::{Request, plan};

#[test]
fn thousand_ranks_hundred_thousand_tensors() {
    let shapes: [&[u64]; 6] = [
        &[5120, 5120],
        &[5120],
        &[13824, 5120],
        &[1, 6, 5120],
        &[],
        &[40, 128],
    ];
    let tensors = (0..100_000)
        .map(|at| {
            tensor(
                &format!("blocks.{at}.weight"),
                DType::Bf16,
                shapes[at % shapes.len()],
            )
        })
        .collect();
    let inventory = model(tensors);
    for layout in ["zero3", "fsdp2"] {
        let request = Request {
            layout: layout.into(),
            ranks: Some(1000),
            ..Request::default()
        };
        let plan = plan(&inventory, &request).unwrap();
        assert_eq!(plan.extents().len(), 1001);
        let slices: u64 = plan
            .extents()
            .iter()
            .map(|extent| u64::from(extent.slice_count))
            .sum();
        let whole = 100_000 / 6;
        assert_eq!(slices, (100_000 - whole) * 1000 + whole);
        assert_eq!(plan.bytes_by_rank().len(), 1000);
        let last = plan.slices(1000).unwrap();
        assert_eq!(u64::try_from(last.len()).unwrap(), 100_000 - whole);
    }
}
