//! A small pack's index, there and back.

use wpack_format::*;

#[test]
fn root_and_tables_lead_back() {
    let tensors = vec![
        Tensor {
            names: vec![
                TensorName {
                    name: "b".into(),
                    source: "b".into(),
                },
                TensorName {
                    name: "a".into(),
                    source: "x.a".into(),
                },
            ],
            dtype: DType::Bf16,
            source_dtype: DType::F32,
            shape: vec![3, 5],
            stored_shape: vec![3, 5],
            role: Role::Parameter,
            rule: 0,
            source: None,
        },
        Tensor {
            names: vec![TensorName {
                name: "".into(),
                source: "".into(),
            }],
            dtype: DType::F4,
            source_dtype: DType::F4,
            shape: vec![4, 8],
            stored_shape: vec![4, 4],
            role: Role::Buffer,
            rule: 1,
            source: Some(0),
        },
    ];
    let bytes = TensorTable::encode(&tensors);
    let table = TensorTable::decode(bytes, 2).unwrap();
    assert_eq!(table.get(0).as_ref(), Some(&tensors[0]));
    assert_eq!(table.get(1).as_ref(), Some(&tensors[1]));
    assert_eq!(table.get(2), None);
    assert_eq!(table.find("a"), Some(0));
    assert_eq!(table.find(""), Some(1));
    assert_eq!(table.find("c"), None);

    let slices = vec![
        Slice {
            content: Content::Boxes {
                tensor: 0,
                dim: 0,
                parts: vec![
                    BoxPart::Box {
                        start: vec![2, 0],
                        size: vec![1, 5],
                    },
                    BoxPart::Fill {
                        size: 1,
                        value: Fill::ZERO,
                    },
                ],
            },
            kind: SliceKind::Value,
            dtype: DType::Bf16,
            shape: vec![2, 5],
            offset: 0,
            crc32c: Some(5),
        },
        Slice {
            content: Content::Whole { tensor: 1 },
            kind: SliceKind::Value,
            dtype: DType::F4,
            shape: vec![4, 8],
            offset: 512,
            crc32c: Some(6),
        },
    ];
    let bytes = SliceTable::encode(&slices);
    let slice_ref = TableRef::of(0, &bytes);
    let slice_table = SliceTable::decode(bytes, 2, 528, 2).unwrap();
    slice_table.check_tensors(&table).unwrap();
    assert_eq!(slice_table.get(0).as_ref(), Some(&slices[0]));
    assert_eq!(slice_table.get(1).as_ref(), Some(&slices[1]));

    let mut root = Root {
        description: Description {
            mesh: Some(vec![MeshAxis {
                name: "dp".into(),
                size: 4,
            }]),
            layout: "zero3".into(),
            components: vec![ComponentInfo {
                name: "model".into(),
                ..Default::default()
            }],
            ..Default::default()
        },
        components: vec![ComponentRecord {
            name: "model".into(),
            tensor_count: 2,
            tensors: TableRef::of(0, &TensorTable::encode(&tensors)),
        }],
        extents: vec![Extent {
            component: 0,
            owners: Owners::from_ranks([0, 2]).unwrap(),
            offset: 0,
            len: 528,
            slice_count: 2,
            slices: slice_ref,
            blocks: TableRef::default(),
        }],
    };
    let header = root.arrange(4096).unwrap();
    let bytes = root.encode();
    let header = header.seal(&bytes);
    let page = header.encode();
    let again = Header::decode(&page, header.file_len).unwrap();
    assert_eq!(again, header);
    assert_eq!(Root::decode(&bytes, &again).unwrap(), root);
    assert_eq!(header.file_len, 4096 * 3);
}
