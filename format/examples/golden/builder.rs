//! Lays out a pack in memory, element by element: slow, and plain enough to be believed.

use wpack_format::{
    Block, BlockTable, BoxPart, ComponentRecord, Content, DType, Description, Extent, FlatPart,
    Hex, Owners, Root, Slice, SliceKind, SliceTable, TableRef, Tensor, TensorTable, crc32c,
    place_slice, sha256, spec,
};

/// A tensor with its elements, each as its bits.
pub(crate) struct Filled {
    /// The tensor.
    pub(crate) tensor: Tensor,
    /// Its elements in row-major order.
    pub(crate) elements: Vec<u128>,
}

/// What a pack is to hold.
pub(crate) struct PackSpec {
    /// All but the lengths and digests of embedded files.
    pub(crate) description: Description,
    /// Tensors of each component.
    pub(crate) components: Vec<Vec<Filled>>,
    /// Component, owners and slices of each extent; places and checksums are filled in.
    pub(crate) extents: Vec<(u32, Owners, Vec<Slice>)>,
    /// Bytes of the embedded files.
    pub(crate) files: Vec<Vec<u8>>,
}

/// The bytes of the pack, extents aligned to 4 KiB.
pub(crate) fn build(mut pack: PackSpec) -> Vec<u8> {
    for (file, bytes) in pack.description.files.iter_mut().zip(&pack.files) {
        file.len = len64(bytes);
        file.sha256 = Hex(&sha256(bytes)).to_string();
    }
    let tensor_tables: Vec<Vec<u8>> = pack
        .components
        .iter()
        .map(|tensors| {
            let tensors: Vec<Tensor> = tensors.iter().map(|filled| filled.tensor.clone()).collect();
            TensorTable::encode(&tensors)
        })
        .collect();
    let bodies: Vec<Vec<u8>> = pack
        .extents
        .iter_mut()
        .map(|(component, _, slices)| body(&pack.components[*component as usize], slices))
        .collect();
    let slice_tables: Vec<Vec<u8>> = pack
        .extents
        .iter()
        .map(|(_, _, slices)| SliceTable::encode(slices))
        .collect();
    let block_tables: Vec<Vec<u8>> = bodies
        .iter()
        .map(|body| {
            let blocks: Vec<Block> = body
                .chunks(usize::try_from(spec::BLOCK_LEN).unwrap())
                .map(Block::of)
                .collect();
            BlockTable::encode(&blocks)
        })
        .collect();

    let components = pack
        .description
        .components
        .iter()
        .zip(&tensor_tables)
        .zip(&pack.components);
    let components = components.map(|((info, table), tensors)| ComponentRecord {
        name: info.name.clone(),
        tensor_count: u32::try_from(tensors.len()).unwrap(),
        tensors: TableRef::of(0, table),
    });
    let extents = pack
        .extents
        .iter()
        .enumerate()
        .map(|(i, (component, owners, slices))| Extent {
            component: *component,
            owners: owners.clone(),
            offset: 0,
            len: len64(&bodies[i]),
            slice_count: u32::try_from(slices.len()).unwrap(),
            slices: TableRef::of(0, &slice_tables[i]),
            blocks: TableRef::of(0, &block_tables[i]),
        });
    let (components, extents) = (components.collect(), extents.collect());
    let mut root = Root {
        description: pack.description,
        components,
        extents,
    };
    let header = root.arrange(spec::EXTENT_ALIGN_MIN).unwrap();
    let root_bytes = root.encode();
    let header = header.seal(&root_bytes);

    let mut file = vec![0; usize::try_from(header.file_len).unwrap()];
    let mut put = |offset: u64, bytes: &[u8]| {
        let start = usize::try_from(offset).unwrap();
        file[start..start + bytes.len()].copy_from_slice(bytes);
    };
    put(0, &header.encode());
    put(header.root.offset, &root_bytes);
    for (record, table) in root.components.iter().zip(&tensor_tables) {
        put(record.tensors.offset, table);
    }
    for (i, extent) in root.extents.iter().enumerate() {
        put(extent.slices.offset, &slice_tables[i]);
        put(extent.blocks.offset, &block_tables[i]);
        put(extent.offset, &bodies[i]);
    }
    for (info, bytes) in root.description.files.iter().zip(&pack.files) {
        put(info.offset, bytes);
    }
    file
}

