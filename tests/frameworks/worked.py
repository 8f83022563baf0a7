"""The worked examples of docs/plan.md, and checkpoints of the names that their rules are for."""

from dataclasses import dataclass
from pathlib import Path

import proof
import packs

import torch

PAGE = Path(__file__).resolve().parents[2] / "docs/plan.md"
LAYER = "model.layers.0"


@dataclass(frozen=True)
class Sizes:
    """What the rules look at, and a few columns, which they do not."""

    heads: int
    kv: int
    head: int
    wide: int
    words: int
    columns: int = 3


# The example's own, and small odd ones: more ranks divide them.
LLAMA = Sizes(heads=32, kv=8, head=128, wide=14336, words=128_256)
ODD = Sizes(heads=24, kv=12, head=5, wide=36, words=53)
# Of small models, and of the example.
DTYPES = ((torch.float32, torch.bfloat16), (torch.bfloat16,))


def weights(sizes, dtype):
    """A checkpoint: the projections of one layer as the files of a Llama have them."""
    attention, mlp, (q, kv) = f"{LAYER}.self_attn", f"{LAYER}.mlp", (sizes.heads * sizes.head, sizes.kv * sizes.head)
    shapes = {
        "model.embed_tokens.weight": (sizes.words, sizes.columns),
        f"{attention}.q_proj.weight": (q, sizes.columns),
        f"{attention}.k_proj.weight": (kv, sizes.columns),
        f"{attention}.v_proj.weight": (kv, sizes.columns),
        f"{attention}.o_proj.weight": (sizes.columns, q),
        f"{mlp}.gate_proj.weight": (sizes.wide, sizes.columns),
        f"{mlp}.up_proj.weight": (sizes.wide, sizes.columns),
        f"{mlp}.down_proj.weight": (sizes.columns, sizes.wide),
        "lm_head.weight": (sizes.words, sizes.columns),
        "model.norm.weight": (sizes.columns,),
    }
    # Numbers, since frameworks multiply with them and cast through fp32: a NaN need not keep its bits.
    return {
        name: torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
        for seed, (name, shape) in enumerate(shapes.items())
    }


def example(number, **changes):
    """A worked example with the text of other sizes in place of its own; each must be there."""
    section = PAGE.read_text().split("## Worked examples")[1].split("\n## ")[0]
    text = section.split("```toml\n")[1 + number].split("```")[0]
    for old, new in changes.values():
        assert old in text, (old, text)
        text = text.replace(old, new)
    return text


def convert(folder, values, plan):
    """The pack of a checkpoint by a plan file, from the program itself: it carries out merges and padding."""
    path = folder / "worked.toml"
    path.write_text(plan)
    return packs.convert(folder / "worked", values, "--plan", path)


def rows(values, rank, parts):
    """The rows of rank `rank` of `parts`."""
    size = len(values) // parts
    assert size * parts == len(values), (len(values), parts)
    return values[size * rank: size * (rank + 1)]


def equal(got, want, what):
    """Elements that a framework reads out of what it holds, against those of the checkpoint."""
    assert got.dtype == want.dtype and got.shape == want.shape, (what, got.shape, want.shape)
    assert proof.raw(got) == proof.raw(want), (what, "elements differ")
    proof.COMPARED.add(0, want.numel())
