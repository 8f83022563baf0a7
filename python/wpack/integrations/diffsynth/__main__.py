"""``python -m wpack.integrations.diffsynth [--pack PACK]... SCRIPT ARGS...``"""

from __future__ import annotations

import argparse

from .._launch import run_script
from . import install


def main() -> None:
    """Installs the adapter, then runs a script as if it had been started itself."""
    parser = argparse.ArgumentParser(
        prog="python -m wpack.integrations.diffsynth",
        description="Runs a DiffSynth-Studio script whose weights come from packs.",
    )
    parser.add_argument("--pack", action="append", default=[], help="a pack to use for the files it was made from")
    parser.add_argument("script", help="the script")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    options = parser.parse_args()
    install(packs=options.pack)
    run_script(options.script, options.args)


main()
