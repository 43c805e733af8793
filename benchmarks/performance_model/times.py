"""Times of the published shapes: modelled cycles, and the separate energy-and-clock estimate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from amdattn.bench.clocks import clocks
from amdattn.energy import Activity, Energies, Estimate, estimate, mi300x
from benchmarks.performance_model.kernels import (
    AITER_Q_ROWS,
    HEAD_DIM,
    KV_ROWS,
    MOONMATH_Q_ROWS,
    NUM_CUS,
    ROUND_MODES,
    SIMDS,
    Loop,
)
from benchmarks.performance_model.published import COLUMNS, MILLISECONDS

Size = tuple[int, int, int]  # batch, heads, seqlen
Times = dict[tuple[str, str, Size], float]  # seconds by kernel, rounding mode and shape

LONG = 32768  # rows of Q from which on kernels are compared per iteration
_STREAM_BYTES_PER_S = 3.9e12  # read and write, measured (gpu-benches)
# MoonMath's planner of split KV: parts at most, tiles at least, cost of the merge in tiles.
_MOST_PARTS, _LEAST_TILES, _LEAST_PER_PART, _MERGE_TILES = 2 * NUM_CUS, 48, 4, 3
_ROW_BYTES = HEAD_DIM * 2


@dataclass(frozen=True)
class Schedule:
    """How a shape runs: (rounds of workgroups, iterations of each), and what runs beside."""

    rounds: tuple[tuple[int, int], ...]
    iterations: int  # of all workgroups
    launches: int
    beside_bytes: int

    @property
    def depth(self) -> int:
        """Iterations one after the other."""
        return sum(rounds * each for rounds, each in self.rounds)


def schedule(kernel: str, size: Size) -> Schedule:
    """Launch rules of the two projects, whole device."""
    batch, heads, seqlen = size
    tiles = -(-seqlen // KV_ROWS)
    if kernel == "aiter":
        groups = batch * heads * -(-seqlen // AITER_Q_ROWS)
        return Schedule(((-(-groups // NUM_CUS), tiles),), groups * tiles, 1, 0)
    groups = batch * heads * -(-seqlen // MOONMATH_Q_ROWS)
    transposed = 2 * batch * heads * seqlen * _ROW_BYTES
    tail = groups % NUM_CUS
    ways = _split_ways(tail, tiles)
    if ways == 1:
        return Schedule(((-(-groups // NUM_CUS), tiles),), groups * tiles, 2, transposed)
    parts = tail * ways
    merged = 2 * parts * MOONMATH_Q_ROWS * (HEAD_DIM + 2) * 4
    rounds = ((groups // NUM_CUS, tiles), (-(-parts // NUM_CUS), -(-tiles // ways)))
    return Schedule(rounds, groups * tiles, 4, transposed + merged)


def _split_ways(tail: int, tiles: int) -> int:
    """How many parts MoonMath makes of each workgroup of the last, unfilled round."""
    if not tail or tail > NUM_CUS * 19 // 20 or tiles < _LEAST_TILES:
        return 1
    spans = {1: tiles + _MERGE_TILES}
    for ways in range(2, _MOST_PARTS // tail + 1):
        if tiles // ways < _LEAST_PER_PART:
            break
        spans[ways] = -(-tail * ways // NUM_CUS) * -(-tiles // ways) + _MERGE_TILES
    return min(spans, key=lambda ways: (spans[ways], ways))


def activity(kernel: str, loop: Loop, size: Size) -> Activity:
    """Cycles and work of one shape; the work of a workgroup's start and end is left out."""
    plan = schedule(kernel, size)
    batch, heads, seqlen = size
    ((shape, flops),) = loop.mfma_flops.items()
    m, n, k = (int(x) for x in shape.split("x"))
    issues = flops / (2 * m * n * k)
    return Activity(
        cycles=sum(rounds * (loop.base + each * loop.clk) for rounds, each in plan.rounds),
        matrix_flops={shape: flops * plan.iterations},
        vector_slots=(loop.valu * SIMDS / 4 - issues) * plan.iterations,
        lds_bytes=(loop.lds + loop.lds_address) * 2 * 64 * plan.iterations,
        l1_bytes=loop.l1_bytes * plan.iterations,
        l2_bytes=loop.l2_bytes * plan.iterations,
        hbm_bytes=4 * batch * heads * seqlen * _ROW_BYTES,
    )


