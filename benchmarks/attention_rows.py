"""Models rows of attention one by one and keeps them, for attention_bench_gfx950.py.

    python -m benchmarks.attention_rows ROWS --preset hipkittens --peer aiter=DIR --peer triton

ROWS is a directory: a file of JSON lines for each kernel and reading of the LDS, records as
`amdattn bench --json` has them. Rows that are there are not run again, so that a run can be
interrupted, and ours can be run again alone (`--only amdattn --again`).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from amdattn.bench.kernels import Functions
from amdattn.bench.operation import run_operation
from amdattn.bench.peer import Peer
from amdattn.bench.record import model_version
from amdattn.bench.run import reading
from amdattn.bench.shapes import PRESETS, Shape, preset
from amdattn.bench.shipped import Shipped
from benchmarks.attention_peers import KINDS
from benchmarks.readings import LDS

# A sample that misses its check by more says little; up to so many rows the whole takes minutes.
NO_SAMPLE, SIMULATED_ROWS = 0.05, 1024
MODE = "rtne"  # the only rounding of gfx950's kernels, by hardware


def file_of(rows: Path, peer: str, lds: str) -> Path:
    """Of a kernel and a reading."""
    return rows / f"{peer}-{lds}.jsonl"


def read(rows: Path) -> list[dict[str, Any]]:
    """Every row of a directory, with its reading as "lds"."""
    return [
        json.loads(line)
        for path in sorted(rows.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


def kernels(names: list[str]) -> list[Peer]:
    """Ours, and the peers that were named."""
    found: list[Peer] = [Shipped(MODE)]
    for name in names:
        kind = next((k for k in KINDS if k.value(name) is not None), None)
        if kind is None:
            raise ValueError(f"--peer={name!r} must be one of {[k.spelling for k in KINDS]}")
        found += kind.make(kind.value(name) or "", [MODE])
    return found


def run(rows: Path, kernel: Peer, shapes: list[Shape], lds: str) -> None:
    """Append the rows of a kernel that are missing."""
    path = file_of(rows, kernel.peer, lds)
    have = set()
    if path.exists():
        have = {json.loads(line)["shape"] for line in path.read_text("utf-8").splitlines()}
    functions = Functions()
    for shape in shapes:
        if str(shape) in have:
            continue
        start = time.perf_counter()
        with reading(LDS[lds]):
            record = run_operation(kernel, shape, functions).record
            off = abs(record.sampled.get("check_error", 0.0))
            if off > NO_SAMPLE and shape.seqlen_kv <= SIMULATED_ROWS:
                record = run_operation(kernel, shape, functions, method="full").record
        row = record.as_dict() | {"lds": lds, "model": model_version()}
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        seconds = time.perf_counter() - start
        print(f"{kernel.peer} {lds} {shape}: {record.cycles} clk, {seconds:.0f} s", flush=True)


def run_ours_again(rows: Path) -> None:
    """Every row of ours that the page has."""
    grid, besides = preset("hipkittens"), preset("gluon")
    for lds in LDS:
        file_of(rows, Shipped.peer, lds).unlink(missing_ok=True)
        run(rows, Shipped(MODE), [*grid, *(besides if lds == next(iter(LDS)) else ())], lds)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path)
    parser.add_argument("--preset", nargs="+", default=["hipkittens"], choices=PRESETS)
    parser.add_argument("--peer", action="append", default=[], help="as attention_peers takes them")
    parser.add_argument("--only", nargs="+", help="kernels to run; default: ours and every peer")
    parser.add_argument("--seqlen", type=int, nargs="+", help="only these")
    parser.add_argument("--lds", nargs="+", default=["measured"], choices=LDS)
    parser.add_argument("--again", action="store_true", help="forget the rows of those that run")
    given = parser.parse_args()
    given.rows.mkdir(parents=True, exist_ok=True)
    shapes = [shape for name in given.preset for shape in preset(name)]
    shapes = [s for s in shapes if not given.seqlen or s.seqlen_kv in given.seqlen]
    for kernel in kernels(given.peer):
        if given.only and kernel.peer not in given.only:
            continue
        for lds in given.lds:
            if given.again:
                file_of(given.rows, kernel.peer, lds).unlink(missing_ok=True)
            run(given.rows, kernel, shapes, lds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
