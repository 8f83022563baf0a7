"""Tables from the CSV files of run.py: ``report.py FILE.csv ...``

A value is the median (least..greatest) of the quiet trials: those during which other processes used less than
0.6 cores. Where a cell has fewer than three of those, its three quietest count and it is marked ``*``.
"""

import csv
import sys
from collections import defaultdict
from statistics import median


def quietest(rows):
    """The trials that count, and the mark."""
    quiet = [row for row in rows if float(row["foreign_cores"]) < 0.6]
    if len(quiet) >= 3:
        return quiet, ""
    return sorted(rows, key=lambda row: float(row["foreign_cores"]))[:3], "*"


def spread(rows, key):
    """Median and range, in seconds."""
    values = [float(row[key]) for row in rows]
    return f"{median(values):.3f} ({min(values):.3f}..{max(values):.3f})"


def middle(rows, key):
    """Median of a column."""
    return median(float(row[key]) for row in rows)


def main():
    cells, failed = defaultdict(list), {}
    for path in sys.argv[1:]:
        with open(path) as file:
            for row in csv.DictReader(file):
                key = (row["mode"], int(row["world"]), row["cache"])
                if row["ok"] == "True":
                    cells[key, row["system"]].append(row)
                else:
                    failed[key, row["system"]] = row["error"] or "wrong bytes"
    for section in sorted({key for key, _ in cells}, key=lambda key: (key[0], key[1], key[2] != "warm")):
        mode, world, cache = section
        print(f"\n### {mode}, {world} process{'es' if world > 1 else ''}, {cache}\n")
        print("| loader | dict, s | dict + touch, s | CPU, s | anonymous, MB a rank | sum of PSS, MB | read from disk, MB | n |")
        print("|---|---|---|---|---|---|---|---|")
        mine = {name: rows for (key, name), rows in cells.items() if key == section}
        for name in sorted(mine, key=lambda name: middle(quietest(mine[name])[0], "touch")):
            rows, mark = quietest(mine[name])
            print(
                f"| {name}{mark} | {spread(rows, 'dict')} | {spread(rows, 'touch')} | {middle(rows, 'cpu'):.2f} "
                f"| {middle(rows, 'anon_mb'):.0f} | {middle(rows, 'pss_sum_mb'):.0f} | {middle(rows, 'disk_mb'):.0f} "
                f"| {len(rows)} of {len(mine[name])} |"
            )
        for (key, name), error in failed.items():
            if key == section and name not in mine:
                print(f"| {name} | failed: {error[:120]} | | | | | | |")


if __name__ == "__main__":
    main()
