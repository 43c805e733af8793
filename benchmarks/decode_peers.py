"""Prints attention over a cache in pages beside its peers, modelled.

    python -m benchmarks.decode_peers [--aiter DIR] [--vllm DIR] [--batch B ...] [--keys KEYS ...]
                                      [--heads Q/KV ...] [--queries N] [--dtype DTYPE]
                                      [--kv-dtype DTYPE] [--most-mb MB] [--readings] [--markdown]
                                      [--json FILE]

--aiter is a checkout of ROCm/aiter, whose assembled `pa` kernels are launched as
`peers/aiter_pa.py` says; --vllm has Triton's split-KV kernels of vLLM as code objects, see
`peers/vllm_decode.py`. Every kernel is first run on sequences of unequal lengths and compared with
float64. The fastest kernel of a peer counts, of vLLM's the fastest number of splits; the JSON says
which. Ours is planned for 131072 keys; it has pages of 16 in flash-attn's order, each peer in its
own. Caches are cold; a launch is counted nowhere, not even in the floor. --readings adds the least
ratio under any reading of the model (docs/generated/readings.md), and each reading takes as long as
the rest.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

import amdattn
from amdattn.bench.kernels import Functions
from amdattn.cli.output import progress_bar, stdout
from benchmarks.attention_decode import pair
from benchmarks.decode_shapes import DTYPE, MOST_KEYS, Floor, Shape, floor, ours_us
from benchmarks.peers import aiter_pa, vllm_decode
from benchmarks.peers.paged import (
    FP8,
    SCALED,
    Attempt,
    modelled_us,
    random_problem,
    result,
    worst_error,
)
from benchmarks.readings import OfReading, each_reading, least_ratio

BATCHES = (1, 8, 32, 128)
KEYS = (1024, 4096, 16384)
HEADS = ((64, 8), (32, 8), (8, 1))
PAGE_SIZE = 16  # of ours
# Bars: how many times as long a peer has to take, and what ours may take of the floor instead.
BARS = {"AITER": 1.0, "vLLM": 1.5}
_OF_FLOOR = {"AITER": 0.0, "vLLM": 1.15}
# Worst error of a row. Weights and results are rounded to 16 bits, of 8-bit caches weights to 8.
_TOLERANCE, _SCALED_TOLERANCE = 5e-3, 0.1
_LENGTHS = (300, 16, 1025)
_MB = 1e6

Attempts = Callable[[Shape], Iterator[Attempt]]


def verify(attempt: Attempt, shape: Shape, functions: Functions) -> float:
    """Worst error of an attempt with the heads of a shape; ValueError if that is too much."""
    small = replace(shape, batch=len(_LENGTHS), keys=max(_LENGTHS))
    width = MOST_KEYS // attempt.page_size
    problem = random_problem(small, list(_LENGTHS), attempt.kv_dtype, attempt.page_size, width)
    error = worst_error(result(attempt, problem, functions), problem.expected)
    most = _SCALED_TOLERANCE if attempt.kv_dtype in SCALED else _TOLERANCE
    if not error < most:
        raise ValueError(
            f"{attempt.name} is wrong by {error:.2g} of a row, at most {most}: {small}"
        )
    return error


class Peers:
    """Those that were asked for; each kernel is verified before it is timed."""

    def __init__(self, peers: dict[str, Attempts], clock_mhz: int) -> None:
        self.names = [*peers]
        self.errors: dict[str, float] = {}
        self._peers, self._clock_mhz, self._functions = peers, clock_mhz, Functions()

    def fastest(self, name: str, shape: Shape) -> tuple[float, str] | None:
        """Modelled us of a peer, and of which kernel; None: it does not take the shape."""
        found = []
        for attempt in self._peers[name](shape):
            key = f"{name} {attempt.name}, {shape.heads_q}/{shape.heads_kv}"
            if key not in self.errors:
                self.errors[key] = verify(attempt, shape, self._functions)
            us = modelled_us(attempt, shape, self._functions, self._clock_mhz)
            found.append((us, attempt.name))
        return min(found, default=None)

    def fastest_us(self, name: str, shape: Shape) -> float:
        """Of a peer that takes the shape."""
        found = self.fastest(name, shape)
        if found is None:
            raise ValueError(f"{name} does not take {shape}")
        return found[0]


def run(
    shape: Shape, peers: Peers, least: Floor, kv_dtype: str, with_readings: bool = False
) -> dict[str, Any]:
    """One row; with what is left of its ratios under the readings of the model."""
    # Without scales, a part in 32 of an 8-bit cache.
    nbytes = shape.nbytes // 2 if kv_dtype in SCALED else shape.nbytes
    row: dict[str, Any] = {**asdict(shape), "kv_dtype": kv_dtype, "peers": {}}
    row["floor_us"] = least.us(nbytes)

    def ours() -> float:
        return ours_us(shape, PAGE_SIZE, least.clock_mhz, is_quantized=kv_dtype == FP8)

    if kv_dtype in (shape.dtype, FP8):
        row["us"] = ours()
        of_ours = each_reading(ours) if with_readings else {}
    for name in peers.names:
        found = peers.fastest(name, shape)
        if found is None:
            continue
        us, kernel = found
        row["peers"][name] = {"us": us, "kernel": kernel}
        if "us" in row:
            ratio, of_floor = us / row["us"], row["us"] / row["floor_us"]
            met = ratio >= BARS[name] or of_floor <= _OF_FLOOR[name]
            row["peers"][name] |= {"ratio": ratio, "met": met}
            if with_readings:
                of_theirs = each_reading(partial(peers.fastest_us, name, shape))
                row["peers"][name]["least"] = least_ratio(of_theirs, of_ours)
    return row


def heads(peers: list[str], with_readings: bool = False) -> list[str]:
    """Of a table's columns."""
    columns = ["heads", "b", "keys", "floor", "ours"]
    for name in peers:
        columns += [name, "/ ours"] + ["least over the readings"] * with_readings
    return columns


