"""The loaders that are compared. Each is ``load(folder, mode, rank, world) -> (state dict, what to keep alive)``.

``mode`` is ``replicated`` (every rank gets all) or ``sharded`` (every rank gets its rows of every tensor, the
rule of FSDP2). A loader that cannot read a part reads all and keeps a copy of its part, as a program would.
"""

import json
import os
from typing import NamedTuple

import torch

from data import WORLD, cut, rows

WPACK = "wpack"
SAFETENSORS = ["model.safetensors"]


class System(NamedTuple):
    """A loader and the files it reads."""

    load: object
    replicated: list | None
    sharded: list | None
    copies: bool = False
    needs: str = ""
    group: bool = False


SYSTEMS = {}


def system(name, replicated=None, sharded=None, **facts):
    """Registers a loader."""

    def register(load):
        SYSTEMS[name] = System(load, replicated, sharded, **facts)
        return load

    return register


def wpack_pack(folder, mode):
    return f"{folder}/{'replicate' if mode == 'replicated' else 'fsdp2'}.wpack"


def load_wpack(folder, mode, rank, world, **options):
    import wpack

    # A process alone takes one rank of the sharded pack's four.
    size = world if mode == "replicated" else WORLD
    shard = wpack.open(wpack_pack(folder, mode)).shard(rank=rank, world_size=size)
    return shard.state_dict(progress=False, **options), None


@system("wpack", ["replicate.wpack"], ["fsdp2.wpack"], needs=WPACK)
def _(folder, mode, rank, world):
    return load_wpack(folder, mode, rank, world)


@system("wpack prefetch=ahead", ["replicate.wpack"], ["fsdp2.wpack"], needs=WPACK)
def _(folder, mode, rank, world):
    return load_wpack(folder, mode, rank, world, prefetch="ahead")


@system("wpack prefetch=node", ["replicate.wpack"], ["fsdp2.wpack"], needs=WPACK)
def _(folder, mode, rank, world):
    return load_wpack(folder, mode, rank, world, prefetch="node")


@system("wpack eager", ["replicate.wpack"], ["fsdp2.wpack"], needs=WPACK, copies=True)
def _(folder, mode, rank, world):
    return load_wpack(folder, mode, rank, world, eager=True)


@system("wpack resliced", None, ["replicate.wpack"], needs=WPACK)
def _(folder, mode, rank, world):
    import wpack

    shard = wpack.open(f"{folder}/replicate.wpack").shard(rank=rank, world_size=WORLD, layout="fsdp2")
    return shard.state_dict(progress=False), None


@system("safetensors load_file", SAFETENSORS, SAFETENSORS, needs="safetensors.torch")
def _(folder, mode, rank, world):
    from safetensors.torch import load_file

    state = load_file(f"{folder}/model.safetensors", device="cpu")
    return (state if mode == "replicated" else {k: cut(t, rank) for k, t in state.items()}), None


def slices(path, mode, rank, **options):
    from safetensors import safe_open

    out = {}
    with safe_open(path, framework="pt", device="cpu", **options) as file:
        for name in file.keys():
            part = file.get_slice(name)
            if mode == "replicated":
                out[name] = part[:]
            else:
                first, last = rows(part.get_shape(), rank)
                # safetensors refuses an empty slice at the end of a dimension.
                empty = torch.empty((0, *part.get_shape()[1:]), dtype=torch.bfloat16)
                out[name] = part[first:last] if first < last else empty
    return out


@system("safetensors load_file pread", SAFETENSORS, SAFETENSORS, needs="safetensors.torch", copies=True)
def _(folder, mode, rank, world):
    from safetensors.torch import load_file

    state = load_file(f"{folder}/model.safetensors", device="cpu", backend="pread")
    return (state if mode == "replicated" else {k: cut(t, rank).clone() for k, t in state.items()}), None


@system("safetensors get_slice", SAFETENSORS, SAFETENSORS, needs="safetensors.torch")
def _(folder, mode, rank, world):
    return slices(f"{folder}/model.safetensors", mode, rank), None


@system("safetensors get_slice pread", SAFETENSORS, SAFETENSORS, needs="safetensors.torch", copies=True)
def _(folder, mode, rank, world):
    return slices(f"{folder}/model.safetensors", mode, rank, backend="pread"), None


@system("safetensors split beforehand", None, ["split"], needs="safetensors.torch")
def _(folder, mode, rank, world):
    from safetensors.torch import load_file

    return load_file(f"{folder}/split/rank{rank}.safetensors", device="cpu"), None


@system("safetensors split beforehand pread", None, ["split"], needs="safetensors.torch", copies=True)
def _(folder, mode, rank, world):
    from safetensors.torch import load_file

    return load_file(f"{folder}/split/rank{rank}.safetensors", device="cpu", backend="pread"), None


@system("torch.load mmap", ["model.pth"], ["model.pth"])
def _(folder, mode, rank, world):
    state = torch.load(f"{folder}/model.pth", mmap=True, weights_only=True, map_location="cpu")
    return (state if mode == "replicated" else {k: cut(t, rank) for k, t in state.items()}), None


