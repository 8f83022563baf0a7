//! A plan for every layout, and small models to lay out.

use std::{collections::BTreeMap, path::PathBuf};

use safetensors::Dtype;
use wpack_convert::cast::convert_elements;
use wpack_format::DType;

use crate::convert_common::{Folder, Tensors, noise, save};

/// A model, a plan, and what the plan must come to.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) plan: String,
    pub(crate) model: Model,
    /// The number that fills what no tensor gives.
    pub(crate) fill: f32,
    /// Whether an optimizer keeps a master copy of a parameter.
    masters: bool,
}

/// A checkpoint, and what its plan makes of it.
#[derive(Clone)]
pub(crate) struct Model {
    tensors: Tensors,
    /// Tensors that the plan puts together or makes longer: shape, element type, and where each of their
    /// elements comes from, a zero if from nowhere.
    made: BTreeMap<&'static str, Made>,
    /// The type that the plan casts to.
    cast: Option<DType>,
}

#[derive(Clone)]
struct Made {
    shape: Vec<u64>,
    of: Vec<&'static str>,
    from: fn(u64) -> Option<(usize, u64)>,
}

/// A tensor as the pack must have it.
pub(crate) struct Value {
    pub(crate) shape: Vec<u64>,
    from: DType,
    pack: DType,
    bytes: Vec<u8>,
}

impl Value {
    /// The bytes of an element in a type that the pack has it in.
    pub(crate) fn element(&self, at: u64, to: DType) -> Vec<u8> {
        let width = |dtype: DType| usize::try_from(dtype.bits() / 8).unwrap();
        let at = usize::try_from(at).unwrap() * width(self.from);
        let mut bytes = self.bytes[at..at + width(self.from)].to_vec();
        for (from, to) in [(self.from, self.pack), (self.pack, to)] {
            if from != to {
                let mut out = vec![0; width(to)];
                convert_elements(from, to, &bytes, &mut out).unwrap();
                bytes = out;
            }
        }
        bytes
    }
}

impl Model {
    /// The checkpoint as a file.
    pub(crate) fn save(&self, folder: &Folder) -> PathBuf {
        folder.checkpoint(&self.tensors)
    }

    /// The same with the last element of one tensor changed; its name, and the file.
    pub(crate) fn changed(&self, folder: &Folder) -> (String, PathBuf) {
        let mut tensors = self.tensors.clone();
        let name = "layers.1.up.weight";
        let bytes = &mut tensors.get_mut(name).unwrap().2;
        *bytes.last_mut().unwrap() ^= 0x01;
        let path = folder.path("changed.safetensors");
        save(&tensors, &path);
        (name.to_owned(), path)
    }

    /// Whether the pack holds the checkpoint's tensors as they are.
    pub(crate) fn is_plain(&self) -> bool {
        self.made.is_empty() && self.cast.is_none()
    }

    /// The tensors of the checkpoint that a tensor of the pack is made of.
    pub(crate) fn made_of(&self, name: &str) -> Vec<String> {
        match self.made.get(name) {
            Some(made) => made.of.iter().map(|name| (*name).to_owned()).collect(),
            None => vec![name.to_owned()],
        }
    }

    /// A tensor of the pack.
    pub(crate) fn value(&self, name: &str) -> Value {
        let of = |dtype: Dtype| match dtype {
            Dtype::BF16 => DType::Bf16,
            Dtype::F32 => DType::F32,
            Dtype::I64 => DType::I64,
            other => panic!("{other:?}"),
        };
        let (dtype, shape, bytes) = match self.made.get(name) {
            None => {
                let (dtype, shape, bytes) = &self.tensors[name];
                (
                    of(*dtype),
                    shape.iter().map(|size| *size as u64).collect(),
                    bytes.clone(),
                )
            }
            Some(made) => {
                let parts: Vec<_> = made.of.iter().map(|name| &self.tensors[*name]).collect();
                let dtype = of(parts[0].0);
                let width = usize::try_from(dtype.bits() / 8).unwrap();
                let mut bytes = Vec::new();
                for at in 0..made.shape.iter().product() {
                    match (made.from)(at) {
                        None => bytes.extend(vec![0; width]),
                        Some((part, element)) => {
                            let at = usize::try_from(element).unwrap() * width;
                            bytes.extend(&parts[part].2[at..at + width]);
                        }
                    }
                }
                (dtype, made.shape.clone(), bytes)
            }
        };
        let cast = self
            .cast
            .filter(|_| dtype == DType::Bf16 || dtype == DType::F32);
        Value {
            shape,
            from: dtype,
            pack: cast.unwrap_or(dtype),
            bytes,
        }
    }
}

