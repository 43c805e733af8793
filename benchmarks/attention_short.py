"""Dense prefill of short sequences beside AITER's forward kernels: the table of bars, modelled.

    AMDATTN_DEVICE=virtual:gfx942 python -m benchmarks.attention_short --aiter DIR [--rows FILE]

DIR is a checkout of ROCm/aiter. Batch 1, 4 and 16; 32 heads, and 32 that share 8 KV heads; 512 to
4096 rows; all keys, and causal; bfloat16 of 128 columns. Everything is modelled at one clock,
`--clock-mhz`, the device's greatest if it is not given: latencies and bandwidths beyond the L2 are
those of that clock, and microseconds are clk divided by it, the launch apart, but with the launch
between two of ours; "device" is the share of the device's matrix rate that useful operations have.
FILE keeps rows as JSON lines, with their clock, so that a run can be interrupted, or ours alone run
again (`--again`); `--only aiter` or `--only amdattn` fills it with one's rows and compares nothing.
The exit code is 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import amdattn
from amdattn.bench.kernels import Functions
from amdattn.bench.peer import Peer
from amdattn.bench.shapes import Shape
from amdattn.bench.shipped import Shipped
from benchmarks.peers.aiter import Aiter

BATCHES, HEADS_KV, SEQLENS = (1, 4, 16), (32, 8), (512, 1024, 2048, 4096)
HEADS, HEAD_DIM = 32, 128
LEAST, GEOMEAN = 1.05, 1.25  # of AITER's time / ours
DEVICE = {"b1 h32 s1024 d128": 0.50, "b1 h32 s2048 d128": 0.78}

Row = dict[str, Any]


def shapes(pattern: str) -> list[Shape]:
    """Those of the bars whose names match."""
    found = [
        Shape(batch, HEADS, heads_kv, seqlen, seqlen, HEAD_DIM, causal)
        for batch, heads_kv, causal, seqlen in itertools.product(
            BATCHES, HEADS_KV, (False, True), SEQLENS
        )
    ]
    return [shape for shape in found if fnmatch.fnmatchcase(str(shape), pattern)]


def modelled(kernel: Peer, shape: Shape, functions: Functions, clock_mhz: int) -> Row:
    """A row of the file."""
    refused = kernel.refusal(shape)
    if refused:
        raise ValueError(f"{kernel.peer} does not take {shape}: {refused}")
    # Sampling would take a plan whose parts a launch of its own merges.
    merges = isinstance(kernel, Shipped) and kernel.merges_parts(shape)
    method = "full" if merges else "auto"
    launches = kernel.model(shape, functions, clock_mhz=clock_mhz, method=method)
    cycles = [launch.cycles for launch in launches]
    props = amdattn.device_props()
    us = sum(cycles) / clock_mhz + props.architecture.launch_us * (len(cycles) - 1)
    rate = props.num_cus * props.architecture.matrix_flops_per_clk
    return {
        "peer": kernel.peer,
        "shape": str(shape),
        "clock_mhz": clock_mhz,
        "kernel": " + ".join(launch.launch.symbol for launch in launches),
        "cycles": [round(clk) for clk in cycles],
        "us": us,
        "device": shape.flops / (us * clock_mhz * rate),
        "workgroups": [launch.launch.num_workgroups for launch in launches],
    }


def rows_of(file: Path | None, forgotten: str, clock_mhz: int) -> dict[tuple[str, str], Row]:
    """Those of this clock that a file has."""
    if file is None or not file.exists():
        return {}
    rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    kept = [row for row in rows if row["peer"] != forgotten or row["clock_mhz"] != clock_mhz]
    file.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    return {(row["peer"], row["shape"]): row for row in kept if row["clock_mhz"] == clock_mhz}


def found(given: argparse.Namespace) -> Iterator[tuple[Shape, list[Row]]]:
    """Shape by shape ours and the peer's, or one of them."""
    ours = Shipped(given.round_mode)
    props = amdattn.device_props()
    mode = "rtne" if props.architecture.converts_bf16 else "rtz"
    peers: list[Peer] = [ours, Aiter(given.aiter, mode)]
    clock_mhz = given.clock_mhz or round(1000 * props.peak_clock_ghz)
    print(f"modelled at {clock_mhz} MHz throughout", flush=True)
    functions = Functions()
    have = rows_of(given.rows, ours.peer if given.again else "", clock_mhz)
    for shape in shapes(given.shape):
        rows = []
        for peer in peers:
            if given.only not in (None, peer.peer):
                continue
            key = peer.peer, str(shape)
            if key not in have:
                have[key] = modelled(peer, shape, functions, clock_mhz)
                if given.rows is not None:
                    with given.rows.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(have[key]) + "\n")
            rows.append(have[key])
        yield shape, rows


def print_rows(given: argparse.Namespace) -> None:
    """Of one alone."""
    for shape, (row,) in found(given):
        print(f"{shape!s:28} {row['us']:9.1f} {row['device']:7.1%}  {row['kernel']}", flush=True)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--aiter", type=Path, required=True, help="a checkout of ROCm/aiter")
    parser.add_argument("--rows", type=Path, help="a file that keeps rows")
    parser.add_argument("--again", action="store_true", help="forget its rows of ours")
    parser.add_argument("--shape", default="*", help="only those that match, as 'b1 h32 s1*'")
    parser.add_argument("--only", choices=("amdattn", "aiter"), help="one's rows, for --rows")
    parser.add_argument("--clock-mhz", type=int, help="default: the device's greatest")
    parser.add_argument("--round-mode", default="rtne", help="of ours; of AITER's rtz")
    given = parser.parse_args()
    if given.only:
        print_rows(given)
        return 0
    print(f"{'shape':28} {'ours us':>9} {'device':>7} {'AITER us':>9} {'ratio':>6}  ours")
    ratios, missed = [], []
    for shape, (ours, peer) in found(given):
        ratio = peer["us"] / ours["us"]
        ratios.append(ratio)
        if ratio < LEAST:
            missed.append(f"{shape}: {ratio:.3f} of at least {LEAST}")
        least = DEVICE.get(str(shape), 0.0)
        if ours["device"] < least:
            missed.append(f"{shape}: {ours['device']:.1%} of the device, of at least {least:.0%}")
        print(
            f"{shape!s:28} {ours['us']:9.1f} {ours['device']:7.1%} {peer['us']:9.1f} {ratio:6.3f}"
            f"  {ours['kernel']}",
            flush=True,
        )
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 0.0
    print(f"geometric mean of {len(ratios)}: {mean:.3f}, least {min(ratios, default=0):.3f}")
    if given.shape == "*" and mean < GEOMEAN:
        missed.append(f"geometric mean {mean:.3f} of at least {GEOMEAN}")
    for bar in missed:
        print(f"missed: {bar}")
    return 1 if missed or not ratios else 0


if __name__ == "__main__":
    sys.exit(main())
