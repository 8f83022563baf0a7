//! Makes small packs in memory, by the plainest code that can: the oracle of the loader's tests.

use wpack_format::{
    Block, BlockTable, BoxPart, ComponentInfo, ComponentRecord, Content, DType, Description,
    EmbeddedFile, Extent, FlatPart, Hex, MeshAxis, Owners, ResolvedRule, Role, Root, Slice,
    SliceTable, TableRef, Tensor, TensorName, TensorTable, crc32c, place_slice, sha256, spec,
};
use wpack_plan::{ComponentSpec, Inventory, Request, TensorSpec, plan};

/// An extent to be: its slices need no offsets or checksums.
pub(crate) struct ExtentSpec {
    pub(crate) component: u32,
    pub(crate) owners: Owners,
    pub(crate) slices: Vec<Slice>,
}

/// A component to be: tensors with their bytes.
pub(crate) struct Component {
    pub(crate) name: String,
    pub(crate) tensors: Vec<(Tensor, Vec<u8>)>,
}

/// A pack to be.
pub(crate) struct Builder {
    pub(crate) description: Description,
    pub(crate) components: Vec<Component>,
    pub(crate) extents: Vec<ExtentSpec>,
    pub(crate) files: Vec<(String, Vec<u8>)>,
    pub(crate) align: u64,
}

/// A tensor of one name.
pub(crate) fn tensor(name: &str, dtype: DType, shape: &[u64]) -> Tensor {
    tied(&[name], dtype, shape)
}

/// A tensor of some names.
pub(crate) fn tied(names: &[&str], dtype: DType, shape: &[u64]) -> Tensor {
    let mut stored_shape = shape.to_vec();
    if dtype.bits() < 8
        && let Some(last) = stored_shape.last_mut()
    {
        *last = dtype.bytes(*last).unwrap();
    }
    let name = |name: &&str| TensorName {
        name: (*name).into(),
        source: (*name).into(),
    };
    Tensor {
        names: names.iter().map(name).collect(),
        dtype,
        source_dtype: dtype,
        shape: shape.to_vec(),
        stored_shape,
        role: Role::Parameter,
        rule: 0,
        source: None,
    }
}

/// Bytes that look random; they repeat after a prime number of bytes, so that blocks differ.
pub(crate) fn pattern(tensor: &Tensor, seed: u64) -> Vec<u8> {
    let elements = tensor.shape.iter().product();
    let len = usize::try_from(tensor.dtype.bytes(elements).unwrap()).unwrap();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut period = Vec::new();
    while period.len() < len.min(65_521) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        period.extend_from_slice(&state.to_le_bytes());
    }
    period.truncate(65_521);
    let mut bytes = period.repeat(len.div_ceil(period.len().max(1)));
    bytes.truncate(len);
    bytes
}

impl Builder {
    /// Lays components out by a plan.
    pub(crate) fn planned(components: Vec<Component>, request: &Request) -> Self {
        let spec = |component: &Component| ComponentSpec {
            name: component.name.clone(),
            tensors: component
                .tensors
                .iter()
                .map(|(tensor, _)| tensor_spec(tensor))
                .collect(),
        };
        let inventory = Inventory {
            components: components.iter().map(spec).collect(),
        };
        let plan = plan(&inventory, request).unwrap();
        let mesh = plan.mesh().map(|mesh| {
            let axes = mesh.axes().iter();
            axes.map(|axis| MeshAxis {
                name: axis.name.clone(),
                size: axis.size,
            })
            .collect()
        });
        let mut components = components;
        for (at, component) in (0..).zip(&mut components) {
            for (index, (tensor, _)) in (0..).zip(&mut component.tensors) {
                let decision = plan.decision(at, index).unwrap();
                (tensor.role, tensor.rule) = (decision.role, decision.rule);
            }
        }
        let info = |(at, component): (u32, &Component)| ComponentInfo {
            name: component.name.clone(),
            layout: plan.component_layout(at).unwrap().to_owned(),
            ..ComponentInfo::default()
        };
        let description = Description {
            mesh,
            layout: plan.layout().to_owned(),
            components: (0..).zip(&components).map(info).collect(),
            plan: plan.resolved().clone(),
            ..Description::default()
        };
        let extents = plan
            .extents()
            .iter()
            .enumerate()
            .map(|(at, extent)| ExtentSpec {
                component: extent.component,
                owners: extent.owners.clone(),
                slices: plan.slices(at).unwrap(),
            });
        let extents = extents.collect();
        Self {
            description,
            components,
            extents,
            files: Vec::new(),
            align: 4096,
        }
    }