impl Case {
    /// An element as a number.
    pub(crate) fn read(&self, dtype: DType, bytes: &[u8]) -> f32 {
        let mut out = [0; 4];
        if dtype == DType::F32 {
            out.copy_from_slice(bytes);
        } else {
            convert_elements(dtype, DType::F32, bytes, &mut out).unwrap();
        }
        f32::from_le_bytes(out)
    }

    /// How often an element is stored: once, but for heads that ranks share inside of a fused weight.
    pub(crate) fn copies(&self, name: &str, element: u64) -> usize {
        let shared = name == "layers.1.up_up" && element >= 8 * 5;
        if shared { 2 } else { 1 }
    }

    /// Whether the pack holds a master copy of a tensor.
    pub(crate) fn has_master(&self, name: &str) -> bool {
        self.masters && !["steps", "frozen", "rope"].contains(&name)
    }
}

/// Three layers of odd sizes, one-element and empty parameters, a frozen one, and buffers.
fn model(dtype: Dtype) -> Model {
    model_of(dtype, [11, 6, 7, 5, 3, 2003])
}

/// The same of other sizes: words, width, half the rows of up, columns of up, rows of an expert, and one more.
pub(crate) fn model_of(dtype: Dtype, sizes: [usize; 6]) -> Model {
    let [words, width, rows, columns, expert, big] = sizes;
    let mut tensors = Tensors::new();
    let mut add = |name: &str, dtype: Dtype, shape: &[usize]| {
        let len = shape.iter().product::<usize>() * dtype.bitsize() / 8;
        let bytes = noise(len, tensors.len());
        tensors.insert(name.to_owned(), (dtype, shape.to_vec(), bytes));
    };
    add("embed.weight", dtype, &[words, width]);
    for layer in 0..3 {
        for (name, shape) in [
            ("up.weight", &[2 * rows, columns][..]),
            ("up.bias", &[2 * rows]),
            ("down.weight", &[columns, rows]),
            ("down.bias", &[columns]),
            ("experts", &[12, expert, columns]),
            ("norm", &[columns]),
        ] {
            add(&format!("layers.{layer}.{name}"), dtype, shape);
        }
    }
    add("one", dtype, &[1]);
    add("none", dtype, &[0, 4]);
    add("big", dtype, &[big, 3]);
    add("frozen", dtype, &[9, 2]);
    add("head.weight", dtype, &[words, width]);
    add("rope", Dtype::F32, &[8]);
    add("steps", Dtype::I64, &[]);
    Model {
        tensors,
        made: BTreeMap::new(),
        cast: None,
    }
}

/// What layouts must be told of the model; `order` is not that of the file.
const FACTS: &str = r#"
    replicate = ["rope"]
    order = ["embed.weight", "layers.0.up.weight", "layers.0.up.bias", "layers.0.down.weight", "layers.0.down.bias",
        "layers.0.experts", "layers.0.norm", "layers.1.up.weight", "layers.1.up.bias", "layers.1.down.weight",
        "layers.1.down.bias", "layers.1.experts", "layers.1.norm", "layers.2.norm", "layers.2.up.weight",
        "layers.2.up.bias", "layers.2.down.weight", "layers.2.down.bias", "layers.2.experts", "one", "none", "big",
        "frozen", "head.weight"]
    default_style = "replicate"
    frozen = ["frozen"]

    [stages]
    layers = "layers"
    first = ["embed.*", "one", "none", "rope"]
    last = ["head.*", "big", "frozen", "steps", "rope", "embed.*"]

    [[rule]]
    match = "*.up.*"
    style = "packed_colwise"
    [[rule]]
    match = "*.down.*"
    style = "rowwise"
    [[rule]]
    match = "*.experts"
    style = "grouped_gemm"
    [[rule]]
    regex = 'embed\.weight|head\.weight'
    style = "embedding_rowwise"
