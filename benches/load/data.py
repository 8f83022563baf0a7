"""Makes the synthetic checkpoint and every form of it on disk.

    data.py SIZE FOLDER [FORM ...]      SIZE: tiny, XS (0.1 GB), S (1.0 GB), M (4.1 GB); all forms unless some are named

An inventory as of a video diffusion transformer: 30 blocks of self and cross attention, norms and MLP,
825 tensors in bf16, N(0, 0.02). Forms: safetensors, its Hugging Face shards, one file for each rank
split beforehand, torch.save, a replicated and a 4-rank fsdp2 pack, tensorizer, DCP.
"""

import json
import os
import sys
import tempfile

import numpy as np
import torch

WORLD = 4
SIZES = {"tiny": (64, 2), "XS": (320, 30), "S": (1024, 30), "M": (2048, 30)}
FORMS = ("hf", "split", "pth", "packs", "tensorizer", "dcp")


def inventory(size):
    """Names and shapes."""
    d, layers = SIZES[size]
    out = [
        ("patch_embedding.weight", (d, 16, 1, 2, 2)), ("patch_embedding.bias", (d,)),
        ("text_embedding.0.weight", (d, 2 * d)), ("text_embedding.0.bias", (d,)),
        ("text_embedding.2.weight", (d, d)), ("text_embedding.2.bias", (d,)),
        ("time_embedding.0.weight", (d, 256)), ("time_embedding.0.bias", (d,)),
        ("time_embedding.2.weight", (d, d)), ("time_embedding.2.bias", (d,)),
        ("time_projection.1.weight", (6 * d, d)), ("time_projection.1.bias", (6 * d,)),
    ]
    for i in range(layers):
        p = f"blocks.{i}."
        for a in ("self_attn", "cross_attn"):
            for m in "qkvo":
                out += [(f"{p}{a}.{m}.weight", (d, d)), (f"{p}{a}.{m}.bias", (d,))]
            out += [(f"{p}{a}.norm_q.weight", (d,)), (f"{p}{a}.norm_k.weight", (d,))]
        out += [
            (f"{p}norm3.weight", (d,)), (f"{p}norm3.bias", (d,)), (f"{p}modulation", (1, 6, d)),
            (f"{p}ffn.0.weight", (4 * d, d)), (f"{p}ffn.0.bias", (4 * d,)),
            (f"{p}ffn.2.weight", (d, 4 * d)), (f"{p}ffn.2.bias", (d,)),
        ]
    return out + [("head.modulation", (1, 2, d)), ("head.head.weight", (64, d)), ("head.head.bias", (64,))]


def rows(shape, rank, world=WORLD):
    """The rank's rows of a tensor, by the rule of FSDP2 (torch.chunk of dimension 0)."""
    step = -(-shape[0] // world)
    return min(step * rank, shape[0]), min(step * (rank + 1), shape[0])


def cut(tensor, rank, world=WORLD):
    """The rank's rows of a tensor, a view."""
    first, last = rows(tensor.shape, rank, world)
    return tensor[first:last]


def make(size):
    """The state dict."""
    generator = np.random.default_rng(7)
    out = {}
    for name, shape in inventory(size):
        values = generator.standard_normal(int(np.prod(shape)), dtype=np.float32)
        values *= 0.02
        out[name] = torch.from_numpy(values).to(torch.bfloat16).reshape(shape)
    return out


def shards(state, folder):
    """Four files and their index, as Hugging Face writes them."""
    from safetensors.torch import save_file

    os.makedirs(folder, exist_ok=True)
    total = sum(t.nbytes for t in state.values())
    parts, filled = [{}], 0
    for name, tensor in state.items():
        if filled + tensor.nbytes > total / 4 and len(parts) < 4:
            parts.append({})
            filled = 0
        parts[-1][name] = tensor
        filled += tensor.nbytes
    where = {}
    for i, part in enumerate(parts):
        file = f"model-{i + 1:05d}-of-{len(parts):05d}.safetensors"
        save_file(part, f"{folder}/{file}", metadata={"format": "pt"})
        where.update(dict.fromkeys(part, file))
    with open(f"{folder}/model.safetensors.index.json", "w") as file:
        json.dump({"metadata": {"total_size": total}, "weight_map": where}, file)


def packs(folder):
    """A replicated and a sharded pack."""
    import wpack

    source = f"{folder}/model.safetensors"
    wpack.convert(source, output=f"{folder}/replicate.wpack", layout="replicate", overwrite=True, progress=False)
    wpack.convert(source, output=f"{folder}/fsdp2.wpack", layout="fsdp2", ranks=WORLD, overwrite=True, progress=False)


def save_part(rank, path, folder, store):
    """One rank's rows of every tensor, saved by torch.distributed.checkpoint together with the other ranks."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard
    from safetensors.torch import load_file

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD)
    mesh = init_device_mesh("cpu", (WORLD,))
    part = {
        name: DTensor.from_local(
            cut(tensor, rank), mesh, [Shard(0)], run_check=False, shape=tensor.shape, stride=tensor.stride()
        )
        for name, tensor in load_file(path).items()
    }
    dcp.save(part, checkpoint_id=folder)
    dist.destroy_process_group()


def sharded_dcp(path, folder):
    """A checkpoint as four ranks of FSDP2 write it: a file of each rank."""
    # Not forked: what has used torch's threads cannot use them in a fork of it, and waits for ever.
    with tempfile.TemporaryDirectory() as temporary:
        torch.multiprocessing.start_processes(
            save_part, args=(path, folder, f"{temporary}/store"), nprocs=WORLD, start_method="spawn"
        )


def main():
    size, folder = sys.argv[1:3]
    forms = sys.argv[3:] or FORMS
    os.makedirs(folder, exist_ok=True)
    from safetensors.torch import load_file, save_file

    path = f"{folder}/model.safetensors"
    if not os.path.exists(path):
        save_file(make(size), path, metadata={"format": "pt"})
    state = load_file(path)
    print(size, len(state), "tensors", sum(t.nbytes for t in state.values()), "bytes")
    if "pth" in forms:
        torch.save({name: tensor.clone() for name, tensor in state.items()}, f"{folder}/model.pth")
    if "hf" in forms:
        shards(state, f"{folder}/hf")
    if "split" in forms:
        os.makedirs(f"{folder}/split", exist_ok=True)
        for rank in range(WORLD):
            part = {name: cut(tensor, rank).contiguous() for name, tensor in state.items()}
            save_file(part, f"{folder}/split/rank{rank}.safetensors")
    if "packs" in forms:
        packs(folder)
    if "tensorizer" in forms:
        try:
            from tensorizer import TensorSerializer
        except ImportError:
            print("tensorizer is not installed")
        else:
            serializer = TensorSerializer(f"{folder}/model.tensors")
            serializer.write_state_dict(state)
            serializer.close()
    if "dcp" in forms:
        sharded_dcp(path, f"{folder}/dcp")
    os.sync()


if __name__ == "__main__":
    main()
