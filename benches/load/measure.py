"""Cache control, residency, and counters of a process and of the machine. Linux only."""

import csv
import ctypes
import mmap
import os
import statistics

PAGE = mmap.PAGESIZE
libc = ctypes.CDLL(None, use_errno=True)
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


def files_under(paths):
    """Every file of some files and folders."""
    out = []
    for path in paths:
        if os.path.isdir(path):
            for folder, _, names in os.walk(path):
                out += [os.path.join(folder, name) for name in names]
        elif os.path.exists(path):
            out.append(path)
    return sorted(set(out))


def drop(paths):
    """Writes these files back and drops their pages; other files keep theirs."""
    for path in files_under(paths):
        fd = os.open(path, os.O_RDONLY)
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def warm(paths):
    """Fills the cache with large reads. How it was filled decides the cost of mapping it, so every warm
    trial drops first and fills in this one way."""
    drop(paths)
    buffer = bytearray(8 << 20)
    for path in files_under(paths):
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def resident(paths):
    """Bytes in the page cache, and bytes in all, by mincore(2)."""
    found = total = 0
    for path in files_under(paths):
        size = os.path.getsize(path)
        if not size:
            continue
        total += size
        with open(path, "rb") as file:
            area = mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        pages = (size + PAGE - 1) // PAGE
        vector = (ctypes.c_ubyte * pages)()
        anchor = ctypes.c_char.from_buffer(area)
        if libc.mincore(ctypes.addressof(anchor), size, ctypes.addressof(vector)) != 0:
            raise OSError(ctypes.get_errno(), "mincore")
        found += min((pages - bytes(vector).count(0)) * PAGE, size)
        del anchor
        area.close()
    return found, total


def _table(path, scale):
    out = {}
    with open(path) as file:
        for line in file:
            key, colon, value = line.partition(":")
            words = value.split()
            if colon and words and words[0].isdigit():
                out[key] = int(words[0]) * scale
    return out


def memory():
    """Memory of this process, bytes."""
    rollup = _table("/proc/self/smaps_rollup", 1024)
    return {
        "rss": rollup["Rss"],
        "pss": rollup["Pss"],
        "uss": rollup["Private_Clean"] + rollup["Private_Dirty"],
        "anon": rollup["Anonymous"],
    }


def counters():
    """I/O of this process, bytes: ``read_bytes`` is what came from storage."""
    return _table("/proc/self/io", 1)


def busy():
    """Busy and stolen CPU seconds of the whole machine."""
    hertz = os.sysconf("SC_CLK_TCK")
    with open("/proc/stat") as file:
        value = [int(word) for word in file.readline().split()[1:]]
    return (value[0] + value[1] + value[2] + value[5] + value[6]) / hertz, value[7] / hertz


def read_ahead_kb(path):
    """Readahead of the device below a path, KiB; None where the system does not say."""
    device = os.stat(path).st_dev
    link = f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"
    for candidate in (f"{link}/queue/read_ahead_kb", f"{link}/../queue/read_ahead_kb", f"{link}/bdi/read_ahead_kb"):
        try:
            with open(candidate) as file:
                return int(file.read())
        except OSError:
            continue
    return None


class Rows:
    """A CSV file that grows."""

    def __init__(self, path, fields):
        fresh = not os.path.exists(path) or os.path.getsize(path) == 0
        self.file = open(path, "a", newline="")
        self.writer = csv.DictWriter(self.file, fields, extrasaction="ignore")
        if fresh:
            self.writer.writeheader()

    def add(self, row):
        self.writer.writerow({k: (f"{v:.6f}" if isinstance(v, float) else v) for k, v in row.items()})
        self.file.flush()


median = statistics.median
