"""Conversion and verification against what a person would use instead, side by side in one run.

    benches/convert.py [--gb 2.2] [--rounds 5] [--folder DIR] [--wpack PATH] [--python PATH]
                       [--only NAME,NAME] [--memory-gb 6] [--keep]

Makes a synthetic bf16 checkpoint of some hundred tensors in DIR, measures, prints a table in Markdown, and
removes what it made. Every round runs all contenders once, in an order that moves on from round to round; the
figures are medians, with the least and the greatest beside them. What other programs used of the processors
meanwhile is shown: with more than a few tenths of a core, measure again.

Contenders that are only there where their programs are: `cp`, `openssl`, and the Python splitter, which needs
an interpreter with torch and safetensors (--python).
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from free_memory import FreeMemory

HERE = pathlib.Path(__file__).resolve().parent
GB = 1e9
CORES = os.cpu_count() or 1


def shapes(target):
    """Shapes of a diffusion transformer's blocks until `target` bytes of bf16 are reached."""
    block = [
        ("attn.qkv.weight", [4608, 1536]),
        ("attn.qkv.bias", [4608]),
        ("attn.out.weight", [1536, 1536]),
        ("attn.out.bias", [1536]),
        ("norm1.weight", [1536]),
        ("norm2.weight", [1536]),
        ("mlp.fc1.weight", [6144, 1536]),
        ("mlp.fc1.bias", [6144]),
        ("mlp.fc2.weight", [1536, 6144]),
        ("mlp.fc2.bias", [1536]),
    ]
    total, index = 0, 0
    while total < target:
        for name, shape in block:
            size = 2
            for n in shape:
                size *= n
            yield f"blocks.{index}.{name}", shape, size
            total += size
        index += 1


def make(path, target):
    """Writes the checkpoint; its bytes are random, as weights are to everything measured here."""
    header, offset = {}, 0
    for name, shape, size in shapes(target):
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    noise = os.urandom(64 << 20)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        left, turn = offset, 0
        while left:
            # Turned each time, so that no two parts are alike.
            part = noise[turn:] + noise[:turn]
            turn = (turn + 8191) % len(noise)
            file.write(part[: min(left, len(part))])
            left -= min(left, len(part))
        file.flush()
        os.fsync(file.fileno())
    return len(header), offset