@system("torch.load", ["model.pth"], ["model.pth"], copies=True)
def _(folder, mode, rank, world):
    state = torch.load(f"{folder}/model.pth", mmap=False, weights_only=True, map_location="cpu")
    return (state if mode == "replicated" else {k: cut(t, rank).clone() for k, t in state.items()}), None


def fast(folder, mode, rank, world):
    from fastsafetensors import SafeTensorsFileLoader

    if mode == "sharded" and world == WORLD:
        # Each rank reads one shard file; the library scatters rows.
        names = sorted(os.listdir(f"{folder}/hf"))
        files = [f"{folder}/hf/{name}" for name in names if name.endswith(".safetensors")]
        loader = SafeTensorsFileLoader(torch.distributed.group.WORLD, "cpu", nogds=True)
        loader.add_filenames({i: [file] for i, file in enumerate(files)})
        buffer = loader.copy_files_to_device()
        # Rows that do not divide it cannot scatter.
        even = {k: loader.get_shape(k)[0] % world == 0 for k in loader.get_keys()}
        out = {k: buffer.get_sharded(k, 0) if even[k] else cut(buffer.get_tensor(k), rank).clone() for k in even}
    else:
        loader = SafeTensorsFileLoader(None, "cpu", nogds=True)
        loader.add_filenames({0: [f"{folder}/model.safetensors"]})
        buffer = loader.copy_files_to_device()
        out = {k: buffer.get_tensor(k) for k in loader.get_keys()}
        if mode == "sharded":
            out = {k: cut(t, rank).clone() for k, t in out.items()}
    buffer.close()
    loader.close()
    return out, None


SYSTEMS["fastsafetensors"] = System(fast, SAFETENSORS, ["model.safetensors", "hf"], True, "fastsafetensors", True)


@system("runai", SAFETENSORS, SAFETENSORS, needs="runai_model_streamer", copies=True)
def _(folder, mode, rank, world):
    from runai_model_streamer import SafetensorsStreamer

    out = {}
    with SafetensorsStreamer() as streamer:
        streamer.stream_file(f"{folder}/model.safetensors", device="cpu")
        for name, tensor in streamer.get_tensors():
            out[name] = tensor if mode == "replicated" else cut(tensor, rank).clone()
    return out, None


@system("tensorizer", ["model.tensors"], ["model.tensors"], needs="tensorizer", copies=True)
def _(folder, mode, rank, world):
    from tensorizer import TensorDeserializer

    reader = TensorDeserializer(f"{folder}/model.tensors", device="cpu")
    out = {k: t.detach() for k, t in reader.items()}
    if mode == "sharded":
        out = {k: cut(t, rank).clone() for k, t in out.items()}
    reader.close()
    return out, None


@system("DCP", ["dcp"], ["dcp"], copies=True, group=True)
def _(folder, mode, rank, world):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import FileSystemReader

    facts = FileSystemReader(f"{folder}/dcp").read_metadata().state_dict_metadata
    if mode == "replicated":
        state = {k: torch.empty(m.size, dtype=m.properties.dtype) for k, m in facts.items()}
        dcp.load(state, checkpoint_id=f"{folder}/dcp", no_dist=True)
        return state, None
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    mesh = init_device_mesh("cpu", (world,))
    state = {}
    for name, fact in facts.items():
        first, last = rows(fact.size, rank)
        local = torch.empty((last - first, *fact.size[1:]), dtype=fact.properties.dtype)
        state[name] = DTensor.from_local(
            local, mesh, [Shard(0)], run_check=False, shape=fact.size, stride=torch.empty(fact.size, device="meta").stride()
        )
    dcp.load(state, checkpoint_id=f"{folder}/dcp")
    return {k: t.to_local() for k, t in state.items()}, None


def expected(folder):
    """Sum of all bytes as 64-bit words, of the whole and of each rank's part, modulo 2**64."""
    path = f"{folder}/expected.json"
    if os.path.exists(path):
        with open(path) as file:
            return json.load(file)
    from safetensors.torch import load_file

    mask = (1 << 64) - 1
    whole, parts = 0, [0] * WORLD
    for tensor in load_file(f"{folder}/model.safetensors").values():
        whole += word_sum(tensor)
        for rank in range(WORLD):
            parts[rank] += word_sum(cut(tensor, rank))
    found = {"replicated": whole & mask, "sharded": [part & mask for part in parts]}
    with open(path, "w") as file:
        json.dump(found, file)
    return found


def word_sum(tensor):
    """Sum of a tensor's bytes as 64-bit words; the last word is filled up with zeros."""
    flat = tensor.reshape(-1).view(torch.uint8)
    odd = flat.numel() % 8
    if odd or flat.data_ptr() % 8 or not flat.numel():
        flat = torch.nn.functional.pad(flat, (0, -flat.numel() % 8)).clone()
    return int(flat.view(torch.int64).sum())
