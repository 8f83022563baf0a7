"""Report 5: ZeRO-3 on one host, stock against wpack. Memory of each rank while weights are loaded, bytes that it
copies, and losses of two steps.

    python tests/reports/zero3.py [--ranks 3] [--width 320] [--blocks 8]

Runs on the CPU with gloo and needs torch, deepspeed, accelerate, safetensors and wpack. Prints a table and fails on
a missed bound.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import socket
import sys
import tempfile
import threading
import traceback
from pathlib import Path

os.environ.update(DS_ACCELERATOR="cpu", GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")

import torch
import torch._dynamo  # PyTorch imports it at first use: once here, not in every rank
from accelerate import init_empty_weights
from safetensors.torch import load_file, save_file
from torch import nn

import deepspeed
import wpack
from wpack.integrations.deepspeed import load_into_zero3, partition_from_pack

MIB = 1 << 20
# What filling partitions may take beside them: index, mappings.
FILLING = MIB
# What mapping the partitions may cost in all.
MAPPED = 4 * MIB

# An optional kernel for reductions on CPU that would be compiled on first use.
importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
deepspeed.utils.logger.setLevel("ERROR")


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(self.up(x)))


class Model(nn.Module):
    """Embeddings tied to the head, blocks, and sizes that no number of ranks divides."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(1009, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(blocks)])
        self.scale = nn.Parameter(torch.ones(7))
        self.head = nn.Linear(width, 1009, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h).float().pow(2).mean() * self.scale.float().mean()


class Peak:
    """The most anonymous memory of this process while the block runs, over what it had before."""

    def __enter__(self) -> Peak:
        self.before = self.most = anonymous()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.after = anonymous() - self.before
        self.most = max(self.most - self.before, self.after)

    def _watch(self) -> None:
        while not self._stop.wait(0.002):
            self.most = max(self.most, anonymous())


def anonymous() -> int:
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024


def stock(model: nn.Module, source: Path) -> int:
    """As trainers do it: every rank reads the checkpoint, each layer is gathered, rank 0 fills it."""
    state = {name: tensor.clone() for name, tensor in load_file(source).items()}
    copied = sum(tensor.nbytes for tensor in state.values())
    for path, module in model.named_modules():
        own = [(f"{path}.{name}".lstrip("."), p) for name, p in module.named_parameters(recurse=False)]
        own = [(name, parameter) for name, parameter in own if name in state]
        with deepspeed.zero.GatheredParameters([p for _, p in own], modifier_rank=0):
            if deepspeed.comm.get_rank() == 0:
                with torch.no_grad():
                    for name, parameter in own:
                        parameter.copy_(state[name])
    return copied


def load(
    way: str, size: tuple[int, int], source: Path, pack: Path, config: dict[str, object]
) -> tuple[nn.Module, int, Peak]:
    """The model, bytes copied, and memory while they were: what zero.Init leaves is not loading's."""
    if way == "wpack, partitions mapped":
        with init_empty_weights(include_buffers=False):
            model = Model(*size)
        model.head.weight = model.embed.weight
        with Peak() as filling:
            partition_from_pack(model, pack, config)
        return model, 0, filling
    with deepspeed.zero.Init(config_dict_or_path=config):
        model = Model(*size)
    with Peak() as filling:
        copied = stock(model, source) if way == "stock" else load_into_zero3(model, pack)
    return model, copied, filling


def rank_main(rank: int, world: int, way: str, size: tuple[int, int], source: Path, pack: Path) -> dict[str, object]:
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 100},
    }
    deepspeed.comm.barrier()
    with Peak() as memory:
        model, copied, filling = load(way, size, source, pack, config)
    share = 0
    for parameter in model.parameters():
        step = math.ceil(parameter.ds_numel / world)
        share += max(0, min(step, parameter.ds_numel - step * rank)) * parameter.ds_tensor.element_size()
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3), config=config
    )
    losses = []
    for _ in range(2):
        loss = engine(torch.arange(16) + rank)
        engine.backward(loss)
        engine.step()
        losses.append(float(loss.detach()))
    return {"copied": copied, "share": share, "filling": filling.most, "peak": memory.most, "losses": losses}