def warm(path):
    """Reads a file into the page cache in large pieces."""
    buffer = bytearray(16 << 20)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def drop(path):
    """Takes a file out of the page cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def busy():
    """Processor seconds used by everyone on this machine."""
    fields = open("/proc/stat").readline().split()[1:]
    return sum(int(n) for i, n in enumerate(fields) if i not in (3, 4)) / os.sysconf("SC_CLK_TCK")


class Trial:
    """Wall time, own processor time and that of others, around one contender."""

    def __enter__(self):
        os.sync()
        self.usage, self.busy, self.start = os.times(), busy(), time.monotonic()
        return self

    def __exit__(self, *_):
        self.wall = time.monotonic() - self.start
        usage = os.times()
        self.cpu = sum(usage[:4]) - sum(self.usage[:4])
        self.foreign = max(0.0, busy() - self.busy - self.cpu) / self.wall


def sync_file(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


SPLIT = """
import os, sys, time, torch
from safetensors import safe_open
from safetensors.torch import save_file
source, folder, ranks, own = sys.argv[1], sys.argv[2], int(sys.argv[3]), [int(r) for r in sys.argv[4].split(",")]
durable = sys.argv[5] == "durable"
print("ready", flush=True)
for line in sys.stdin:
    for rank in own:
        part = {}
        with safe_open(source, "pt") as file:
            for name in file.keys():
                whole = file.get_slice(name)
                n = whole.get_shape()[0]
                step = -(-n // ranks)
                part[name] = whole[rank * step : min(n, (rank + 1) * step)].contiguous()
        path = os.path.join(folder, f"rank{rank}.safetensors")
        save_file(part, path)
        if durable:
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
    print("done", flush=True)
"""


class Splitter:
    """Two Python processes that split a checkpoint for four ranks; started before any clock runs."""

    def __init__(self, python, source, folder, durable):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(exist_ok=True)
        how = "durable" if durable else "cached"
        self.processes = [
            subprocess.Popen(
                [python, "-c", SPLIT, str(source), str(folder), "4", ranks, how],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for ranks in ("0,2", "1,3")
        ]
        for process in self.processes:
            assert process.stdout.readline() == "ready\n"

    def cpu(self):
        """Processor seconds so far; the processes live on, so the parent's sums do not have them."""
        total = 0
        for process in self.processes:
            fields = open(f"/proc/{process.pid}/stat").read().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")

    def go(self):
        for process in self.processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in self.processes:
            assert process.stdout.readline() == "done\n"

    def clean(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()

    def close(self):
        for process in self.processes:
            process.stdin.close()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def openssl_rate():
    """Bytes of SHA-256 that all processors hash in a second, by `openssl speed`."""
    text = run("openssl", "speed", "-multi", CORES, "-seconds", 2, "-bytes", 1 << 20, "-evp", "sha256")
    last = text.strip().splitlines()[-1].split()[-1]
    return float(last.rstrip("k")) * 1000


def peak(command):
    """Greatest anonymous memory of a command, bytes, and its greatest resident memory as the kernel counts it."""
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    most, resident = 0, 0
    while process.poll() is None:
        try:
            for line in open(f"/proc/{process.pid}/status"):
                if line.startswith("RssAnon"):
                    most = max(most, int(line.split()[1]) << 10)
                elif line.startswith("VmHWM"):
                    resident = max(resident, int(line.split()[1]) << 10)
        except (FileNotFoundError, ProcessLookupError):
            break
        time.sleep(0.002)
    if process.wait():
        sys.exit(process.stderr.read().decode())
    return most, resident


def built():
    """The release binary, built."""
    subprocess.run(["cargo", "build", "--release", "-p", "wpack-cli"], cwd=HERE.parent, check=True)
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target")) / "release/wpack"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=2.2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder")
    parser.add_argument("--wpack")
    parser.add_argument("--python")
    parser.add_argument("--only")
    parser.add_argument("--memory-gb", type=float, default=6)
    parser.add_argument("--keep", action="store_true", help="keep the folder and the checkpoint in it")
    args = parser.parse_args()
    wpack = args.wpack or built()
    folder = pathlib.Path(args.folder or tempfile.mkdtemp(prefix="wpack-bench-"))
    folder.mkdir(exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        bench(args, wpack, folder)
    finally:
        if not args.keep:
            shutil.rmtree(folder, ignore_errors=True)


def bench(args, wpack, folder):
    source = folder / "model.safetensors"
    if source.exists():
        tensors, size = "?", source.stat().st_size
    else:
        tensors, size = make(source, args.gb * GB)
    out, pack, copy = folder / "out.wpack", folder / "pack.wpack", folder / "copy.safetensors"
    free = FreeMemory(folder)

    def convert(*options):
        run(wpack, "convert", source, "-o", out, "--quiet", *options)

    def cp():
        run("cp", "--reflink=never", source, copy)
        sync_file(copy)

    contenders = {
        "cp": ("cp --reflink=never, then fsync", cp, False),
        "replicate": ("wpack convert --layout replicate", lambda: convert("--layout", "replicate"), False),
        "zero3": ("wpack convert --layout zero3 --ranks 4", lambda: convert("--layout", "zero3", "--ranks", 4), False),
        "fp32": ("wpack convert --dtype fp32 (twice the bytes)", lambda: convert("--dtype", "fp32"), False),
        "cp-cold": ("cp and fsync, source cold", cp, True),
        "replicate-cold": ("wpack replicate, source cold", lambda: convert("--layout", "replicate"), True),
        "zero3-cold": ("wpack zero3 --ranks 4, source cold", lambda: convert("--layout", "zero3", "--ranks", 4), True),
    }
    splitters = {}
    if args.python:
        for name, durable in (("split", False), ("split-durable", True)):
            splitters[name] = Splitter(args.python, source, folder / name, durable)
            words = "Python get_slice and save_file, 2 processes" + (", fsync" if durable else ", not durable")
            contenders[name] = (words, splitters[name].go, False)
    verifies = shutil.which("openssl") is not None
    names = [name for name in contenders if not args.only or name in args.only.split(",")]
    trials = {name: [] for name in names}
    verified = []
    run(wpack, "convert", source, "-o", pack, "--quiet", "--overwrite", "--layout", "zero3", "--ranks", 4)
    for round_ in range(args.rounds):
        for at in range(len(names)):
            name = names[(at + round_) % len(names)]
            _, call, cold = contenders[name]
            for path in (out, copy):
                path.unlink(missing_ok=True)
            os.sync()
            # Dropped first in either case: how a file came into the cache changes how fast it is read.
            drop(source)
            if not cold:
                warm(source)
            free.fill()
            before = splitters[name].cpu() if name in splitters else 0
            with Trial() as trial:
                call()
            if name in splitters:
                spent = splitters[name].cpu() - before
                trial.cpu += spent
                trial.foreign = max(0.0, trial.foreign - spent / trial.wall)
                splitters[name].clean()
            trials[name].append(trial)
            print(f"{round_} {name:16} {trial.wall:7.3f} s, {trial.cpu:6.3f} s on cores, others {trial.foreign:.2f}", file=sys.stderr)
        if verifies and (not args.only or "verify" in args.only.split(",")):
            drop(pack)
            warm(pack)
            free.fill()
            rate = openssl_rate()
            with Trial() as trial:
                checked = json.loads(run(wpack, "verify", pack, "--json"))
            verified.append((checked["checked_bytes"] / checked["seconds"], rate, trial))
            print(f"{round_} verify {verified[-1][0] / GB:.2f} GB/s, openssl {rate / GB:.2f} GB/s, others {trial.foreign:.2f}", file=sys.stderr)
    for splitter in splitters.values():
        splitter.close()
    for path in (out, copy, pack):
        path.unlink(missing_ok=True)
    report(contenders, trials, verified, size, tensors, args)
    if args.memory_gb:
        memory(args, wpack, folder)


def report(contenders, trials, verified, size, tensors, args):
    print(f"{size / GB:.2f} GB of bf16 in {tensors} tensors, {CORES} processors, median of {args.rounds}\n")
    print("| job | s | least, greatest | s/GB | CPU s | against cp | others' cores |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    median = {name: statistics.median(t.wall for t in list_) for name, list_ in trials.items() if list_}
    for name, list_ in trials.items():
        base = median.get("cp-cold" if name.endswith("cold") else "cp")
        walls = [t.wall for t in list_]
        ratio = f"{median[name] / base:.2f}" if base else ""
        cpu = statistics.median(t.cpu for t in list_)
        foreign = statistics.median(t.foreign for t in list_)
        print(f"| {contenders[name][0]} | {median[name]:.3f} | {min(walls):.3f}, {max(walls):.3f} | {median[name] / size * GB:.3f} | {cpu:.2f} | {ratio} | {foreign:.2f} |")
    if verified:
        own = statistics.median(v[0] for v in verified)
        other = statistics.median(v[1] for v in verified)
        ratio = statistics.median(v[0] / v[1] for v in verified)
        print(f"\nverify: {own / GB:.2f} GB/s; openssl speed -multi {CORES} -evp sha256: {other / GB:.2f} GB/s; ratio {ratio:.2f}")


def memory(args, wpack, folder):
    """Peak memory of converting a checkpoint of several GB, at two sizes and thread counts."""
    print("\n| job | peak anonymous memory | peak resident |")
    print("| --- | --- | --- |")
    for gb in (args.memory_gb / 2, args.memory_gb):
        source, out = folder / f"memory-{gb}.safetensors", folder / "memory.wpack"
        make(source, gb * GB)
        for threads in (CORES, 64):
            command = [wpack, "convert", source, "-o", out, "--quiet", "--overwrite", "--threads", threads]
            command += ["--layout", "zero3", "--ranks", 8]
            most, resident = peak(command)
            out.unlink(missing_ok=True)
            print(f"| zero3 --ranks 8, {gb:.1f} GB, {threads} threads | {most / 2**20:.0f} MiB | {resident / 2**20:.0f} MiB |")
        source.unlink()


if __name__ == "__main__":
    main()
