"""Conversion of a `.pth` file against the same tensors as safetensors, and against torch itself.

    benches/pth.py --python PATH [--gb 2.2] [--rounds 5] [--folder DIR] [--wpack PATH] [--memory-gb 6]

--python is an interpreter with torch and safetensors: it saves the `.pth` file with `torch.save`, and it is the
opponent: `torch.load(mmap=True, weights_only=True)`, then `safetensors.torch.save_file`. That makes one safetensors
file and no rank layout; wpack writes the layout of `zero3` for four ranks, checksums included. The opponent is
measured as a command that is typed, as wpack always is, and once more started and imported before the clock runs; all
of it with the result on stable storage, and without.

Prints tables in Markdown. Rounds run all contenders once, in an order that moves on; figures are medians. At the end
the peak of private memory while a `.pth` file of --memory-gb is converted.
"""

import argparse
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from convert import GB, Trial, built, drop, make, peak, run, warm
from free_memory import FreeMemory

SAVE = """
import sys, torch
from safetensors import safe_open
with safe_open(sys.argv[1], "pt") as file:
    torch.save({name: file.get_tensor(name) for name in file.keys()}, sys.argv[2])
"""

COMMAND = """
import os, sys, torch
from safetensors.torch import save_file
source, target, how = sys.argv[1:4]
save_file(torch.load(source, mmap=True, weights_only=True, map_location="cpu"), target)
if how == "durable":
    fd = os.open(target, os.O_RDONLY)
    os.fsync(fd)
"""

REWRITE = """
import os, sys, torch
from safetensors.torch import save_file
source, target = sys.argv[1:3]
print("ready", flush=True)
for line in sys.stdin:
    save_file(torch.load(source, mmap=True, weights_only=True, map_location="cpu"), target)
    if line.strip() == "durable":
        fd = os.open(target, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    print("done", flush=True)
"""


class Rewriter:
    """A Python process that reads a `.pth` file and writes it as safetensors, ready before any clock runs."""

    def __init__(self, python, source, target):
        command = [python, "-c", REWRITE, str(source), str(target)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.expect("ready")

    def expect(self, word):
        found = self.process.stdout.readline().strip()
        if found != word:
            sys.exit(f"the Python process said {found!r} and not {word!r}")

    def go(self, how):
        self.process.stdin.write(how + "\n")
        self.process.stdin.flush()
        self.expect("done")

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True)
    parser.add_argument("--gb", type=float, default=2.2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder")
    parser.add_argument("--wpack")
    parser.add_argument("--memory-gb", type=float, default=6)
    args = parser.parse_args()
    args.wpack = args.wpack or built()
    folder = pathlib.Path(args.folder or tempfile.mkdtemp(prefix="wpack-bench-"))
    folder.mkdir(exist_ok=True)
    try:
        times(args, folder)
        if args.memory_gb:
            memory(args, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def save(args, folder, gb):
    safetensors, pth = folder / "model.safetensors", folder / "model.pth"
    tensors, size = make(safetensors, gb * GB)
    run(args.python, "-c", SAVE, safetensors, pth)
    return safetensors, pth, tensors, size


def times(args, folder):
    safetensors, pth, tensors, size = save(args, folder, args.gb)
    out, target = folder / "out.wpack", folder / "rewritten.safetensors"
    rewriter = Rewriter(args.python, pth, target)
    free = FreeMemory(folder)

    def convert(source):
        run(args.wpack, "convert", source, "-o", out, "--quiet", "--layout", "zero3", "--ranks", 4)

    def command(how):
        run(args.python, "-c", COMMAND, pth, target, how)

    contenders = {
        "pth": ("wpack convert model.pth", pth, lambda: convert(pth)),
        "safetensors": ("wpack convert model.safetensors", safetensors, lambda: convert(safetensors)),
        "command": ("python: torch.load(mmap=True), save_file, fsync", pth, lambda: command("durable")),
        "command-cached": ("python: the same, not durable", pth, lambda: command("cached")),
        "torch": ("the same, fsync, without starting and importing", pth, lambda: rewriter.go("durable")),
        "torch-cached": ("the same, not durable, without starting and importing", pth, lambda: rewriter.go("cached")),
    }
    names, trials = list(contenders), {name: [] for name in contenders}
    for turn in range(args.rounds):
        for at in range(len(names)):
            name = names[(at + turn) % len(names)]
            _, source, call = contenders[name]
            for path in (out, target):
                path.unlink(missing_ok=True)
            for path in (safetensors, pth):
                drop(path)
            warm(source)
            free.fill()
            with Trial() as trial:
                call()
            trials[name].append(trial)
            print(f"{turn} {name:14} {trial.wall:7.3f} s, others {trial.foreign:.2f}", file=sys.stderr)
    rewriter.close()
    for path in (safetensors, pth, out, target):
        path.unlink(missing_ok=True)

    median = {name: statistics.median(t.wall for t in of) for name, of in trials.items()}
    print(f"{size / GB:.2f} GB of bf16 in {tensors} tensors, source warm, median of {args.rounds}\n")
    print("| job | s | least, greatest | against model.pth |")
    print("| --- | --- | --- | --- |")
    for name, (words, _, _) in contenders.items():
        walls = [t.wall for t in trials[name]]
        print(f"| {words} | {median[name]:.3f} | {min(walls):.3f}, {max(walls):.3f} | {median[name] / median['pth']:.2f} |")


def memory(args, folder):
    safetensors, pth, _, size = save(args, folder, args.memory_gb)
    safetensors.unlink()
    out = folder / "memory.wpack"
    most, resident = peak([args.wpack, "convert", pth, "-o", out, "--quiet", "--layout", "zero3", "--ranks", 8])
    print(f"\n{size / GB:.2f} GB `.pth`, zero3 over 8 ranks: at most {most / 2**20:.0f} MiB anonymous, {resident / 2**20:.0f} MiB resident")


if __name__ == "__main__":
    main()
