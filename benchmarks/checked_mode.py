"""What checked mode costs, measured on this CPU: attention, checked against unchecked.

    python benchmarks/checked_mode.py [--json out.json] [--runs 5]

Wall time of whole launches without copies, the best of several runs, on all cores and on one; what
operands hold does not matter.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import ml_dtypes
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

os.environ.setdefault("AMDATTN_DEVICE", "virtual:gfx942")

import amdattn
import amdattn.virtual

# (batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv)
SHAPES = [(1, 300, 300, 2, 1), (1, 1024, 1024, 8, 2), (1, 4096, 4096, 2, 2)]


def device_array(rng: np.random.Generator, *shape: int) -> amdattn.DeviceArray:
    """Random bfloat16 numbers in device memory."""
    return amdattn.asarray(rng.standard_normal(shape).astype(ml_dtypes.bfloat16))


def seconds(shape: tuple[int, ...], runs: int) -> float:
    """Best time of one launch."""
    batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv = shape
    rng = np.random.default_rng(0)
    q = device_array(rng, batch, seqlen_q, num_heads_q, 128)
    k = device_array(rng, batch, seqlen_kv, num_heads_kv, 128)
    v = device_array(rng, batch, seqlen_kv, num_heads_kv, 128)
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        amdattn.flash_attn_func(q, k, v)
        amdattn.synchronize()
        best = min(best, time.perf_counter() - start)
    return best


def measure(shape: tuple[int, ...], threads: int, runs: int) -> dict[str, object]:
    """One row of the table: a shape on so many threads (0: one per core)."""
    amdattn.virtual.set_option("threads", threads)
    fast = seconds(shape, runs)
    with amdattn.virtual.check() as found:
        checked = seconds(shape, runs)
    amdattn.virtual.set_option("threads", 0)
    return {
        "shape": list(shape),
        "threads": threads or os.cpu_count(),
        "fast_s": fast,
        "checked_s": checked,
        "ratio": checked / fast,
        "errors": len(found.errors),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    cases = [(shape, threads) for shape in SHAPES for threads in (0, 1)]
    console = Console(stderr=True)
    rows = [
        measure(shape, threads, args.runs)
        for shape, threads in track(cases, "measuring", console=console, transient=True)
    ]
    table = Table("B, Sq, Skv, Hq, Hkv", "threads", "fast s", "checked s", "ratio")
    for row in rows:
        shown = (f"{row[key]:.3f}" for key in ("fast_s", "checked_s"))
        table.add_row(str(row["shape"]), str(row["threads"]), *shown, f"{row['ratio']:.1f}")
    Console().print(table)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