"#;

/// Steps in the order of the project that cuts so; the axes of one tensor are cut in turn.
const RULES: &str = r#"
    mesh = "megatron:tp=2,pp=2,dp=2"
    layout = "rules"
    replicate = ["rope"]
    default_place = ["dp: Shard(0, chunk)"]

    [transform]
    pad = [{ match = "embed.weight", multiple = 4 }]

    [[transform.merge]]
    match = 'layers\.(\d+)\.(?P<part>up|down)\.bias'
    into = "layers.$1.bias"
    parts = ["up", "down"]
    concat = 0

    [[transform.merge]]
    match = 'layers\.(?P<part>\d+)\.norm'
    into = "norms"
    stack = 0

    [[transform.merge]]
    match = 'layers\.1\.(?P<part>up|gate)\.weight'
    into = "layers.1.up_up"
    parts = ["up"]
    concat = 0
    groups = 7

    [[rule]]
    regex = 'layers\.0\..*'
    place = ["pp: Owned(0)", "tp: Shard(0, balanced)"]
    [[rule]]
    match = "layers.1.up_up"
    place = ["tp: Shard(0, blocks(8: even, 3: kv_replicated(1, 3), 3: kv_replicated(1, 3)))", "dp: Shard(1, chunk)"]
    [[rule]]
    match = "layers.1.down.weight"
    place = ["tp: Shard(1, explicit[0, 2, 7])", "dp: Shard(0, strided(2))"]
    [[rule]]
    match = "layers.1.experts"
    place = ["dp*tp: FlatShard"]
    [[rule]]
    match = "layers.2.*"
    place = ["pp: Owned(1)", "tp: packed_colwise", "dp: Shard(0, chunk)"]
    [[rule]]
    match = "embed.weight"
    place = ["tp: Shard(0, even)"]
"#;

