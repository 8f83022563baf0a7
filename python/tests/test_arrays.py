"""numpy and DLPack, with and without torch."""

import pytest

numpy = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

import wpack
from states import every_dtype, filled, same


@pytest.fixture
def shard(convert):
    return wpack.open(convert(every_dtype())).shard()


def test_numpy_sees_the_same_bytes(shard):
    state = every_dtype()
    for name, tensor in state.items():
        array = numpy.asarray(shard.view(name))
        assert array.shape == tuple(tensor.shape)
        assert array.tobytes() == bytes(tensor.reshape(-1).view(torch.uint8).numpy())
        assert array.flags.writeable


def test_numpy_types(shard):
    assert numpy.asarray(shard.view("float32.5x8")).dtype == numpy.float32
    assert numpy.asarray(shard.view("complex64.7")).dtype == numpy.complex64
    assert numpy.asarray(shard.view("bool.7")).dtype == bool
    assert numpy.asarray(shard.view("uint16.scalar")).dtype == numpy.uint16
    assert numpy.asarray(shard.view("bfloat16.7")).dtype == "V2"
    assert shard.numpy("int64.5x8").dtype == numpy.int64


def test_bfloat16_needs_ml_dtypes(shard):
    try:
        import ml_dtypes
    except ImportError:
        with pytest.raises(wpack.errors.UnsupportedDTypeError, match="bfloat16|BF16"):
            shard.numpy("bfloat16.7")
    else:
        assert shard.numpy("bfloat16.7").dtype == ml_dtypes.bfloat16


def test_dlpack_consumers(shard):
    state = every_dtype()
    for name in ("float32.5x8", "int16.3x2x4", "float64.scalar", "complex64.7"):
        for take in (torch.from_dlpack, torch.utils.dlpack.from_dlpack):
            assert same(take(shard.view(name)), state[name])
        assert numpy.from_dlpack(shard.view(name)).tobytes() == state[name].numpy().tobytes()
    assert shard.view("float32.7").__dlpack_device__() == (1, 0)
    capsule = shard.view("float32.7").__dlpack__(max_version=(1, 0))
    assert "dltensor_versioned" in repr(capsule)
    del capsule
    with pytest.raises(BufferError):
        shard.view("float32.7").__dlpack__(copy=True)
    with pytest.raises(BufferError):
        shard.view("float32.7").__dlpack__(dl_device=(2, 0))


def test_bits_are_unsigned_integers(tmp_path):
    """torch's bits types are storage without arithmetic, and neither numpy nor DLPack has a name for them."""
    kinds = {f"bits{kind}": numpy.uint8 for kind in ("1x8", "2x4", "4x2", "8")} | {"bits16": numpy.uint16}
    raw = filled((14,), torch.uint8)
    torch.save({name: raw.view(getattr(torch, name)) for name in kinds}, tmp_path / "bits.pt")
    wpack.convert(tmp_path / "bits.pt", tmp_path / "bits.wpack", layout="replicate", progress=False)
    shard = wpack.open(tmp_path / "bits.wpack").shard()
    for name, kind in kinds.items():
        for array in (shard.numpy(name), numpy.asarray(shard.view(name)), numpy.from_dlpack(shard.view(name))):
            assert array.dtype == kind and array.tobytes() == raw.numpy().tobytes()
        if name != "bits16":  # torch 2.5 has no DLPack for uint16.
            assert torch.from_dlpack(shard.view(name)).tolist() == raw.tolist()


def test_arrays_outlive_the_pack(convert):
    import gc

    tensor = filled((5, 8), torch.float32)
    array = numpy.asarray(wpack.open(convert({"x": tensor})).shard().view("x"))
    gc.collect()
    assert array.tobytes() == tensor.numpy().tobytes()


def test_read_only(convert, run):
    path = convert({"x": filled((4096,), torch.float32)})
    view = wpack.open(path, read_only=True).shard().view("x")
    assert view.read_only and not numpy.asarray(view).flags.writeable
    assert not numpy.from_dlpack(view).flags.writeable
    with pytest.raises(BufferError):
        view.__dlpack__()
    # torch has no read-only tensors: the documented price of the mode.
    code = """
    import sys, wpack
    wpack.open(sys.argv[1], read_only=True).shard().state_dict()["x"].zero_()
    """
    assert run(code, path, check=False).returncode < 0


def test_a_kernel_that_refuses_the_private_mapping_gives_a_hint(convert, run):
    path = convert({"x": filled((64 << 20,), torch.uint8)})
    code = """
    import json, resource, sys, torch, wpack
    shard = wpack.open(sys.argv[1]).shard()
    # A limit on data counts private writable mappings, as strict overcommit does.
    resource.setrlimit(resource.RLIMIT_DATA, (1 << 20, 1 << 20))
    try:
        shard.state_dict()
        print(json.dumps(["no error", ""]))
    except wpack.WpackError as error:
        print(json.dumps([error.code, error.hint or ""]))
    except MemoryError:
        print(json.dumps(["memory", ""]))
    """
    code_name, hint = run(code, path)
    assert code_name == "map"
    assert "read_only" in hint or "read-only" in hint


def test_without_torch(convert, run, tmp_path):
    path = convert({"x": filled((5, 8), torch.float32), "y": filled((3,), torch.int64)})
    code = """
    import json, sys
    sys.modules["torch"] = None
    import numpy, wpack
    shard = wpack.open(sys.argv[1]).shard()
    arrays = [shard.numpy("x"), numpy.from_dlpack(shard.view("y"))]
    shard.verify()
    try:
        shard.state_dict()
    except wpack.errors.TorchMissingError as error:
        print(json.dumps([arrays[0].tobytes().hex(), list(arrays[1].shape), error.hint]))
    """
    found, shape, hint = run(code, path)
    assert found == bytes(filled((5, 8), torch.float32).view(torch.uint8).numpy()).hex()
    assert shape == [3] and "view" in hint