    /// Lays one component out by hand.
    pub(crate) fn by_hand(
        tensors: Vec<(Tensor, Vec<u8>)>,
        ranks: Option<u32>,
        extents: Vec<(Owners, Vec<Slice>)>,
    ) -> Self {
        let description = Description {
            mesh: ranks.map(|size| {
                vec![MeshAxis {
                    name: "rank".into(),
                    size,
                }]
            }),
            layout: "by-hand".into(),
            components: vec![ComponentInfo {
                name: "model".into(),
                layout: "by-hand".into(),
                ..ComponentInfo::default()
            }],
            plan: wpack_format::ResolvedPlan {
                rules: vec![ResolvedRule {
                    component: "model".into(),
                    placements: Vec::new(),
                    reason: "by hand".into(),
                }],
                ..Default::default()
            },
            ..Description::default()
        };
        Self {
            description,
            components: vec![Component {
                name: "model".into(),
                tensors,
            }],
            extents: extents
                .into_iter()
                .map(|(owners, slices)| ExtentSpec {
                    component: 0,
                    owners,
                    slices,
                })
                .collect(),
            files: Vec::new(),
            align: 4096,
        }
    }

    /// The pack's bytes.
    pub(crate) fn build(mut self) -> Vec<u8> {
        self.description.files = self
            .files
            .iter()
            .map(|(path, bytes)| EmbeddedFile {
                component: None,
                path: path.clone(),
                offset: 0,
                len: bytes.len() as u64,
                sha256: Hex(&sha256(bytes)).to_string(),
            })
            .collect();
        let mut tables = Vec::new();
        let mut components = Vec::new();
        for component in &self.components {
            let tensors: Vec<Tensor> = component.tensors.iter().map(|(t, _)| t.clone()).collect();
            let bytes = TensorTable::encode(&tensors);
            components.push(ComponentRecord {
                name: component.name.clone(),
                tensor_count: u32::try_from(tensors.len()).unwrap(),
                tensors: TableRef::of(0, &bytes),
            });
            tables.push(bytes);
        }
        let (mut extents, mut data) = (Vec::new(), Vec::new());
        for extent in &mut self.extents {
            let tensors = &self.components[extent.component as usize].tensors;
            let bytes = fill_extent(&mut extent.slices, tensors);
            let slices = SliceTable::encode(&extent.slices);
            let blocks = BlockTable::encode(&blocks_of(&bytes));
            extents.push(Extent {
                component: extent.component,
                owners: extent.owners.clone(),
                offset: 0,
                len: bytes.len() as u64,
                slice_count: u32::try_from(extent.slices.len()).unwrap(),
                slices: TableRef::of(0, &slices),
                blocks: TableRef::of(0, &blocks),
            });
            data.push((slices, blocks, bytes));
        }
        let mut root = Root {
            description: self.description,
            components,
            extents,
        };
        let header = root.arrange(self.align).unwrap();
        let encoded = root.encode();
        let header = header.seal(&encoded);
        let mut pack = vec![0; usize::try_from(header.file_len).unwrap()];
        let mut put = |at: u64, bytes: &[u8]| {
            let at = usize::try_from(at).unwrap();
            pack[at..at + bytes.len()].copy_from_slice(bytes);
        };
        put(0, &header.encode());
        put(header.root.offset, &encoded);
        for (record, bytes) in root.components.iter().zip(&tables) {
            put(record.tensors.offset, bytes);
        }
        for (extent, (slices, blocks, bytes)) in root.extents.iter().zip(&data) {
            put(extent.slices.offset, slices);
            put(extent.blocks.offset, blocks);
            put(extent.offset, bytes);
        }
        for (file, (_, bytes)) in root.description.files.iter().zip(&self.files) {
            put(file.offset, bytes);
        }
        pack
    }
}

/// A tensor as the planner wants it.
pub(crate) fn tensor_spec(tensor: &Tensor) -> TensorSpec {
    TensorSpec {
        names: tensor.names.iter().map(|name| name.name.clone()).collect(),
        dtype: tensor.dtype,
        shape: tensor.shape.clone(),
    }
}

fn blocks_of(bytes: &[u8]) -> Vec<Block> {
    let blocks = bytes.chunks(usize::try_from(spec::BLOCK_LEN).unwrap());
    blocks
        .map(|block| Block {
            crc32c: crc32c(block),
            sha256: sha256(block),
        })
        .collect()
}

/// Places the slices, cuts their bytes and sets their checksums.
fn fill_extent(slices: &mut [Slice], tensors: &[(Tensor, Vec<u8>)]) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::new();
    for slice in slices {
        let cut = cut(slice, tensors);
        slice.offset = place_slice(bytes.len() as u64, cut.len() as u64).unwrap();
        let own = !cut.is_empty() && (cut.len() as u64) < spec::BLOCK_LEN;
        slice.crc32c = own.then(|| crc32c(&cut));
        bytes.resize(usize::try_from(slice.offset).unwrap(), 0);
        bytes.extend_from_slice(&cut);
    }
    bytes
}