/// Every layout, the products among them.
pub(crate) fn cases() -> Vec<Case> {
    let layouts: [(&str, &str, &str); 25] = [
        ("replicate", "replicate", ""),
        ("usp", "usp", "sp=4"),
        ("zero1", "zero1", ""),
        ("zero2", "zero2", "dp=3"),
        ("zero3", "zero3", "dp=4"),
        ("zero3, dp times sp", "zero3", "dp=2,sp=2"),
        ("fsdp1", "fsdp1", "fsdp=3"),
        ("fsdp2, 2", "fsdp2", "fsdp=2"),
        ("fsdp2, 7", "fsdp2", "fsdp=7"),
        ("hsdp", "hsdp", "dp_replicate=2,fsdp=2"),
        (
            "hsdp, accelerate",
            "hsdp",
            "accelerate:dp_shard=2,dp_replicate=2",
        ),
        ("tp, 2", "tp", "tp=2"),
        ("tp, 4", "tp", "tp=4"),
        ("ep", "ep", "ep=4"),
        ("pp, 2", "pp", "pp=2"),
        ("pp, more stages than layers", "pp", "pp=4"),
        ("usp+fsdp2", "usp+fsdp2", "sp=4"),
        ("tp+fsdp2", "tp+fsdp2", "fsdp=2,tp=2"),
        (
            "tp+fsdp2, transformers",
            "tp+fsdp2",
            "transformers:tp=3,fsdp=2",
        ),
        ("ep+fsdp2", "ep+fsdp2", "efsdp=2,ep=2"),
        ("pp+fsdp2", "pp+fsdp2", "pp=2,fsdp=2"),
        ("pp+tp", "pp+tp", "pp=2,tp=2"),
        ("pp+tp+fsdp2", "pp+tp+fsdp2", "pp=2,fsdp=2,tp=2"),
        ("pp+zero3", "pp+zero3", "pp=2,dp=3"),
        ("tp+ep", "tp+ep", "tp=2,ep=2"),
    ];
    let case = |name, plan: String| Case {
        name,
        plan,
        model: model(Dtype::BF16),
        fill: 0.0,
        masters: false,
    };
    let mut cases: Vec<Case> = layouts
        .into_iter()
        .map(|(name, layout, mesh)| {
            let mesh = if mesh.is_empty() {
                String::new()
            } else {
                format!("mesh = {mesh:?}")
            };
            case(name, format!("{mesh}\nlayout = {layout:?}\n{FACTS}"))
        })
        .collect();
    let units = "fsdp1 = { units = [\"layers.*\"], use_orig_params = ";
    for (name, extra, fill) in [
        ("fsdp1, units", "false }", 0.0),
        ("fsdp1, units, use_orig_params", "true }", 42.0),
        (
            "fsdp1, units, use_orig_params, fp32",
            "true, param_dtype = \"F32\" }",
            42.0,
        ),
    ] {
        let plan = format!("ranks = 3\nlayout = \"fsdp1\"\n{units}{extra}\n{FACTS}");
        cases.push(Case {
            fill,
            ..case(name, plan)
        });
    }
    for (name, layout, extra) in [
        ("zero1, masters", "zero1", ""),
        (
            "zero2, masters",
            "zero2",
            ", groups = [[\"*.weight\"], [\"*\"]]",
        ),
        (
            "zero2, masters, round robin",
            "zero2",
            ", round_robin_gradients = true",
        ),
        (
            "zero2, masters, aligned",
            "zero2",
            ", parameter_alignment = true",
        ),
    ] {
        let plan =
            format!("ranks = 3\nlayout = {layout:?}\nzero = {{ master = true{extra} }}\n{FACTS}");
        cases.push(Case {
            masters: true,
            ..case(name, plan)
        });
    }
    // Rounded on the way into the pack: the masters are rounded too.
    let plan = format!(
        "ranks = 2\nlayout = \"zero2\"\nzero = {{ master = true }}\ntransform = {{ dtype = \"bf16\" }}\n{FACTS}"
    );
    let mut rounded = case("zero2, masters of rounded weights", plan);
    rounded.masters = true;
    rounded.model = model(Dtype::F32);
    rounded.model.cast = Some(DType::Bf16);
    cases.push(rounded);
    let counts = FACTS.replace(
        "layers = \"layers\"",
        "layers = \"layers\"\n counts = [1, 2]",
    );
    cases.push(case(
        "pp, counted",
        format!("ranks = 2\nlayout = \"pp\"\n{counts}"),
    ));
    cases.push(rules());
    cases
}

fn rules() -> Case {
    let mut model = model(Dtype::BF16);
    let bias = |layer: usize| -> Vec<&'static str> {
        [
            ["layers.0.up.bias", "layers.0.down.bias"],
            ["layers.1.up.bias", "layers.1.down.bias"],
            ["layers.2.up.bias", "layers.2.down.bias"],
        ][layer]
            .to_vec()
    };
    for (layer, name) in ["layers.0.bias", "layers.1.bias", "layers.2.bias"]
        .into_iter()
        .enumerate()
    {
        model.made.insert(
            name,
            Made {
                shape: vec![19],
                of: bias(layer),
                from: |at| Some(if at < 14 { (0, at) } else { (1, at - 14) }),
            },
        );
    }
    model.made.insert(
        "norms",
        Made {
            shape: vec![3, 5],
            of: vec!["layers.0.norm", "layers.1.norm", "layers.2.norm"],
            from: |at| Some((usize::try_from(at / 5).unwrap(), at % 5)),
        },
    );
    model.made.insert(
        "layers.1.up_up",
        Made {
            shape: vec![14, 5],
            of: vec!["layers.1.up.weight"],
            from: |at| Some((0, at)),
        },
    );
    model.made.insert(
        "embed.weight",
        Made {
            shape: vec![12, 6],
            of: vec!["embed.weight"],
            from: |at| (at < 66).then_some((0, at)),
        },
    );
    Case {
        name: "rules",
        plan: RULES.to_owned(),
        model,
        fill: 0.0,
        masters: false,
    }
}
