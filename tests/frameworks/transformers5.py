"""`tp`, `fsdp2`, `ep` and `pp` against transformers: what `from_pretrained` leaves on every rank of a
distributed configuration. The plans are the model's own, written as rules."""

import os
import warnings

os.environ.update(TRANSFORMERS_VERBOSITY="error", HF_HUB_OFFLINE="1")
warnings.filterwarnings("ignore")

import proof
import packs

import torch
import torch.distributed as dist

SMALL = dict(
    hidden_size=24, num_hidden_layers=3, num_attention_heads=12, num_key_value_heads=4, vocab_size=53,
    max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)


def models():
    """Name, class and configuration: biases, ties, odd widths, packed weights, stacked experts."""
    import transformers as t

    yield "llama", t.LlamaForCausalLM, t.LlamaConfig(
        **SMALL, intermediate_size=37, attention_bias=True, mlp_bias=True)
    yield "llama, tied", t.LlamaForCausalLM, t.LlamaConfig(
        **{**SMALL, "num_key_value_heads": 2}, intermediate_size=37, tie_word_embeddings=True)
    yield "phi3", t.Phi3ForCausalLM, t.Phi3Config(**SMALL, intermediate_size=37)
    yield "qwen3_moe", t.Qwen3MoeForCausalLM, t.Qwen3MoeConfig(
        **SMALL, intermediate_size=37, moe_intermediate_size=10, num_experts=12, num_experts_per_tok=2,
        head_dim=2)


def variants(world):
    """Layout, mesh and the configuration that asks transformers for the same."""
    yield "tp", f"tp={world}", dict(tp_size=world)
    yield "fsdp2", f"fsdp={world}", dict(fsdp_size=world)
    yield "pp", f"pp={world}", dict(pp_size=world)
    yield "tp", f"tp={world}", dict(tp_size=world, ep_size=world)
    yield "ep+fsdp2", f"efsdp=1,ep={world}", dict(fsdp_size=world, ep_size=world)
    if world == 4:
        yield "ep+fsdp2", "efsdp=2,ep=2", dict(fsdp_size=4, ep_size=2)
        yield "tp+fsdp2", "fsdp=2,tp=2", dict(tp_size=2, fsdp_size=2)
        yield "hsdp", "dp_replicate=2,fsdp=2", dict(dp_replicate_size=2, fsdp_size=2)


def rules(model, config):
    """The model's own plan, one rule per parameter that it cuts."""
    tp, ep, _ = model._resolve_parallel_plans(config)
    text = 'default_style = "replicate"\n'
    for name, _ in model.named_parameters():
        dispatched = ep.get(name.rpartition(".")[0]) == "ep_dispatch_experts"
        expert = config.ep_size > 1 and (dispatched or ep.get(name))
        style = ep.get(name) if expert else tp.get(name)
        if style:
            text += f'[[rule]]\nmatch = "{name}"\nstyle = "{style}"\n'
    return text


def stages(tied):
    """The last stage needs the embedding again where its head is tied to it."""
    head = "model.embed_tokens.*" if tied else "lm_head.*"
    return f"""
        [stages]
        layers = "model.layers"
        first = ["model.embed_tokens.*"]
        last = ["model.norm.*", "{head}"]
    """


def work(rank, world, cases):
    dist.init_process_group("gloo", rank=rank, world_size=world)
    from transformers.distributed import DistributedConfig

    for _, folder, cls, config, pack in cases:
        model = cls.from_pretrained(
            folder, distributed_config=DistributedConfig(**config), dtype=torch.float32)
        shards = packs.shard(pack, rank)
        for name, parameter in model.named_parameters():
            local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
            proof.check(shards.pop(name), local)
        assert not shards, list(shards)


def prove(folder):
    import transformers
    from transformers.distributed import DistributedConfig

    transformers.utils.logging.disable_progress_bar()
    made = {}
    for name, cls, config in models():
        torch.manual_seed(0)
        model = cls(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_()
        model.save_pretrained(folder / name)
        made[name] = (cls, model)
    for world in proof.WORLDS:
        by_layout = {}
        for name, (cls, model) in made.items():
            values = {key: value.detach() for key, value in model.named_parameters()}
            for at, (layout, mesh, config) in enumerate(variants(world)):
                if "ep_size" in config and "moe" not in name:
                    continue
                if layout == "pp":
                    facts = stages(model.config.tie_word_embeddings)
                elif layout in ("fsdp2", "hsdp"):
                    facts = ""
                else:
                    facts = rules(model, DistributedConfig(**config))
                pack = packs.convert(
                    folder / f"{name}.{world}.{at}", values,
                    plan=f'mesh = "{mesh}"\nlayout = "{layout}"\n{facts}',
                )
                by_layout.setdefault(layout, []).append((name, folder / name, cls, config, pack))
        for layout, cases in by_layout.items():
            tally = proof.ranks(world, work, cases)
            framework = f"transformers {transformers.__version__}"
            proof.report(layout, framework, f"from_pretrained, {len(cases)} models", world, tally)
