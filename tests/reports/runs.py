"""Runs of training scripts in several processes, their figures, and tables with bounds."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MIB = 1 << 20

#: DeepSpeed configurations by name. LoRA trains in bf16 as DiffSynth's own configurations do.
DEEPSPEED: dict[str, dict[str, Any]] = {
    "zero2": {"stage": 2, "overlap_comm": False},
    "zero2-offload": {"stage": 2, "overlap_comm": False, "offload_optimizer": {"device": "cpu", "pin_memory": False}},
    # Without gathering, accelerate refuses to save a model of ZeRO-3.
    "zero3": {"stage": 3, "overlap_comm": False, "stage3_gather_16bit_weights_on_model_save": True},
}


@dataclass
class Run:
    """One training run of several processes."""

    name: str
    output: str
    ranks: list[list[dict[str, Any]]] = field(default_factory=list)

    def points(self, name: str, key: str) -> list[int]:
        """A figure at a point, by rank."""
        return [int(row[key]) for rows in self.ranks for row in rows if row.get("point") == name]

    def over_imports(self, name: str) -> float:
        """MiB of anonymous memory at a point beyond the imports, summed over the ranks."""
        return (sum(self.points(name, "anonymous")) - sum(self.points("imports", "anonymous"))) / MIB

    def pss(self, name: str) -> float:
        """MiB of proportional memory at a point beyond the imports, summed over the ranks."""
        return (sum(self.points(name, "pss")) - sum(self.points("imports", "pss"))) / MIB

    def losses(self) -> list[list[str]]:
        """Every bit of the losses, by rank."""
        return [[row["loss"] for row in rows if "loss" in row] for rows in self.ranks]


def run(
    name: str,
    script: str,
    arguments: Sequence[str],
    folder: Path,
    *,
    processes: int,
    adapter: Sequence[str] | None,
    environment: dict[str, str],
    deepspeed: str | None = None,
    cpu_adam: bool = False,
    accelerate: bool = False,
    timeout: int = 900,
    start: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run,
) -> Run:
    """Starts a script in several processes: as it is, or with ``adapter`` arguments through the launcher.

    ``torchrun`` starts them; with ``accelerate`` it is ``accelerate launch``, with the DeepSpeed configuration. With
    ``cpu_adam`` the optimizer is DeepSpeed's own, which accelerate puts in the place of the script's.
    ``start`` runs the command.
    """
    figures = folder / name
    shutil.rmtree(figures, ignore_errors=True)
    figures.mkdir(parents=True)
    training = _training(deepspeed, cpu_adam, figures)
    if accelerate:
        command = [sys.executable, "-m", "accelerate.commands.launch", f"--num_processes={processes}", "--num_machines=1"]
        command += [f"--main_process_port={_port()}", "--mixed_precision=bf16", "--dynamo_backend=no", "--use_deepspeed"]
        command += [f"--deepspeed_config_file={training['ACCELERATE_DEEPSPEED_CONFIG_FILE']}"]
    else:
        command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}"]
        command += [f"--master-port={_port()}"]
    if adapter is not None:
        command += ["-m", "wpack.integrations.diffsynth", *adapter]
    command += [str(HERE / script), *arguments]
    values = os.environ | {"OMP_NUM_THREADS": "1", "MEASURE_OUT": str(figures), "PYTHONUNBUFFERED": "1"}
    # Where `ninja` is, with which DeepSpeed compiles.
    values["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    values |= {"DS_ACCELERATOR": "cpu", "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ""}
    # Without a GPU accelerate names the CPU "cpu:0", to which torch copies what is on "cpu".
    values |= {"ACCELERATE_TORCH_DEVICE": "cpu"} | training | environment
    done = start(command, env=values, capture_output=True, text=True, timeout=timeout, cwd=folder)
    (figures / "output.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    if done.returncode:
        raise SystemExit(f"{name} failed, exit status {done.returncode}:\n" + tail(done.stderr))
    return Run(name, done.stdout + done.stderr, recorded(figures, processes))


def recorded(figures: Path, processes: int) -> list[list[dict[str, Any]]]:
    """What the processes of a run have noted, by rank; those that came to none have none."""
    paths = [figures / f"{rank}.jsonl" for rank in range(processes)]
    texts = [path.read_text(encoding="utf-8") if path.exists() else "" for path in paths]
    return [[json.loads(line) for line in text.splitlines()] for text in texts]


def run_each(
    name: str, script: str, arguments: Sequence[str], folder: Path, places: Sequence[tuple[int, int]], per_node: int
) -> tuple[list[list[dict[str, Any]]], str]:
    """Starts a script that forks one process for each (rank, rank on its node), as :func:`fork` does; their
    figures and what they wrote.

    Processes that fail are no error here: what stock does may be what is reported.
    """
    figures = folder / name
    shutil.rmtree(figures, ignore_errors=True)
    figures.mkdir(parents=True)
    values = os.environ | {"OMP_NUM_THREADS": "1", "MEASURE_OUT": str(figures), "CUDA_VISIBLE_DEVICES": ""}
    values |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_port()), "WORLD_SIZE": str(len(places))}
    values |= {"LOCAL_WORLD_SIZE": str(per_node), "SMALL_MODELS": str(folder), "DS_ACCELERATOR": "cpu"}
    values |= {"DIFFSYNTH_MODEL_BASE_PATH": str(folder), "DIFFSYNTH_SKIP_DOWNLOAD": "True"}
    command = [sys.executable, str(HERE / script), *arguments, "--places", json.dumps(places)]
    subprocess.run(command, env=values, cwd=folder, check=False, timeout=900)
    rows = recorded(figures, len(places))
    return rows, "".join((figures / f"{rank}.txt").read_text() for rank, _ in places)


def fork(places: Sequence[tuple[int, int]], body: Callable[[], None]) -> None:
    """Runs ``body`` in a process for each place, forked from this one, so that imports are paid for once.

    Output goes to files by rank. Where one process fails the others, which wait for it, are ended.
    """
    running = {}
    for rank, local in places:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(local)}
                output = os.open(Path(os.environ["MEASURE_OUT"], f"{rank}.txt"), os.O_WRONLY | os.O_CREAT)
                os.dup2(output, 1)
                os.dup2(output, 2)
                body()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        running[child] = rank
    while running:
        child, status = os.wait()
        running.pop(child)
        if status:
            time.sleep(3)
            for other in running:
                os.kill(other, signal.SIGKILL)


def drop_from_cache(path: Path) -> None:
    """Forgets a file's pages, so that what is read next comes from storage."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _training(deepspeed: str | None, cpu_adam: bool, figures: Path) -> dict[str, str]:
    if deepspeed is None:
        return {"ACCELERATE_USE_CPU": "true", "ACCELERATE_MIXED_PRECISION": "no"}
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "bf16": {"enabled": True},
        "zero_optimization": DEEPSPEED[deepspeed],
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": cpu_adam,
    }
    path = figures / "deepspeed.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_CONFIG_FILE": str(path)}


