//! What the name of a class or function means.
//!
//! Four kinds: what PyTorch's own builders and the plain containers of Python mean is modelled;
//! harmless value classes and all unknown classes are kept as opaque objects; names that run code
//! when they are called are refused when they are named, so that no opcode behind can hide them.
//! As nothing is ever called, the refusal is a courtesy to whoever would load the file with
//! something else.
//!
//! Names are those of PyTorch 0.1.10 to 2.11 (`torch/_utils.py`, `torch/_tensor.py`,
//! `torch/_weights_only_unpickler.py`) and of Python 2 and 3.

use std::cell::Cell;

/// A class or function.
#[derive(Debug)]
pub(crate) struct Global {
    /// Its module.
    pub(crate) module: String,
    /// Its name.
    pub(crate) name: String,
    /// What it means.
    pub(crate) meaning: Meaning,
    /// Its number in the graph, once it has one.
    pub(super) number: Cell<Option<u32>>,
}

impl Global {
    /// A global; none if its name is one that runs code.
    pub(super) fn new(module: String, name: String) -> Option<Self> {
        let meaning = judge(&module, &name)?;
        Some(Self {
            module,
            name,
            meaning,
            number: Cell::new(None),
        })
    }

    /// Module and name.
    pub(crate) fn path(&self) -> String {
        format!("{}.{}", self.module, self.name)
    }
}

/// What a class or function means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A dict: `OrderedDict`, `defaultdict`, `Counter`, `dict`.
    Mapping,
    /// A list: `list`, `deque`.
    Sequence,
    /// `set`, `frozenset`.
    Set,
    /// `torch.Size` and `tuple`: called with one sequence, a tuple.
    Tuple,
    /// `copyreg._reconstructor`, `copyreg.__newobj__`: makes an object of its first argument.
    NewObject,
    /// A storage class, by its name.
    Storage,
    /// An element type of PyTorch, by its name.
    DType,
    /// `torch.Tensor` and what is no more than one: `Parameter`, `Buffer`, `FloatTensor`.
    Tensor,
    /// A function of PyTorch that makes a tensor.
    Build(Build),
    /// A class of tensors that are spread over processes.
    Partitioned,
    /// A value without anything inside that matters: `torch.device`, `_codecs.encode`.
    Plain,
    /// A value class that is known and harmless.
    Opaque,
    /// Any other class.
    Unknown,
}

/// A function of PyTorch that makes a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    /// `_rebuild_tensor`.
    V1,
    /// `_rebuild_tensor_v2`.
    V2,
    /// `_rebuild_tensor_v3`.
    V3,
    /// `_rebuild_parameter`, `_rebuild_parameter_with_state`.
    Parameter,
    /// `_rebuild_from_type`, `_rebuild_from_type_v2`.
    FromType,
    /// `_rebuild_device_tensor_from_cpu_tensor`.
    FromCpu,
    /// `_rebuild_device_tensor_from_numpy`.
    FromNumpy,
    /// `_rebuild_sparse_tensor` and its like.
    Sparse,
    /// `_rebuild_qtensor`.
    Quantized,
    /// `_rebuild_nested_tensor`.
    Nested,
    /// `_rebuild_meta_tensor_no_storage`.
    Meta,
    /// `_rebuild_wrapper_subclass`.
    Wrapper,
}

/// Which opcodes may change an object of such a class.
impl Meaning {
    /// SETITEM and SETITEMS.
    pub(super) fn takes_items(self) -> bool {
        matches!(
            self,
            Self::Mapping | Self::Unknown | Self::Opaque | Self::NewObject
        )
    }

    /// APPEND, APPENDS.
    pub(super) fn takes_values(self) -> bool {
        matches!(
            self,
            Self::Sequence | Self::Unknown | Self::Opaque | Self::NewObject
        )
    }

    /// ADDITEMS.
    pub(super) fn takes_members(self) -> bool {
        matches!(
            self,
            Self::Set | Self::Unknown | Self::Opaque | Self::NewObject
        )
    }

    /// REDUCE, NEWOBJ, INST and OBJ: everything but element types can be called.
    pub(super) fn is_callable(self) -> bool {
        !matches!(self, Self::DType)
    }
}

