"""Gradients of attention on inputs that are meant to break them, judged by tests/support/backward.

    python benchmarks/backward_inputs.py --cases 10000 [--seed 0] [--json out.json]
    python benchmarks/backward_inputs.py --class "two levels" --number 3      # one call again

A case is one head of q of a call on the virtual device, with the numbers of the forward's classes
and gradients of several kinds; every second call has its blocks of keys in two to six splits.
Prints, by class, cases, calls that fail, and the worst error beside what is allowed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("AMDATTN_DEVICE", "virtual:gfx942")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small products

from tests.support.adversary.classes import CLASSES
from tests.support.backward.calls import adversary, sweep


@dataclass
class Row:
    """What came of a class."""

    cases: int = 0
    calls: int = 0
    failures: int = 0
    worst: float = 0.0
    kind: str = ""
    number: int = 0


def arguments() -> argparse.Namespace:
    """Parsed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--class", dest="name", choices=sorted(CLASSES), action="append")
    parser.add_argument("--number", type=int, help="of one call of a class, to be made alone")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> None:
    """Run what was asked for."""
    args = arguments()
    if args.number is not None:
        call = adversary(args.name[0], args.number, args.seed)
        print(call)
        print(*(f"{kind}: {ratio:.3g}" for kind, ratio in call.ratios().items()), sep="\n")
        return
    start, rows = time.perf_counter(), dict[str, Row]()
    for name, number, call in sweep(args.name or list(CLASSES), args.cases, args.seed):
        ratios = call.ratios()
        row, kind = rows.setdefault(name, Row()), max(ratios, key=lambda each: ratios[each])
        row.cases += call.inputs.q.shape[2]
        row.calls += 1
        row.failures += not ratios[kind] <= 1
        if not ratios[kind] <= row.worst:
            row.worst, row.kind, row.number = ratios[kind], kind, number
    table = Table("class")
    for title in ("cases", "calls", "failures", "worst", "of", "call"):
        table.add_column(title, justify="right")
    for name, row in rows.items():
        table.add_row(
            *(name, str(row.cases), str(row.calls), str(row.failures), f"{row.worst:.3g}"),
            *(row.kind, str(row.number)),
        )
    Console(width=120).print(table)
    failures, cases = (
        sum(getattr(row, of) for row in rows.values()) for of in ("failures", "cases")
    )
    print(f"{failures} calls fail, of {cases} cases; {time.perf_counter() - start:.0f} s")
    if args.json:
        found = [{"class": name, **vars(row)} for name, row in rows.items()]
        args.json.write_text(json.dumps({"seed": args.seed, "classes": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
