"""Load benchmark: W processes load one checkpoint at once, every loader side by side.

    run.py --data FOLDER --tiny FOLDER --out FILE.csv [--systems A,B] [--rounds N] [--world 1,4] ...

One trial: (1) what memory is free is filled with cached pages (see free_memory.py), the files' pages are
dropped and for a warm trial read back with large reads, and residency is checked with mincore: a trial whose files
are not all there, or not all gone, fails; (2) the ranks are forked from a process that has everything imported, each loads a
tiny checkpoint of the same form once, notes its counters and says it is ready; (3) all start at once;
(4) ``dict`` is the time until the last rank has a dict of CPU tensors, ``touch`` until the last has also
summed every byte; (5) ranks report memory and I/O; (6) the sums are compared: a loader that gives wrong bytes
fails its trial. Rounds visit all cells in random order. What other processes used of the CPU is recorded.
"""

import argparse
import gc
import json
import os
import random
import resource
import select
import signal
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import torch

import measure
from data import WORLD
from free_memory import FreeMemory
from systems import SYSTEMS, expected, word_sum

FIELDS = [
    "system", "mode", "world", "cache", "round", "dict", "touch", "cpu", "anon_mb", "pss_sum_mb", "disk_mb", "major_faults",
    "bytes", "tensors", "resident_percent", "read_ahead_kb", "foreign_cores", "steal", "ok", "error",
]  # fmt: skip
clock = time.monotonic


def rank_process(system, data, tiny, mode, rank, world, go, out, store):
    """One rank; never returns."""
    try:
        torch.set_num_threads(2 if world == 1 else 1)
        if system.group and mode == "sharded" and world == WORLD:
            import torch.distributed as dist

            dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
        state, keep = system.load(tiny, mode, rank, world)
        sum(word_sum(t) for t in state.values())
        del state, keep
        gc.collect()
        before, io, use = measure.memory(), measure.counters(), resource.getrusage(resource.RUSAGE_SELF)
        os.write(out, b"R")
        if os.read(go, 1) != b"G":
            os._exit(1)
        state, keep = system.load(data, mode, rank, world)
        have = clock()
        torch.set_num_threads(1)
        total = sum(word_sum(t) for t in state.values())
        done = clock()
        used = resource.getrusage(resource.RUSAGE_SELF)
        io_after, after = measure.counters(), measure.memory()
        facts = {
            "have": have,
            "done": done,
            "sum": total & ((1 << 64) - 1),
            "bytes": sum(t.nbytes for t in state.values()),
            "tensors": len(state),
            "anon": after["anon"] - before["anon"],
            "pss": after["pss"] - before["pss"],
            "disk": io_after["read_bytes"] - io["read_bytes"],
            "cpu": used.ru_utime + used.ru_stime - use.ru_utime - use.ru_stime,
            "major": used.ru_majflt - use.ru_majflt,
        }
        os.write(out, (json.dumps(facts) + "\n").encode())
        os.read(go, 1)
    except BaseException as error:
        where = " / ".join(traceback.format_exc().strip().splitlines()[-3:])
        os.write(out, (json.dumps({"error": f"{type(error).__name__}: {error}"[:300], "where": where}) + "\n").encode())
    os._exit(0)


def receive(fd, end):
    """One message of a rank, or None."""
    got = b""
    while not (got == b"R" or got.endswith(b"\n")):
        left = end - clock()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            return None
        more = os.read(fd, 65536)
        if not more:
            return None
        got += more
    return got


def quiet(limit, cores=0.5):
    """Waits until other processes use less than half a core, at most ``limit`` seconds."""
    end = clock() + limit
    while True:
        before, at = measure.busy()[0], clock()
        time.sleep(0.1)
        if (measure.busy()[0] - before) / (clock() - at) < cores or clock() > end:
            return