/// The bytes of a slice, element by element (by bits for sub-byte types).
pub(crate) fn cut(slice: &Slice, tensors: &[(Tensor, Vec<u8>)]) -> Vec<u8> {
    let bits = slice.dtype.bits();
    let mut out = Bits::default();
    match &slice.content {
        Content::Whole { tensor } => return tensors[*tensor as usize].1.clone(),
        Content::Flat { parts } => {
            for part in parts {
                match part {
                    FlatPart::Range { tensor, start, len } => {
                        let (tensor, from) = &tensors[*tensor as usize];
                        if tensor.dtype == DType::Bf16 && slice.dtype == DType::F32 {
                            // A master copy: the upper half of the bits is the weight.
                            (*start..start + len).for_each(|at| {
                                out.copy(&[0, 0], 0, 16);
                                out.copy(from, at, 16);
                            });
                            continue;
                        }
                        (*start..start + len).for_each(|at| out.copy(from, at, bits));
                    }
                    FlatPart::Fill { len, value } => {
                        (0..*len).for_each(|_| out.copy(&value.0, 0, bits));
                    }
                }
            }
        }
        Content::Boxes { tensor, dim, parts } => {
            let (tensor, from) = &tensors[*tensor as usize];
            let dim = *dim as usize;
            for_each_index(&slice.shape, |at| {
                let mut along = at[dim];
                for part in parts {
                    match part {
                        BoxPart::Box { start, size } if along < size[dim] => {
                            let global = (0..at.len()).fold(0, |flat, d| {
                                let inside = if d == dim { along } else { at[d] };
                                flat * tensor.shape[d] + start[d] + inside
                            });
                            out.copy(from, global, bits);
                            return;
                        }
                        BoxPart::Fill { size, value } if along < *size => {
                            out.copy(&value.0, 0, bits);
                            return;
                        }
                        BoxPart::Box { size, .. } => along -= size[dim],
                        BoxPart::Fill { size, .. } => along -= size,
                    }
                }
            });
        }
    }
    out.bytes
}

fn for_each_index(shape: &[u64], mut visit: impl FnMut(&[u64])) {
    let total: u64 = shape.iter().product();
    let mut at = vec![0; shape.len()];
    for flat in 0..total {
        let mut rest = flat;
        for d in (0..shape.len()).rev() {
            at[d] = rest % shape[d];
            rest /= shape[d];
        }
        visit(&at);
    }
}

/// Elements packed low bits first.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    used: u32,
}

impl Bits {
    fn copy(&mut self, from: &[u8], element: u64, bits: u32) {
        if bits.is_multiple_of(8) {
            let width = u64::from(bits / 8);
            let at = usize::try_from(element * width).unwrap();
            let width = usize::try_from(width).unwrap();
            self.bytes.extend_from_slice(&from[at..at + width]);
            return;
        }
        for bit in 0..bits {
            let at = element * u64::from(bits) + u64::from(bit);
            let value = from[usize::try_from(at / 8).unwrap()] >> (at % 8) & 1;
            if self.used.is_multiple_of(8) {
                self.bytes.push(0);
            }
            *self.bytes.last_mut().unwrap() |= value << (self.used % 8);
            self.used += 1;
        }
    }
}

/// A model of a few shapes and types, with a tie and an empty tensor.
pub(crate) fn small_model() -> Component {
    let tensors = [
        tied(&["embed.weight", "head.weight"], DType::Bf16, &[37, 12]),
        tensor("layer.0.weight", DType::F32, &[16, 9]),
        tensor("layer.0.bias", DType::F32, &[5]),
        tensor("layer.0.scale", DType::F32, &[]),
        tensor("layer.0.empty", DType::Bf16, &[0, 4]),
        tensor("layer.0.steps", DType::I64, &[3]),
        tensor("layer.0.packed", DType::F4, &[6, 4]),
        tensor("layer.0.eight", DType::F8E4M3, &[7, 8]),
    ];
    let tensors = (1..).zip(tensors).map(|(seed, tensor)| {
        let bytes = pattern(&tensor, seed);
        (tensor, bytes)
    });
    Component {
        name: "model".into(),
        tensors: tensors.collect(),
    }
}

impl Builder {
    /// Lays one component out by a plan file, which the pack keeps if `keep` says so.
    pub(crate) fn by_plan(component: Component, text: &str, keep: bool) -> Self {
        let file = wpack_plan::PlanFile::parse(text).unwrap();
        let mut builder = Self::planned(vec![component], &file.request().unwrap());
        if keep {
            builder.description.plan.file = Some(file.canonical().unwrap());
        }
        builder
    }
}

/// A request of a layout over some ranks.
pub(crate) fn request(layout: &str, ranks: u32) -> Request {
    Request {
        layout: layout.into(),
        ranks: Some(ranks),
        ..Request::default()
    }
}