/// None for a name that runs code.
fn judge(module: &str, name: &str) -> Option<Meaning> {
    if name.contains('.') || runs_code(module, name) {
        return None;
    }
    Some(match module {
        "collections" => match name {
            "OrderedDict" | "defaultdict" | "Counter" => Meaning::Mapping,
            "deque" => Meaning::Sequence,
            _ => Meaning::Unknown,
        },
        "builtins" | "__builtin__" => match name {
            "dict" => Meaning::Mapping,
            "list" => Meaning::Sequence,
            "set" | "frozenset" => Meaning::Set,
            "tuple" => Meaning::Tuple,
            _ => Meaning::Plain,
        },
        "sets" if matches!(name, "Set" | "ImmutableSet") => Meaning::Set,
        "copyreg" | "copy_reg"
            if matches!(name, "_reconstructor" | "__newobj__" | "__newobj_ex__") =>
        {
            Meaning::NewObject
        }
        "_codecs" if name == "encode" => Meaning::Plain,
        "torch" | "torch.cuda" | "torch.sparse" | "torch.cuda.sparse" => torch(module, name),
        "torch.storage" if name.ends_with("Storage") => Meaning::Storage,
        "torch._utils" | "torch._tensor" => builder(name),
        "torch.nn.parameter"
        | "torch.nn"
        | "torch.autograd.variable"
        | "torch.autograd"
        | "torch.tensor"
        | "torch._tensor_classes" => tensor_class(name),
        "torch.serialization" if name == "_get_layout" => Meaning::Plain,
        _ if partitioned(module, name) => Meaning::Partitioned,
        _ if harmless(module) => Meaning::Opaque,
        _ => Meaning::Unknown,
    })
}

fn torch(module: &str, name: &str) -> Meaning {
    match name {
        "Size" => Meaning::Tuple,
        "device"
        | "Generator"
        | "per_tensor_affine"
        | "per_tensor_symmetric"
        | "per_channel_affine"
        | "per_channel_symmetric"
        | "per_channel_affine_float_qparams"
        | "strided"
        | "sparse_coo"
        | "contiguous_format"
        | "preserve_format"
        | "channels_last"
        | "channels_last_3d" => Meaning::Plain,
        "Tensor" => Meaning::Tensor,
        _ if name.ends_with("Storage") => Meaning::Storage,
        _ if module == "torch" && crate::torch::is_dtype(name) => Meaning::DType,
        _ if name.ends_with("Tensor") && !module.ends_with("sparse") => Meaning::Tensor,
        _ => Meaning::Unknown,
    }
}

fn builder(name: &str) -> Meaning {
    Meaning::Build(match name {
        "_rebuild_tensor" => Build::V1,
        "_rebuild_tensor_v2" => Build::V2,
        "_rebuild_tensor_v3" => Build::V3,
        "_rebuild_parameter" | "_rebuild_parameter_with_state" => Build::Parameter,
        "_rebuild_from_type" | "_rebuild_from_type_v2" => Build::FromType,
        "_rebuild_device_tensor_from_cpu_tensor" => Build::FromCpu,
        "_rebuild_device_tensor_from_numpy" | "_rebuild_xla_tensor" => Build::FromNumpy,
        "_rebuild_sparse_tensor" | "_rebuild_sparse_csr_tensor" => Build::Sparse,
        "_rebuild_qtensor" => Build::Quantized,
        "_rebuild_nested_tensor" => Build::Nested,
        "_rebuild_meta_tensor_no_storage" => Build::Meta,
        "_rebuild_wrapper_subclass" => Build::Wrapper,
        _ => return Meaning::Unknown,
    })
}

fn tensor_class(name: &str) -> Meaning {
    match name {
        "Parameter" | "Buffer" | "Variable" | "Tensor" => Meaning::Tensor,
        _ => Meaning::Unknown,
    }
}

fn partitioned(module: &str, name: &str) -> bool {
    matches!(name, "ShardedTensor" | "DTensor" | "ShardedTensorBase")
        && (within(module, "torch.distributed") || within(module, "torch._distributed"))
}

/// Modules of value classes that stand in checkpoints and hold nothing to convert.
fn harmless(module: &str) -> bool {
    const MODULES: &[&str] = &[
        "argparse",
        "datetime",
        "decimal",
        "enum",
        "fractions",
        "lightning",
        "lightning_fabric",
        "numpy",
        "omegaconf",
        "pathlib",
        "pytorch_lightning",
        "types",
        "typing",
        "uuid",
    ];
    MODULES.iter().any(|root| within(module, root))
}