def trial(system, files, args, mode, world, cache, ranks, free):
    """One measurement, or ``{"error": ...}``."""
    measure.drop(files)
    free.fill()
    if cache == "warm":
        measure.warm(files)
    children = []
    with tempfile.TemporaryDirectory() as folder:
        for rank in ranks:
            go_read, go_write = os.pipe()
            out_read, out_write = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(go_write)
                os.close(out_read)
                for child in children:
                    os.close(child[1])
                    os.close(child[2])
                rank_process(system, args.data, args.tiny, mode, rank, world, go_read, out_write, f"{folder}/store")
            os.close(go_read)
            os.close(out_write)
            children.append((pid, go_write, out_read))
        end = clock() + args.timeout
        reports, error = [], None
        for _, _, out in children:
            message = receive(out, end)
            if message != b"R":
                error = (message or b"died or timed out before it was ready").decode()[-400:]
        if error is None:
            quiet(args.quiet)
            if cache == "cold":
                measure.drop(files)
            found, total = measure.resident(files)
            if found > 0.01 * total if cache == "cold" else found < 0.99 * total:
                error = f"not {cache}: {found} of {total} bytes were in the page cache"
        if error is None:
            busy, start = measure.busy(), clock()
            for _, go, _ in children:
                os.write(go, b"G")
            for _, _, out in children:
                message = receive(out, end)
                report = json.loads(message) if message else {"error": "died or timed out while loading"}
                error = error or report.get("error") and f"{report['error']} | {report.get('where')}"
                reports.append(report)
            busy_after, span = measure.busy(), clock() - start
        for _, go, _ in children:
            try:
                os.write(go, b"X")
            except OSError:
                pass
        for pid, go, out in children:
            reap(pid)
            os.close(go)
            os.close(out)
    if error:
        return {"error": error}
    every = lambda key: [report[key] for report in reports]
    return {
        "error": "",
        "dict": max(every("have")) - start,
        "touch": max(every("done")) - start,
        "cpu": sum(every("cpu")),
        "anon_mb": max(every("anon")) / 1e6,
        "pss_sum_mb": sum(every("pss")) / 1e6,
        "disk_mb": sum(every("disk")) / 1e6,
        "major_faults": sum(every("major")),
        "bytes": sum(every("bytes")),
        "tensors": reports[0]["tensors"],
        "sums": every("sum"),
        "resident_percent": 100 * found / max(total, 1),
        "foreign_cores": max(0.0, busy_after[0] - busy[0] - sum(every("cpu"))) / max(span, 0.01),
        "steal": (busy_after[1] - busy[1]) / max(span, 0.01),
    }


def reap(pid):
    """Waits for a child; ends it after three seconds."""
    end = clock() + 3
    while not os.waitpid(pid, os.WNOHANG)[0]:
        if clock() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return
        time.sleep(0.005)


def usable(names):
    """Those whose package can be imported; everything is imported here, before any fork."""
    out = []
    for name in names:
        try:
            if SYSTEMS[name].needs:
                __import__(SYSTEMS[name].needs)
            out.append(name)
        except Exception as error:
            print(f"left out: {name}: {type(error).__name__}: {error}", file=sys.stderr)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--tiny", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--modes", default="replicated,sharded")
    parser.add_argument("--world", default="1,4")
    parser.add_argument("--cache", default="warm,cold")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("--quiet", type=float, default=2.5, help="most seconds to wait for a quiet machine")
    parser.add_argument("--budget", type=float, default=1e9, help="start no round after this many seconds")
    parser.add_argument("--most-copies-gb", type=float, default=13)
    args = parser.parse_args()

    names = usable(args.systems.split(","))
    import torch.distributed.checkpoint  # noqa: F401
    import torch.distributed.tensor  # noqa: F401

    # Ranks are forks: what has used torch's threads cannot use them in a fork of it, and waits for ever.
    torch.set_num_threads(1)
    sums = expected(args.data)
    size = os.path.getsize(f"{args.data}/model.safetensors")
    cells = []
    for name in names:
        system = SYSTEMS[name]
        for mode in args.modes.split(","):
            files = system.replicated if mode == "replicated" else system.sharded
            if files is None:
                continue
            for world in map(int, args.world.split(",")):
                if name == "DCP" and mode == "sharded" and world != WORLD:
                    continue
                if system.copies and mode == "replicated" and world * size / 1e9 > args.most_copies_gb:
                    continue
                if name == "fastsafetensors" and mode == "sharded":
                    files = ["hf"] if world == WORLD else ["model.safetensors"]
                paths = [f"{args.data}/{file}" for file in files]
                cells += [(name, mode, world, cache, paths) for cache in args.cache.split(",")]
    gc.collect()
    gc.freeze()
    out = measure.Rows(args.out, FIELDS)
    ahead = measure.read_ahead_kb(args.data)
    print(f"read_ahead_kb {ahead}; {len(cells)} cells a round; {os.cpu_count()} processors", flush=True)
    free = FreeMemory(args.data)
    order, start = random.Random(1), clock()
    try:
        rounds(args, cells, sums, ahead, out, order, start, free)
    finally:
        free.remove()


def rounds(args, cells, sums, ahead, out, order, start, free):
    """Visits every cell once a round."""
    for number in range(args.rounds):
        if clock() - start > args.budget:
            print(f"budget spent after {number} rounds")
            break
        order.shuffle(cells)
        for name, mode, world, cache, paths in cells:
            # One rank of a sharded load alone: not the first, whose part often starts the file.
            ranks = list(range(world)) if world > 1 else [1 if mode == "sharded" else 0]
            row = trial(SYSTEMS[name], paths, args, mode, world, cache, ranks, free)
            want = [sums["replicated"]] * len(ranks) if mode == "replicated" else [sums["sharded"][r] for r in ranks]
            ok = not row["error"] and row["sums"] == want
            out.add({"system": name, "mode": mode, "world": world, "cache": cache, "round": number, "ok": ok,
                     "read_ahead_kb": ahead, **row})  # fmt: skip
            if not ok:
                print("FAILED", name, mode, world, cache, row["error"][:400] or "wrong bytes", flush=True)
        print(f"round {number} done after {clock() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
