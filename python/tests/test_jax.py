"""jax over mapped memory, in a process of its own: jax starts threads, and other tests fork."""

import importlib.util

import pytest

torch = pytest.importorskip("torch")

import wpack
from states import every_dtype, filled

if importlib.util.find_spec("jax") is None:
    pytest.skip("jax is not installed", allow_module_level=True)

PREAMBLE = """
import json, sys
import jax, numpy, wpack
jax.config.update("jax_platforms", "cpu")
def take(view):
    array = jax.numpy.from_dlpack(view)
    address = view.__array_interface__["data"][0]
    return [str(array.dtype), list(array.shape), numpy.asarray(array).tobytes() == view.bytes(),
            array.unsafe_buffer_pointer() == address]
shard = wpack.open(sys.argv[1]).shard()
"""
# torch's names of types that jax calls otherwise: packed fp4 comes as bytes.
OTHER = {"float4_e2m1fn_x2": "uint8"}


def test_every_dtype_without_a_copy(convert, run):
    """bfloat16, every fp8 and all else: jax's type of that name, every bit, the mapping's own memory."""
    state = every_dtype()
    code = PREAMBLE + """
jax.config.update("jax_enable_x64", True)
print(json.dumps({name: take(shard.view(name)) for name in shard}))
"""
    found = run(code, convert(state))
    wanted = {}
    for name, tensor in state.items():
        kind = str(tensor.dtype).removeprefix("torch.")
        wanted[name] = [OTHER.get(kind, kind), list(tensor.shape), True, True]
    assert found == wanted


def test_what_jax_narrows_and_refuses(convert, run, tmp_path):
    """64 bits become 32 where jax is not told otherwise, in a copy; complex32 is an error; read-only memory is
    one in a jax that asks for the form of DLPack before 1.0, and the same values in a later one."""
    path = tmp_path / "half.pt"
    torch.save({"half": filled((7,), torch.complex32), "wide": torch.arange(5)}, path)
    wpack.convert(path, tmp_path / "half.wpack", layout="replicate", progress=False)
    code = PREAMBLE + """
errors = []
for view in (shard.view("half"), wpack.open(sys.argv[1], read_only=True).shard().view("wide")):
    try:
        errors.append(jax.numpy.from_dlpack(view).tolist())
    except Exception as error:
        errors.append({"buffer": isinstance(error, BufferError), "text": str(error)})
wide = jax.numpy.from_dlpack(shard.view("wide"))
print(json.dumps([*errors, str(wide.dtype), wide.tolist()]))
"""
    half, read_only, dtype, values = run(code, tmp_path / "half.wpack")
    assert "32" in half["text"]
    if isinstance(read_only, dict):
        assert read_only["buffer"] and "open it without read_only" in read_only["text"]
    else:
        assert read_only == [0, 1, 2, 3, 4]
    assert dtype == "int32" and values == [0, 1, 2, 3, 4]


def test_an_array_outlives_the_pack_and_feeds_a_computation(convert, run):
    tensor = filled((130, 64), torch.bfloat16)
    code = PREAMBLE + """
import gc
array = jax.numpy.from_dlpack(shard.view("x"))
del shard
gc.collect()
twice = jax.jit(lambda x: x.view(jax.numpy.uint16) ^ 1)(array)
print(json.dumps([numpy.asarray(array).tobytes().hex(), numpy.asarray(twice).tobytes().hex()]))
"""
    found, flipped = run(code, convert({"x": tensor}))
    bits = tensor.view(torch.int16)
    assert found == bits.numpy().tobytes().hex() and flipped == (bits ^ 1).numpy().tobytes().hex()
