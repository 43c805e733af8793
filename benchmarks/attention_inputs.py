"""Attention kernels on inputs that are meant to break them; tests/support/adversary/bar.py judges.

    python benchmarks/attention_inputs.py --cases 20000 [--seed 0] [--json out.json]
    python benchmarks/attention_inputs.py --class "two levels" --number 3      # one launch again

A case is one head of a launch on the virtual device. Prints, by class and family of kernels, cases,
failures, the worst error beside what is allowed, and as a control what fails of the plain pipeline
itself with its sums in another order.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("AMDATTN_DEVICE", "virtual:gfx942")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small products

from tests.support.adversary import report
from tests.support.adversary.classes import CLASSES
from tests.support.adversary.sweep import Row, made, sweep

FAMILIES = ("wide", "narrow")


def arguments() -> argparse.Namespace:
    """Parsed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--class", dest="name", choices=sorted(CLASSES), action="append")
    parser.add_argument("--family", choices=FAMILIES, default="")
    parser.add_argument("--kernel", default="", help="of the manifest; any if not given")
    parser.add_argument("--number", type=int, help="of one launch of a class, to be run alone")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def one(args: argparse.Namespace) -> None:
    """Every head of one launch."""
    launch = made(args.name[0], args.number, args.seed, args.family, args.kernel)
    print(launch.kernel.name, launch.rows, launch.keys, launch.heads, launch.dims, launch.options)
    print(*launch.run()[0], sep="\n")


def main() -> None:
    """Run what was asked for."""
    args = arguments()
    if args.number is not None:
        one(args)
        return
    start = time.perf_counter()
    rows: dict[tuple[str, str], Row] = {}
    for tried in sweep(args.cases, args.seed, args.name or (), args.family, args.kernel):
        rows.setdefault((tried.name, tried.launch.kernel.family), Row()).add(tried)
    Console(width=120).print(report.table(rows, FAMILIES))
    failures, cases = report.total(rows)
    print(f"{failures} of {cases} cases fail; {time.perf_counter() - start:.0f} s")
    if args.json:
        report.write(args.json, rows, args.seed, "family")


if __name__ == "__main__":
    main()
