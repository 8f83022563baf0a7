"""The worked example of vLLM in docs/plan.md against vLLM's own layers and their weight loaders on CPU.

Every tensor parallel rank is given the whole tensors of the checkpoint, as vLLM's models give them, and its
layers keep their parts: fused queries, keys and values, heads of keys and values on several ranks, gate and
up, the filled vocabulary.
"""

import os

os.environ.update(VLLM_TARGET_DEVICE="cpu", VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1")

import proof
import packs
import worked

import torch

# 190 words become 192; 2 heads lie on 2 ranks of 4 each, 1 head on all.
ODD = worked.Sizes(heads=24, kv=12, head=5, wide=36, words=190)
SHARED = worked.Sizes(heads=24, kv=2, head=5, wide=36, words=190)
ONE = worked.Sizes(heads=24, kv=1, head=5, wide=36, words=1)

CASES = [(world, sizes) for world in proof.WORLDS for sizes in (ODD, SHARED, ONE)]
# Refused by vLLM: 2 heads for 3 ranks, 64 rows of the vocabulary for 3.
CASES = [case for case in CASES if case not in [(3, SHARED), (3, ONE)]]
CASES += [(3, worked.Sizes(heads=24, kv=1, head=5, wide=36, words=190))]
# The example without sharing, and as it stands.
CASES += [(4, worked.LLAMA), (16, worked.LLAMA)]


def plan(world, sizes):
    heads, kv = sizes.heads * sizes.head, sizes.kv * sizes.head
    return worked.example(
        1, mesh=("tp=16", f"tp={world}"), queries=("4096: even", f"{heads}: even"),
        keys=("1024: kv_replicated(8, 128)", f"{kv}: kv_replicated({sizes.kv}, {sizes.head})"),
        wide=("14336", str(sizes.wide)),
    )


def layers(sizes, dtype):
    """vLLM's layers under the names of the plan, each with the tensors that a checkpoint has for it."""
    from vllm.model_executor.layers.layernorm import RMSNorm
    from vllm.model_executor.layers.linear import MergedColumnParallelLinear, QKVParallelLinear, RowParallelLinear
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

    attention, mlp = f"{worked.LAYER}.self_attn", f"{worked.LAYER}.mlp"
    plain = {"bias": False, "params_dtype": dtype}
    fused = lambda place, names: [(f"{place}.{name}_proj.weight", shard) for name, shard in names.items()]
    return {
        "model.embed_tokens.weight": (VocabParallelEmbedding(sizes.words, sizes.columns, params_dtype=dtype), None),
        f"{attention}.qkv_proj.weight": (
            QKVParallelLinear(sizes.columns, sizes.head, sizes.heads, sizes.kv, **plain),
            fused(attention, {"q": "q", "k": "k", "v": "v"})),
        f"{attention}.o_proj.weight": (RowParallelLinear(sizes.heads * sizes.head, sizes.columns, **plain), None),
        f"{mlp}.gate_up_proj.weight": (
            MergedColumnParallelLinear(sizes.columns, [sizes.wide] * 2, **plain), fused(mlp, {"gate": 0, "up": 1})),
        f"{mlp}.down_proj.weight": (RowParallelLinear(sizes.wide, sizes.columns, **plain), None),
        "lm_head.weight": (ParallelLMHead(sizes.words, sizes.columns, params_dtype=dtype), None),
        "model.norm.weight": (RMSNorm(sizes.columns, dtype=dtype), None),
    }


def work(rank, world, sizes, files):
    from vllm.config import DeviceConfig, VllmConfig, set_current_vllm_config
    from vllm.distributed import parallel_state
    from vllm.model_executor.model_loader.weight_utils import default_weight_loader

    with set_current_vllm_config(VllmConfig(device_config=DeviceConfig(device="cpu"))):
        parallel_state.init_distributed_environment(world, rank, "env://", rank, backend="gloo")
        parallel_state.initialize_model_parallel(world, backend="gloo")
        for dtype, pack in files.items():
            values, shards = worked.weights(sizes, dtype), packs.shard(pack, rank)
            for name, (layer, parts) in layers(sizes, dtype).items():
                load = getattr(layer.weight, "weight_loader", default_weight_loader)
                for source, shard in parts or [(name, None)]:
                    load(layer.weight, values[source], *([] if shard is None else [shard]))
                # vLLM writes its fill, zeros.
                proof.check(shards.pop(name), layer.weight)
            assert not shards, list(shards)
    # Its groups share memory, which outlives a process that ends without this.
    torch.distributed.barrier()
    parallel_state.cleanup_dist_env_and_memory()


def prove(folder):
    import vllm.model_executor.layers.vocab_parallel_embedding  # once here, not in every forked rank
    import vllm.model_executor.model_loader.weight_utils
    from importlib.metadata import version

    for world, sizes in CASES:
        files = {
            dtype: worked.convert(folder, worked.weights(sizes, dtype), plan(world, sizes))
            for dtype in worked.DTYPES[sizes is worked.LLAMA]
        }
        tally = proof.ranks(world, work, sizes, files)
        what = f"weight loaders, {'worked example' if sizes is worked.LLAMA else 'other sizes'}"
        proof.report("rules", f"vllm {version('vllm')}", what, world, tally)