def cells(row: dict[str, Any], peers: list[str], with_readings: bool = False) -> list[str]:
    """One row of a table."""
    found = [f"{row['heads_q']}/{row['heads_kv']}", str(row["batch"]), str(row["keys"])]
    found += [f"{row[name]:.1f}" if name in row else "-" for name in ("floor_us", "us")]
    for name in peers:
        one = row["peers"].get(name)
        if one is None:
            found += ["-"] * (2 + with_readings)
            continue
        found += [f"{one['us']:.1f}", f"{one['ratio']:.2f}" if "ratio" in one else "-"]
        if with_readings:
            found.append(str(OfReading(*one["least"])) if "least" in one else "-")
    return found


def print_table(
    rows: list[dict[str, Any]], peers: list[str], markdown: bool, with_readings: bool
) -> None:
    """As Markdown, or for a terminal with what misses a bar in red."""
    columns = heads(peers, with_readings)
    if markdown:
        print(f"| {' | '.join(columns)} |\n|--:|{'--:|' * (len(columns) - 1)}")
        for row in rows:
            print(f"| {' | '.join(cells(row, peers, with_readings))} |")
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        missed = not all(one.get("met", True) for one in row["peers"].values())
        table.add_row(*cells(row, peers, with_readings), style="red" if missed else "")
    stdout.print(table)


def summary(rows: list[dict[str, Any]], peer: str) -> str:
    """How many shapes meet a peer's bar, and the ratios."""
    every = [row["peers"][peer] for row in rows if "ratio" in row["peers"].get(peer, ())]
    if not every:
        return f"{peer}: nothing to compare."
    ratios = [one["ratio"] for one in every]
    mean = float(np.exp(np.mean(np.log(ratios))))
    bar = f"{BARS[peer]:.1f} x"
    if _OF_FLOOR[peer]:
        bar += f", or ours at most {_OF_FLOOR[peer]} of the floor"
    return (
        f"{peer} / ours: geometric mean {mean:.2f}, at least {min(ratios):.2f}; the bar, {bar}, is "
        f"met by {sum(one['met'] for one in every)} of {len(every)} shapes."
    )


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aiter", type=Path, help="a checkout of ROCm/aiter")
    parser.add_argument("--vllm", type=Path, help="compiled kernels of vLLM")
    parser.add_argument("--batch", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--keys", type=int, nargs="+", default=KEYS)
    parser.add_argument("--heads", type=pair, nargs="+", default=HEADS, metavar="Q/KV")
    parser.add_argument("--queries", type=int, default=1, help="of a sequence; several are causal")
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), default=DTYPE)
    parser.add_argument("--kv-dtype", choices=SCALED, help="of peers' caches; default: as --dtype")
    parser.add_argument("--most-mb", type=int, default=300, help="of keys and values")
    parser.add_argument("--readings", action="store_true", help="the least ratio under any")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", type=Path, help="write every result here")
    options = parser.parse_args()
    least, props = floor(), amdattn.device_props()
    kv_dtype = options.kv_dtype or options.dtype
    asked: dict[str, Attempts] = {}
    if options.aiter:
        objects = aiter_pa.objects(options.aiter, props.arch)
        asked["AITER"] = lambda shape: aiter_pa.attempts(objects, shape, kv_dtype)
    if options.vllm:
        compiled = vllm_decode.compiled(options.vllm)
        asked["vLLM"] = lambda shape: vllm_decode.attempts(compiled, shape, kv_dtype)
    peers = Peers(asked, least.clock_mhz)
    every = [
        Shape(batch, keys, of[0], of[1], options.queries, options.dtype)
        for of in options.heads
        for keys in options.keys
        for batch in options.batch
    ]
    shapes = [shape for shape in every if shape.nbytes <= options.most_mb * _MB]
    if not shapes:
        parser.error(f"no shape has at most --most-mb {options.most_mb} of keys and values")
    rows = []
    with progress_bar() as progress:
        task = progress.add_task("decode", total=sum(shape.nbytes for shape in shapes))
        for shape in shapes:
            progress.update(task, description=str(shape))
            rows.append(run(shape, peers, least, kv_dtype, options.readings))
            progress.advance(task, shape.nbytes)
            if options.json:  # after each row, since they take their time
                document = {"device": props.name, "clock_mhz": least.clock_mhz}
                document |= {"errors": peers.errors, "rows": rows}
                options.json.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{props.name}: us, modelled at {least.clock_mhz} MHz\n")
    print_table(rows, peers.names, options.markdown, options.readings)
    print()
    for name in peers.names:
        print(summary(rows, name))
    if peers.errors:
        print(f"Of peers' kernels a row is wrong by at most {max(peers.errors.values()):.2g}.")
    if len(shapes) < len(every):
        print(f"{len(every) - len(shapes)} shapes have more than {options.most_mb} MB.")


if __name__ == "__main__":
    main()
