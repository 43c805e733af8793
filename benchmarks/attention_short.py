"""Dense prefill of short sequences beside AITER's forward kernels: the table of bars, modelled.

    AMDATTN_DEVICE=virtual:gfx942 python -m benchmarks.attention_short --aiter DIR [--rows FILE]

DIR is a checkout of ROCm/aiter. Batch 1, 4 and 16; 32 heads, and 32 that share 8 KV heads; 512 to
4096 rows; all keys, and causal; bfloat16 of 128 columns. Microseconds are clk modelled at the
sustained clock, divided by the peak clock, the launch apart, but with the launch between two of
ours; "device" is the share of the device's matrix rate that useful operations have. FILE keeps rows
as JSON lines, so that a run can be interrupted, or ours alone run again (`--again`). The exit code
is 1 if a bar is missed.
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
from amdattn.bench.operation import run_operation
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


def modelled(kernel: Peer, shape: Shape, functions: Functions) -> Row:
    """A row of the file."""
    record = run_operation(kernel, shape, functions).record
    if record.times.at_peak_us is None or record.cycles is None:
        raise ValueError(f"{kernel.peer} does not take {shape}: {record.refused}")
    props = amdattn.device_props()
    rate = props.num_cus * props.architecture.matrix_flops_per_clk
    return {
        "peer": kernel.peer,
        "shape": str(shape),
        "kernel": record.kernel,
        "us": record.times.at_peak_us,
        "device": shape.flops / (record.times.at_peak_us * 1e3 * props.peak_clock_ghz * rate),
        "workgroups": record.workgroups,
    }


def rows_of(file: Path | None, forgotten: str) -> dict[tuple[str, str], Row]:
    """Those that a file has."""
    if file is None or not file.exists():
        return {}
    rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    kept = [row for row in rows if row["peer"] != forgotten]
    file.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    return {(row["peer"], row["shape"]): row for row in kept}


def pairs(given: argparse.Namespace) -> Iterator[tuple[Shape, Row, Row]]:
    """Ours and the peer's, shape by shape."""
    ours = Shipped(given.round_mode)
    mode = "rtne" if amdattn.device_props().architecture.converts_bf16 else "rtz"
    peers: list[Peer] = [ours, Aiter(given.aiter, mode)]
    functions = Functions()
    have = rows_of(given.rows, ours.peer if given.again else "")
    for shape in shapes(given.shape):
        found = []
        for peer in peers:
            key = peer.peer, str(shape)
            if key not in have:
                have[key] = modelled(peer, shape, functions)
                if given.rows is not None:
                    with given.rows.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(have[key]) + "\n")
            found.append(have[key])
        yield shape, found[0], found[1]


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--aiter", type=Path, required=True, help="a checkout of ROCm/aiter")
    parser.add_argument("--rows", type=Path, help="a file that keeps rows")
    parser.add_argument("--again", action="store_true", help="forget its rows of ours")
    parser.add_argument("--shape", default="*", help="only those that match, as 'b1 h32 s1*'")
    parser.add_argument("--round-mode", default="rtne", help="of ours; of AITER's rtz")
    given = parser.parse_args()
    print(f"{'modelled':28} {'ours us':>9} {'device':>7} {'AITER us':>9} {'ratio':>6}  ours")
    ratios, missed = [], []
    for shape, ours, peer in pairs(given):
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
