"""The worked example of Megatron-Core in docs/plan.md against its GPTModel on CPU.

Every parameter of every tensor parallel rank, as `_initialize_affine_weight_cpu` cuts it; and what its
attention and its MLP read out of the fused weights: whose rows are queries, keys, values, gate and up.
"""

import warnings

import proof
import packs
import worked

import torch
import torch.distributed as dist

warnings.filterwarnings("ignore")

# With fewer groups than ranks a group lies on several ranks, which gather it.
FEW = worked.Sizes(heads=8, kv=2, head=5, wide=36, words=53)
# What Megatron fills the vocabulary to a multiple of, times the ranks of tensor parallel.
MULTIPLE = {worked.LLAMA: 128, worked.ODD: 8, FEW: 8}
# World size, ranks of tensor parallel, and sizes of the model.
CASES = [(2, 2, worked.ODD), (3, 3, worked.ODD), (4, 4, worked.ODD), (4, 2, worked.ODD), (4, 4, FEW)]
# The example as it stands, and without its second axis.
CASES += [(4, 4, worked.LLAMA), (16, 8, worked.LLAMA)]


def plan(world, tp, sizes):
    return worked.example(
        0, mesh=("tp=8,dp=2", f"tp={tp},dp={world // tp}"),
        groups=("groups = 8", f"groups = {sizes.kv}"),
        multiple=("multiple = 1024", f"multiple = {MULTIPLE[sizes] * tp}"),
        wide=("14336", str(sizes.wide)),
    )


def fused(values, sizes, tp):
    """The weights as Megatron's initialisation meets them: whole, fused, padded; by shape, in its order."""
    part = lambda name: values[f"{worked.LAYER}.{name}_proj.weight"]
    groups = [part(f"self_attn.{name}").view(sizes.kv, -1, sizes.columns) for name in "qkv"]
    embed, head = values["model.embed_tokens.weight"], values["lm_head.weight"]
    fill = torch.zeros(-sizes.words % (MULTIPLE[sizes] * tp), sizes.columns, dtype=embed.dtype)
    whole = (
        torch.cat([embed, fill]), torch.cat(groups, dim=1).reshape(-1, sizes.columns), part("self_attn.o"),
        torch.cat([part("mlp.gate"), part("mlp.up")]), part("mlp.down"), torch.cat([head, fill]),
    )
    by_shape = {}
    for tensor in whole:
        by_shape.setdefault(tuple(tensor.shape), []).append(tensor)
    return by_shape, len(embed) + len(fill)


def build(values, sizes, tp, dtype):
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import TransformerConfig

    left, words = fused(values, sizes, tp)

    def initialise(master):
        master.copy_(left[tuple(master.shape)].pop(0))

    config = TransformerConfig(
        num_layers=1, hidden_size=sizes.columns, ffn_hidden_size=sizes.wide, kv_channels=sizes.head,
        num_attention_heads=sizes.heads, num_query_groups=sizes.kv, add_bias_linear=False, normalization="RMSNorm",
        gated_linear_unit=True, activation_func=torch.relu, bias_activation_fusion=False,
        tensor_model_parallel_size=tp, use_cpu_initialization=True, params_dtype=dtype, pipeline_dtype=dtype,
        init_method=initialise, output_layer_init_method=initialise, embedding_init_method=initialise,
        gradient_accumulation_fusion=False,
    )
    model = GPTModel(
        config, get_gpt_layer_local_spec(normalization="RMSNorm"), vocab_size=words, max_sequence_length=8,
        position_embedding_type="rope", share_embeddings_and_output_weights=False,
    )
    assert not any(left.values()), left
    # As its Float16Module does to what is not of the type of the weights: norms.
    return model.to(dtype)


def read_out(model, values, sizes, rank, tp):
    """What the layer computes of the unit vectors is the columns of its weights.

    The activation is one that rounds nothing; which half it is applied to is what counts.
    """
    layer, dtype = model.decoder.layers[0], next(model.parameters()).dtype
    unit = torch.eye(sizes.columns, dtype=dtype).unsqueeze(1)
    part = lambda name: values[f"{worked.LAYER}.{name}_proj.weight"]
    with torch.no_grad():
        query, key, value = layer.self_attention.get_query_key_value_tensors(unit)
    kept = min(sizes.kv, tp)
    for name, heads in (("q", query), ("k", key), ("v", value)):
        # A rank of a group that several share has all its keys and values.
        at, of = (rank, tp) if name == "q" else (rank * kept // tp, kept)
        want = worked.rows(part(f"self_attn.{name}"), at, of)
        worked.equal(heads.reshape(sizes.columns, -1).T, want, name)
    seen = []
    hook = layer.mlp.linear_fc2.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    with torch.no_grad():
        layer.mlp(unit)
    hook.remove()
    gate, up = (worked.rows(part(f"mlp.{name}"), rank, tp).T for name in ("gate", "up"))
    worked.equal(seen[0].squeeze(1), torch.relu(gate) * up, "gate and up")


NAMES = {
    "embedding.word_embeddings.weight": "model.embed_tokens.weight",
    "decoder.layers.0.self_attention.linear_qkv.weight": f"{worked.LAYER}.self_attn.linear_qkv.weight",
    "decoder.layers.0.self_attention.linear_proj.weight": f"{worked.LAYER}.self_attn.o_proj.weight",
    "decoder.layers.0.mlp.linear_fc1.weight": f"{worked.LAYER}.mlp.linear_fc1.weight",
    "decoder.layers.0.mlp.linear_fc2.weight": f"{worked.LAYER}.mlp.down_proj.weight",
    "decoder.final_layernorm.weight": "model.norm.weight",
    "output_layer.weight": "lm_head.weight",
}


def work(rank, world, tp, sizes, files):
    from megatron.core import parallel_state

    # Without a GPU Megatron still asks which one to make a tensor on.
    torch.cuda.current_device = lambda: "cpu"
    dist.init_process_group("gloo", rank=rank, world_size=world)
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=tp)
    for dtype, pack in files.items():
        values = worked.weights(sizes, dtype)
        model = build(values, sizes, tp, dtype)
        parameters, shards = dict(model.named_parameters()), packs.shard(pack, rank)
        # No initialisation asks for a norm: it is ones until a checkpoint is loaded.
        parameters["decoder.final_layernorm.weight"].data.copy_(values["model.norm.weight"])
        for theirs, ours in NAMES.items():
            proof.check(shards.pop(ours), parameters.pop(theirs))
        assert not shards, list(shards)
        assert all("layernorm" in name for name in parameters), list(parameters)
        read_out(model, values, sizes, parallel_state.get_tensor_model_parallel_rank(), tp)


def prove(folder):
    from importlib.metadata import version

    for world, tp, sizes in CASES:
        text = plan(world, tp, sizes)
        files = {
            dtype: worked.convert(folder, worked.weights(sizes, dtype), text)
            for dtype in worked.DTYPES[sizes is worked.LLAMA]
        }
        tally = proof.ranks(world, work, tp, sizes, files)
        what = f"GPTModel, {'worked example' if sizes is worked.LLAMA else 'other sizes'}"
        proof.report("rules", f"megatron-core {version('megatron-core')}", what, world, tally)