def run(world: int, *args: object) -> list[dict[str, object]]:
    """``rank_main`` in forked processes: importing the frameworks is most of the time."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="wpack-zero3-") as folder:
        sys.stdout.flush()
        children = {}
        for rank in range(world):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    os.environ.update(
                        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world),
                        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                    )  # fmt: skip
                    torch.set_num_threads(1)
                    result = rank_main(rank, world, *args)  # type: ignore[arg-type]
                    Path(folder, str(rank)).write_text(json.dumps(result))
                    deepspeed.comm.barrier()
                    status = 0
                except BaseException:  # the child must not return into the parent's stack
                    traceback.print_exc()
                finally:
                    os._exit(status)
            children[child] = rank
        failed = False
        while children:
            child, status = os.wait()
            if children.pop(child, None) is not None and status and not failed:
                failed = True
                for other in children:
                    os.kill(other, 9)
        if failed:
            raise SystemExit("a rank failed")
        return [json.loads(Path(folder, str(rank)).read_text()) for rank in range(world)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="where the small model goes; a temporary folder by default")
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--width", type=int, default=320)
    parser.add_argument("--blocks", type=int, default=8)
    options = parser.parse_args()
    size = options.width, options.blocks
    with tempfile.TemporaryDirectory(prefix="wpack-zero3-") as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        source, packs = folder / "zero3.safetensors", {}
        torch.manual_seed(0)
        state = {name: tensor for name, tensor in Model(*size).state_dict().items() if name != "head.weight"}
        save_file(state, source)
        total = sum(tensor.nbytes for tensor in state.values())
        del state
        for layout in ("replicate", "zero3"):
            packs[layout] = folder / f"{layout}.wpack"
            ranks = None if layout == "replicate" else options.ranks
            wpack.convert(source, packs[layout], layout=layout, ranks=ranks, overwrite=True, progress=False)
        rows = [
            ("stock", "zero3"),
            ("wpack, zero.Init, zero3 pack", "zero3"),
            ("wpack, zero.Init, replicate pack", "replicate"),
            ("wpack, partitions mapped", "zero3"),
        ]
        results = {way: run(options.ranks, way, size, source, packs[layout]) for way, layout in rows}
        for path in (source, *packs.values()):
            path.unlink()
    return report(results, total, options.ranks)


def report(results: dict[str, list[dict[str, object]]], total: int, world: int) -> int:
    print(f"ZeRO-3, {world} ranks, model of {total / MIB:.1f} MiB; MiB of anonymous memory over that before")
    print("making the model, at most, and of that while weights are loaded\n")
    print(f"{'loaded by':<34} {'rank':>4} {'bytes copied':>13} {'1/N is':>13} {'peak':>7} {'loading':>7}  losses")
    for way, ranks in results.items():
        for rank, one in enumerate(ranks):
            print(
                f"{way:<34} {rank:>4} {one['copied']:>13} {one['share']:>13} {one['peak'] / MIB:>7.1f} "
                f"{one['filling'] / MIB:>7.1f}  {', '.join(f'{loss:.9f}' for loss in one['losses'])}"
            )
    missed = []
    expected = [one["losses"] for one in results["stock"]]
    for way, ranks in results.items():
        if [one["losses"] for one in ranks] != expected:
            missed.append(f"{way}: losses differ from stock")
        if sum(one["share"] for one in ranks) != total:
            missed.append(f"{way}: the partitions together are not the model")
        if "zero.Init" in way:
            if any(one["copied"] != one["share"] for one in ranks):
                missed.append(f"{way}: a rank copied other bytes than its own partition")
            if max(one["filling"] for one in ranks) > FILLING:
                missed.append(f"{way}: filling the partitions took more memory than they have")
        if way == "wpack, partitions mapped" and max(one["peak"] for one in ranks) > MAPPED:
            missed.append(f"{way}: loading took private memory")
        if way != "stock" and max(one["peak"] for one in ranks) >= max(one["peak"] for one in results["stock"]):
            missed.append(f"{way}: the peak is not below stock's")
    print()
    for line in missed:
        print(f"missed: {line}")
    print("all bounds held" if not missed else f"{len(missed)} bounds missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
