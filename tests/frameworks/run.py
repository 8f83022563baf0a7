r"""Runs proofs: each compares the slices of packs with what a framework holds on every rank.

    WPACK_BIN=target/debug/wpack WPACK_SLICES=target/debug/examples/slices \
        python tests/frameworks/run.py [zero3 fsdp2 ...]

Without names those of the frameworks in tests/requirements.txt, which CI runs; `all` beside this file runs more.
"""

import importlib
import sys
import tempfile
import time
from pathlib import Path

PROOFS = ("fsdp2", "fsdp1", "wan22", "tp", "zero3", "zero12", "transformers5")


def main(names):
    for name in names or PROOFS:
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="wpack-proof-") as folder:
            importlib.import_module(name).prove(Path(folder))
        print(f"{name}: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