/// A module or one below it.
fn within(module: &str, root: &str) -> bool {
    module
        .strip_prefix(root)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn runs_code(module: &str, name: &str) -> bool {
    /// Modules of which every function is a way out of the pickle.
    const MODULES: &[&str] = &[
        "_aix_support",
        "_ctypes",
        "_interpreters",
        "_osx_support",
        "_pickle",
        "_posixsubprocess",
        "_pyrepl",
        "_socket",
        "_thread",
        "_xxsubinterpreters",
        "asyncio",
        "bdb",
        "cPickle",
        "cProfile",
        "code",
        "codeop",
        "commands",
        "concurrent",
        "ctypes",
        "dill",
        "distutils",
        "doctest",
        "ensurepip",
        "ftplib",
        "gc",
        "http",
        "idlelib",
        "imp",
        "importlib",
        "inspect",
        "joblib",
        "lib2to3",
        "marshal",
        "multiprocessing",
        "nt",
        "ntpath",
        "numpy.distutils",
        "numpy.f2py",
        "numpy.lib.npyio",
        "numpy.testing",
        "os",
        "pdb",
        "pickle",
        "pip",
        "pkgutil",
        "popen2",
        "posix",
        "posixpath",
        "profile",
        "pty",
        "pydoc",
        "requests",
        "runpy",
        "setuptools",
        "shutil",
        "signal",
        "site",
        "smtplib",
        "socket",
        "ssl",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "timeit",
        "torch._dynamo",
        "torch._inductor",
        "torch.fx",
        "torch.hub",
        "torch.jit",
        "torch.package",
        "torch.utils._config_module",
        "torch.utils.bottleneck",
        "torch.utils.collect_env",
        "torch.utils.cpp_extension",
        "torch.utils.model_zoo",
        "trace",
        "turtledemo",
        "unittest",
        "urllib",
        "urllib2",
        "venv",
        "webbrowser",
        "xmlrpc",
        "zipapp",
    ];
    /// What Python itself offers that is only a value.
    const BUILTINS: &[&str] = &[
        "Ellipsis",
        "NoneType",
        "NotImplemented",
        "bool",
        "bytearray",
        "bytes",
        "complex",
        "dict",
        "ellipsis",
        "float",
        "frozenset",
        "int",
        "list",
        "long",
        "object",
        "range",
        "set",
        "slice",
        "str",
        "tuple",
        "unicode",
        "xrange",
    ];
    match module {
        "builtins" | "__builtin__" | "__builtins__" => {
            let exception =
                name.ends_with("Error") || name.ends_with("Exception") || name.ends_with("Warning");
            !BUILTINS.contains(&name) && !exception
        }
        "torch.storage" => name == "_load_from_bytes",
        "torch.serialization" => matches!(name, "load" | "save" | "_load" | "_legacy_load"),
        "torch" => matches!(name, "load" | "save" | "compile" | "hub"),
        "numpy" => matches!(name, "load" | "save" | "fromfile" | "memmap" | "loadtxt"),
        "operator" | "_operator" => matches!(name, "attrgetter" | "methodcaller" | "call"),
        "types" => name.ends_with("Type"),
        "pandas" => name.starts_with("read_"),
        "torch.cuda" | "torch.utils" => false,
        _ => MODULES.iter().any(|root| within(module, root)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_run_code_are_refused() {
        for (module, name) in [
            ("posix", "system"),
            ("nt", "system"),
            ("os.path", "join"),
            ("builtins", "eval"),
            ("__builtin__", "getattr"),
            ("builtins", "print"),
            ("runpy", "run_path"),
            ("torch.storage", "_load_from_bytes"),
            ("torch.utils.collect_env", "run"),
            ("torch.serialization", "load"),
            ("mylib", "a.b"),
            ("operator", "attrgetter"),
            ("types", "CodeType"),
            ("numpy.testing._private.utils", "runstring"),
        ] {
            assert_eq!(judge(module, name), None, "{module}.{name}");
        }
    }

    #[test]
    fn names_that_only_begin_alike_are_not() {
        assert_eq!(judge("osmnx", "Graph"), Some(Meaning::Unknown));
        assert_eq!(
            judge("torch.nn.modules.linear", "Linear"),
            Some(Meaning::Unknown)
        );
        assert_eq!(judge("types", "SimpleNamespace"), Some(Meaning::Opaque));
        assert_eq!(judge("builtins", "ValueError"), Some(Meaning::Plain));
        assert_eq!(
            judge("numpy._core.multiarray", "scalar"),
            Some(Meaning::Opaque)
        );
    }

    #[test]
    fn torch_names_mean_what_torch_means() {
        assert_eq!(judge("torch", "FloatStorage"), Some(Meaning::Storage));
        assert_eq!(judge("torch.cuda", "HalfStorage"), Some(Meaning::Storage));
        assert_eq!(
            judge("torch.storage", "UntypedStorage"),
            Some(Meaning::Storage)
        );
        assert_eq!(judge("torch", "bfloat16"), Some(Meaning::DType));
        assert_eq!(judge("torch", "FloatTensor"), Some(Meaning::Tensor));
        assert_eq!(judge("torch.sparse", "FloatTensor"), Some(Meaning::Unknown));
        assert_eq!(judge("torch.nn.parameter", "Buffer"), Some(Meaning::Tensor));
        assert_eq!(judge("torch", "Size"), Some(Meaning::Tuple));
        assert_eq!(
            judge("torch.distributed.tensor", "DTensor"),
            Some(Meaning::Partitioned)
        );
    }
}
