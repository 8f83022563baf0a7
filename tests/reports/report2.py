"""USP, eight processes: each must open its own device, also where a node has only some of the ranks.

``from_pretrained(..., use_usp=True)`` of the installed wheel, with xfuser itself over gloo. Its kernels need a GPU:
the same attention is computed by gathering keys and values.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import report3
import runs

import wpack

ONE_NODE = [(rank, rank) for rank in range(8)]
TWO_NODES = [(rank, rank % 4) for rank in range(8)]


def main() -> None:
    """Runs and checks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    folder = options.folder.resolve() / "usp"
    report3.prepare("wan", folder, "tiny")
    pack = folder / "wan.wpack"
    size = wpack.open(pack).shard(0, 1).explain().mapped_bytes
    files = files_of(folder)
    bounds = runs.Bounds()
    rows = []
    videos = {}
    for nodes, places, per_node in ((1, ONE_NODE, 8), (2, TWO_NODES, 4)):
        for loader in ("stock", "wpack"):
            name = f"{nodes}-node-{loader}"
            arguments = ["--devices", str(per_node), "--usp", files]
            arguments += ["--packs", str(pack)] if loader == "wpack" else []
            runs.drop_from_cache(pack)
            found, output = runs.run_each(name, "devices.py", arguments, folder, places, per_node)
            asked = [next((row["asked"] for row in rank if "asked" in row), None) for rank in found]
            read = sum(row["read"] for rank in found for row in rank if "read" in row)
            videos[name] = [next((row["video"] for row in rank if "video" in row), None) for rank in found]
            rows.append([nodes, loader, " ".join(shown(one) for one in asked), read / runs.MIB])
            own = [[local] for _, local in places]
            if loader == "stock":
                fault = "invalid device ordinal" in output
                wrong = asked != own
                print(f"        stock on {nodes} node(s): {'set_device with a global rank fails' if fault else asked}")
                if nodes == 2:
                    bounds.true("2 nodes: stock does not give each rank its own device", wrong or fault)
                continue
            bounds.true(f"{nodes} node(s): every rank asks for its own device and no other", asked == own)
            held = [next((row["bytes"] for row in rank if "bytes" in row), {}) for rank in found]
            plan = [{str(local): size} for _, local in places]
            bounds.true(f"{nodes} node(s): bytes of each rank on its device are the plan's, {size}", held == plan)
            bounds.at_most(f"{nodes} node(s): file read from storage by all ranks, in sizes of it", read / pack.stat().st_size, 1.1)
            bounds.true(f"{nodes} node(s): all ranks make the same video", same(videos[name]))
            if None not in videos[f"{nodes}-node-stock"]:
                bounds.true(f"{nodes} node(s): the video is stock's, bit for bit", videos[name] == videos[f"{nodes}-node-stock"])
    print("\nIndex that each of 8 ranks asked for (- where the process failed), and MiB read from storage\n")
    print(runs.table(("nodes", "loader", "device of rank 0 to 7", "read"), rows) + "\n")
    bounds.finish()


def files_of(folder: Path) -> str:
    """The models' files as ``--model_paths`` takes them."""
    ti2v = folder / "Wan-AI/Wan2.2-TI2V-5B"
    dit = sorted(str(path) for path in ti2v.glob("diffusion_pytorch_model*.safetensors"))
    return json.dumps([dit, str(ti2v / "models_t5_umt5-xxl-enc-bf16.pth"), str(ti2v / "Wan2.1_VAE.pth")])


def shown(asked: list[int] | None) -> str:
    """Indices in a cell."""
    return "-" if asked is None else "+".join(map(str, asked))


def same(values: list[object]) -> bool:
    """True if there are values and all are equal."""
    return None not in values and all(value == values[0] for value in values)


if __name__ == "__main__":
    main()