def tail(text: str, lines: int = 60) -> str:
    """The last lines of what a program wrote."""
    return "\n".join(text.splitlines()[-lines:])


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table; figures to a whole number."""
    text = [[f"{cell:,.0f}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in [list(head), *text]) for at in range(len(head))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(head, widths, strict=True)) + " |"]
    lines.append("| " + " | ".join("-" * width for width in widths) + " |")
    lines += ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in text]
    return "\n".join(lines)


class Bounds:
    """Bounds that are checked as a report goes, all of them listed at its end."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.failed = 0

    def at_most(self, what: str, found: float, bound: float) -> None:
        """A figure that may not be greater."""
        self._note(found <= bound, f"{what}: {found:,.1f}, at most {bound:,.1f}")

    def at_least(self, what: str, found: float, bound: float) -> None:
        """A figure that may not be smaller: that the stock code shows what is reported."""
        self._note(found >= bound, f"{what}: {found:,.1f}, at least {bound:,.1f}")

    def true(self, what: str, held: bool) -> None:
        """A statement."""
        self._note(held, what)

    def _note(self, held: bool, line: str) -> None:
        self.failed += not held
        self.lines.append(f"{'holds ' if held else 'MISSED'}  {line}")
        print(self.lines[-1], flush=True)

    def finish(self) -> None:
        """Ends the process: status 1 if a bound was missed."""
        print(f"{len(self.lines) - self.failed} of {len(self.lines)} hold", flush=True)
        raise SystemExit(1 if self.failed else 0)