def beside(kernel: str, size: Size) -> float:
    """Seconds of launches, and of transposing and merging at the rate of HBM."""
    plan = schedule(kernel, size)
    launch = clocks("gfx942").launch_us * 1e-6
    return plan.launches * launch + plan.beside_bytes / _STREAM_BYTES_PER_S


def at_clock(loops: Mapping[tuple[str, str], Loop], ghz: float) -> Times:
    """Times at one clock for all."""
    return {
        (kernel, mode, size): activity(kernel, loops[kernel, mode], size).cycles / ghz / 1e9
        + beside(kernel, size)
        for size in MILLISECONDS
        for kernel, mode in COLUMNS
    }


def estimates(
    loops: Mapping[tuple[str, str], Loop], energies: Energies
) -> dict[tuple[str, str, Size], Estimate]:
    """The energy-and-clock estimate of every shape."""
    return {
        (kernel, mode, size): estimate(activity(kernel, loops[kernel, mode], size), energies)
        for size in MILLISECONDS
        for kernel, mode in COLUMNS
    }


def estimated(loops: Mapping[tuple[str, str], Loop], energies: Energies) -> Times:
    """Times by that estimate."""
    found = estimates(loops, energies)
    return {key: value.seconds + beside(key[0], key[2]) for key, value in found.items()}


def published() -> Times:
    """The measured ones."""
    return {
        (kernel, mode, size): ms / 1e3
        for size, row in MILLISECONDS.items()
        for (kernel, mode), ms in zip(COLUMNS, row, strict=True)
    }


def geometric_mean(values: Iterable[float]) -> float:
    """Of positive numbers."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


RATIOS = tuple(
    [(f"{name} {mode.upper()}/RTZ", kernel, mode, "")
     for name, kernel in (("AITER", "aiter"), ("MoonMath", "moonmath"))
     for mode in ("rtna", "rtne")]
    + [(f"MoonMath over AITER, {mode.upper()}", "moonmath", mode, "aiter") for mode in ROUND_MODES]
)  # fmt: skip


def ratios(times: Times) -> dict[str, float]:
    """The seven: of times over shapes; and how much faster MoonMath goes over a row and a tile."""
    found = {}
    for name, kernel, mode, other in RATIOS:
        if not other:
            values = [
                times[kernel, mode, size] / times[kernel, "rtz", size] for size in MILLISECONDS
            ]
        else:
            values = [
                (times[other, mode, size] / (AITER_Q_ROWS * schedule(other, size).depth))
                / (times[kernel, mode, size] / (MOONMATH_Q_ROWS * schedule(kernel, size).depth))
                for size in MILLISECONDS
                if size[2] >= LONG
            ]
        found[name] = geometric_mean(values)
    return found


def loop_ratios(loops: Mapping[tuple[str, str], Loop]) -> dict[str, float]:
    """The same of loop cycles alone: constant clock, no start, no rounds."""
    found = {}
    for name, kernel, mode, other in RATIOS:
        if not other:
            found[name] = loops[kernel, mode].clk / loops[kernel, "rtz"].clk
        else:
            found[name] = (loops[other, mode].clk / AITER_Q_ROWS) / (
                loops[kernel, mode].clk / MOONMATH_Q_ROWS
            )
    return found


def fit(loops: Mapping[tuple[str, str], Loop], modes: Iterable[str]) -> Energies:
    """The two fitted numbers of the estimate, on a grid, from the published times of some modes.

    The greatest of the deviations is made least, those of ratios in units of their bound, 5 %, and
    those of times in units of theirs, 8 %.
    """
    measured = published()
    measured_ratios = ratios(measured)
    chosen = set(modes)
    names = [name for name, _, mode, _ in RATIOS if mode in chosen]

    def worst(energies: Energies) -> float:
        times = estimated(loops, energies)
        found = ratios(times)
        off = [abs(times[key] / measured[key] - 1) / 0.08 for key in times if key[1] in chosen]
        off += [abs(found[name] / measured_ratios[name] - 1) / 0.05 for name in names]
        return max(off)

    grid = [
        mi300x(large_tile=1 + 0.02 * large, plain_valu=0.05 * plain)
        for large in range(21)
        for plain in range(4, 25)
    ]
    return min(grid, key=worst)
