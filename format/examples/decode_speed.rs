//! Times the decoding of a tensor table and a slice table of 100 000 entries each.

use std::{hint::black_box, time::Instant};

use wpack_format::{
    Content, DType, Role, Slice, SliceKind, SliceTable, TableRef, Tensor, TensorName, TensorTable,
    place_slice,
};

#[expect(clippy::print_stdout, reason = "a measurement prints")]
fn main() {
    let tensors: Vec<Tensor> = (0..100_000_u64)
        .map(|i| {
            let name = format!(
                "model.layers.{}.mlp.experts.{}.down_proj.weight",
                i / 64,
                i % 64
            );
            Tensor {
                names: vec![TensorName {
                    source: name.clone(),
                    name,
                }],
                dtype: DType::Bf16,
                source_dtype: DType::Bf16,
                shape: vec![32, 16],
                stored_shape: vec![32, 16],
                role: Role::Parameter,
                rule: 0,
                source: Some(0),
            }
        })
        .collect();
    let mut end = 0;
    let slices: Vec<Slice> = (0_u32..100_000)
        .map(|tensor| {
            let offset = place_slice(end, 1024).unwrap_or_default();
            end = offset + 1024;
            Slice {
                content: Content::Whole { tensor },
                kind: SliceKind::Value,
                dtype: DType::Bf16,
                shape: vec![32, 16],
                offset,
                crc32c: Some(tensor),
            }
        })
        .collect();
    let tensor_bytes = TensorTable::encode(&tensors);
    let slice_bytes = SliceTable::encode(&slices);
    println!(
        "tensor table {} bytes, slice table {} bytes",
        tensor_bytes.len(),
        slice_bytes.len()
    );
    let refs = [
        TableRef::of(0, &tensor_bytes),
        TableRef::of(0, &slice_bytes),
    ];
    for _ in 0..40 {
        let start = Instant::now();
        let checked = [&tensor_bytes, &slice_bytes];
        refs.iter().zip(checked).for_each(|(table, bytes)| {
            black_box(table.check("table", bytes)).unwrap_or_default();
        });
        let crc = start.elapsed();
        let start = Instant::now();
        let tensors = TensorTable::decode(&tensor_bytes, 100_000);
        let tensor_time = start.elapsed();
        let start = Instant::now();
        let slices = SliceTable::decode(&slice_bytes, 100_000, end, 100_000);
        let slice_time = start.elapsed();
        let start = Instant::now();
        if let (Ok(tensors), Ok(slices)) = (&tensors, &slices) {
            black_box(slices.check_tensors(tensors)).unwrap_or_default();
        }
        let check_time = start.elapsed();
        println!(
            "crc {crc:?}, tensors {tensor_time:?}, slices {slice_time:?}, check {check_time:?}"
        );
    }
}