fn len64(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap()
}

/// Places the slices and gives the extent's bytes.
fn body(tensors: &[Filled], slices: &mut [Slice]) -> Vec<u8> {
    let mut body = Vec::new();
    for slice in slices {
        let bytes = pack_bits(slice.dtype, &gather(tensors, slice));
        assert_eq!(slice.len_bytes(), Some(len64(&bytes)));
        slice.offset = place_slice(len64(&body), len64(&bytes)).unwrap();
        slice.crc32c =
            (!bytes.is_empty() && len64(&bytes) < spec::BLOCK_LEN).then(|| crc32c(&bytes));
        body.resize(usize::try_from(slice.offset).unwrap(), 0);
        body.extend(bytes);
        let tensors: Vec<Tensor> = tensors.iter().map(|filled| filled.tensor.clone()).collect();
        slice.check(&tensors[..]).unwrap();
    }
    body
}

/// The elements of a slice.
fn gather(tensors: &[Filled], slice: &Slice) -> Vec<u128> {
    let of = |tensor: u32| &tensors[tensor as usize];
    let cast = |tensor: u32, bits: u128| match (slice.kind, of(tensor).tensor.dtype, slice.dtype) {
        (SliceKind::Master, DType::Bf16, DType::F32) => bits << 16,
        (_, from, to) if from == to => bits,
        (_, from, to) => panic!("no cast from {from} to {to}"),
    };
    match &slice.content {
        Content::Whole { tensor } => of(*tensor)
            .elements
            .iter()
            .map(|bits| cast(*tensor, *bits))
            .collect(),
        Content::Flat { parts } => parts
            .iter()
            .flat_map(|part| match *part {
                FlatPart::Fill { len, value } => {
                    vec![u128::from_le_bytes(value.0); usize::try_from(len).unwrap()]
                }
                FlatPart::Range { tensor, start, len } => (start..start + len)
                    .map(|i| cast(tensor, of(tensor).elements[usize::try_from(i).unwrap()]))
                    .collect(),
            })
            .collect(),
        Content::Boxes { tensor, dim, parts } => {
            let count: u64 = slice.shape.iter().product();
            (0..count)
                .map(|i| {
                    let mut index = unravel(i, &slice.shape);
                    box_element(of(*tensor), *dim as usize, parts, &mut index)
                })
                .collect()
        }
    }
}

/// The element of a slice of boxes at an index.
fn box_element(filled: &Filled, dim: usize, parts: &[BoxPart], index: &mut [u64]) -> u128 {
    for part in parts {
        let along = match part {
            BoxPart::Box { size, .. } => size[dim],
            BoxPart::Fill { size, .. } => *size,
        };
        if index[dim] >= along {
            index[dim] -= along;
            continue;
        }
        return match part {
            BoxPart::Fill { value, .. } => u128::from_le_bytes(value.0),
            BoxPart::Box { start, .. } => {
                let shape = &filled.tensor.shape;
                let at = (0..shape.len()).fold(0, |at, d| at * shape[d] + start[d] + index[d]);
                filled.elements[usize::try_from(at).unwrap()]
            }
        };
    }
    panic!("the parts are smaller than the slice")
}

/// The index per dimension of a row-major element.
fn unravel(mut element: u64, shape: &[u64]) -> Vec<u64> {
    let mut index = vec![0; shape.len()];
    for (at, size) in index.iter_mut().zip(shape).rev() {
        (*at, element) = (element % size, element / size);
    }
    index
}

/// Elements side by side, the first one in the lowest bits.
fn pack_bits(dtype: DType, elements: &[u128]) -> Vec<u8> {
    let width = dtype.bits() as usize;
    let mut bytes = vec![0_u8; (elements.len() * width).div_ceil(8)];
    for (i, bits) in elements.iter().enumerate() {
        for bit in 0..width {
            let at = i * width + bit;
            bytes[at / 8] |= u8::from(bits >> bit & 1 == 1) << (at % 8);
        }
    }
    bytes
}
