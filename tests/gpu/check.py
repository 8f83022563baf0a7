"""The table of tests/gpu/run."""

import os
import platform
import sys
import tempfile
import time

import torch

import wpack

GB = 1e9
failed = False


def line(what, value, note=""):
    print(f"| {what} | {value} | {note} |", flush=True)


def check(what, good, note=""):
    global failed
    failed |= not good
    line(what, "ok" if good else "FAILED", note)


def timed(act, rounds=3):
    """Median seconds, device drained before and after."""
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        keep = act()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
        del keep
    return sorted(times)[len(times) // 2]


def evict(path):
    with open(path, "rb") as file:
        os.fdatasync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def ceilings():
    """What the machine's own copies reach, GB/s."""
    size = 256 << 20
    device = torch.empty(size, dtype=torch.uint8, device="cuda")
    best = 0.0
    for kind, pin in (("pinned", True), ("pageable", False)):
        host = torch.ones(size, dtype=torch.uint8, pin_memory=pin)
        rate = size / timed(lambda: device.copy_(host, non_blocking=True), 5) / GB
        line(f"host to device, {kind}, 256 MiB", f"{rate:.1f} GB/s")
        if pin:
            best = rate
            for chunk in (1, 4, 8, 16):
                parts = list(zip(device.split(chunk << 20), host.split(chunk << 20)))
                rate = size / timed(lambda: [a.copy_(b, non_blocking=True) for a, b in parts], 5) / GB
                line(f"host to device, pinned, in {chunk} MiB pieces", f"{rate:.1f} GB/s")
    return best


def checkpoint(folder, gigabytes):
    from safetensors.torch import save_file

    generator = torch.Generator(device="cuda").manual_seed(5)
    count = int(gigabytes * GB / (64 << 20))
    state = {}
    for i in range(count):
        raw = torch.randint(0, 256, (64 << 20,), generator=generator, dtype=torch.uint8, device="cuda")
        state[f"blocks.{i}.weight"] = raw.view(torch.bfloat16).view(4096, 8192).cpu()
    for i in range(400):
        state[f"blocks.{i}.bias"] = torch.full((4096,), i, dtype=torch.float32)
    source = f"{folder}/model.safetensors"
    save_file(state, source, metadata={"format": "pt"})
    wpack.convert(source, f"{folder}/model.wpack", layout="replicate", overwrite=True, progress=False)
    return source, f"{folder}/model.wpack", state


def exact(found, state):
    return all(
        torch.equal(found[name].view(torch.uint8), tensor.cuda().view(torch.uint8)) for name, tensor in state.items()
    )


def peers(source):
    """Loaders of the source file, where they are installed."""
    from safetensors.torch import load_file

    out = {"safetensors load_file": lambda: load_file(source, device="cuda:0")}
    try:
        from fastsafetensors import SafeTensorsFileLoader

        def fast():
            loader = SafeTensorsFileLoader(None, "cuda:0", nogds=True)
            loader.add_filenames({0: [source]})
            buffer = loader.copy_files_to_device()
            found = {name: buffer.get_tensor(name) for name in loader.get_keys()}
            return found, buffer, loader

        out["fastsafetensors"] = fast
    except ImportError:
        pass
    try:
        from runai_model_streamer import SafetensorsStreamer

        def runai():
            with SafetensorsStreamer() as streamer:
                streamer.stream_file(source)
                return {name: tensor.to("cuda:0") for name, tensor in streamer.get_tensors()}

        out["runai-model-streamer"] = runai
    except ImportError:
        pass
    return out


def main():
    if not torch.cuda.is_available():
        print("no CUDA device: nothing to check")
        return 0
    gigabytes = float(os.environ.get("WPACK_GPU_GB", "4"))
    torch.cuda.set_device(0)
    print("| what | result | note |\n| --- | --- | --- |")
    line("device", torch.cuda.get_device_name(), f"torch {torch.__version__}, CUDA {torch.version.cuda}")
    line("host", f"{os.cpu_count()} cores", f"kernel {platform.release()}")
    ceiling = ceilings()
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        source, path, state = checkpoint(folder, gigabytes)
        size = sum(t.nbytes for t in state.values())
        shard = wpack.open(path).shard(0, 1)
        before = torch.cuda.memory_allocated()
        found = shard.state_dict("cuda", progress=False)
        check("bit-exact", exact(found, state), f"{len(state)} tensors, {size / GB:.1f} GB")
        check("allocated no more than the tensors", torch.cuda.memory_allocated() - before <= size + 512 * len(state))
        check("pinned ring within its budget", shard.stats.ring_bytes <= 128 << 20, f"{shard.stats.ring_bytes >> 20} MiB")
        wrong = 0
        for _ in range(20):
            del found
            busy = [torch.randn(1 << 22, device="cuda") for _ in range(8)]
            for tensor in busy * 10:
                tensor.mul_(1.0001)
            del busy, tensor
            found = shard.state_dict("cuda", components=None, progress=False)
            wrong += not torch.equal(found["blocks.0.weight"].view(torch.int16), state["blocks.0.weight"].cuda().view(torch.int16))
        check("20 loads on a busy stream", wrong == 0, f"{wrong} wrong")
        del found
        torch.cuda.empty_cache()

        def load(**options):
            return lambda: shard.state_dict("cuda", progress=False, **options)

        for cold in (False, True):
            word = "cold" if cold else "warm"

            def rate(act, file):
                def once():
                    if cold:
                        evict(file)
                    return timed(act, 1)

                return size / sorted(once() for _ in range(3))[1] / GB

            mine = rate(load(), path)
            line(f"wpack, {word}", f"{mine:.2f} GB/s", f"{shard.stats.path}; {100 * mine / ceiling:.0f} % of the pinned ceiling")
            line(f"wpack without checks, {word}", f"{rate(load(verify=False), path):.2f} GB/s")
            line(f"wpack in groups of 1 GiB, {word}", f"{rate(load(group_bytes=1 << 30), path):.2f} GB/s")
            for name, act in peers(source).items():
                try:
                    line(f"{name}, {word}", f"{rate(act, source):.2f} GB/s")
                except Exception as error:
                    line(f"{name}, {word}", "did not run", f"{type(error).__name__}: {str(error)[:80]}")
        with open(path, "r+b") as file:
            file.seek(os.path.getsize(path) // 2)
            byte = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte[0] ^ 1]))
        try:
            wpack.open(path).shard(0, 1).state_dict("cuda", progress=False)
            check("a damaged block is an error", False)
        except wpack.WpackError as error:
            check("a damaged block is an error", True, error.code)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
