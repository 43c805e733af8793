"""Attention over caches on inputs meant to break it; tests/support/adversary/bar.py judges.

    python benchmarks/cache_inputs.py --cases 20000 [--seed 0] [--arch gfx950] [--json out.json]
    python benchmarks/cache_inputs.py --kind decode --class "two levels" --number 3   # one again

A case is one head of a sequence of a call on the virtual device: decode, a chunk of queries or a
cascade, of 16 or 8 bits, in pages or not, with windows and sinks. Prints, by class and kind of
call, cases, failures and the worst error beside what is allowed, and as a control what fails of the
plain pipeline itself with its sums in another order.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small products

ARCHS = ("gfx942", "gfx950")


def arguments() -> argparse.Namespace:
    """Parsed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--arch", choices=ARCHS, default=ARCHS[0])
    parser.add_argument("--kind", choices=("decode", "prefill", "cascade"), action="append")
    parser.add_argument("--class", dest="name", action="append")
    parser.add_argument("--number", type=int, help="of one call of a kind and class, run alone")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> int:
    """Run what was asked for; 1 if a case fails."""
    args = arguments()
    os.environ["AMDATTN_DEVICE"] = f"virtual:{args.arch}"
    from tests.support.adversary import caches, report
    from tests.support.adversary.sweep import Row

    if args.number is not None:
        launch = caches.made(args.kind[0], args.name[0], args.number, args.seed)
        print(launch.text)
        verdicts, _ = launch.run()
        print(*verdicts, sep="\n")
        return int(not all(verdict.holds for verdict in verdicts))
    start = time.perf_counter()
    rows: dict[tuple[str, str], Row] = {}
    kinds = args.kind or caches.KINDS
    for tried in caches.sweep(args.cases, args.seed, args.name or (), kinds):
        rows.setdefault((tried.name, tried.launch.kernel.name), Row()).add(tried)
    Console(width=130).print(report.table(rows, kinds))
    for (name, kind), row in rows.items():
        if row.failures:
            worst = f"the worst {row.worst:.3g}: {row.worst_launch}"
            print(f"{kind}, {name}: {row.failures} fail, {worst}")
    failures, cases = report.total(rows)
    print(f"{args.arch}: {failures} of {cases} cases fail; {time.perf_counter() - start:.0f} s")
    if args.json:
        report.write(args.json, rows, args.seed, "kind")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
