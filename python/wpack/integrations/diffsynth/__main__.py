"""``python -m wpack.integrations.diffsynth [--pack [MODEL_ID=]PACK]... SCRIPT ARGS...``"""

from __future__ import annotations

import argparse
import os
import sys

from ... import WpackError
from .._launch import run_script
from . import install


def main() -> None:
    """Installs the adapter, then runs a script as if it had been started itself."""
    parser = argparse.ArgumentParser(
        prog="python -m wpack.integrations.diffsynth",
        description="Runs a DiffSynth-Studio script whose weights come from packs.",
    )
    parser.add_argument(
        "--pack",
        action="append",
        default=[],
        metavar="[MODEL_ID=]PACK",
        help="a pack to use for the files it was made from; with MODEL_ID also where those are not on disk",
    )
    parser.add_argument("--check-hash", action="store_true", help="compare the files' SHA-256, too")
    parser.add_argument("script", help="the script")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    options = parser.parse_args()
    try:
        for entry in options.pack:
            model_id, _, pack = entry.partition("=")
            install([entry] if not pack or os.path.exists(entry) else {model_id: pack})
        install(check_hash=options.check_hash)
    except WpackError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(1) from error
    run_script(options.script, options.args)


main()
