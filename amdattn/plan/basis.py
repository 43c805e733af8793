"""What a plan depends on of a problem, for problems that differ in the number of keys alone.

A cache of keys grows with every step of decoding, and a plan with it only in the argument that says
so: which kernel runs, and how the tiles are cut, depends on how many blocks of keys there are.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from amdattn.manifest import ATTENTION, KernelSpec
from amdattn.plan import Launch
from amdattn.problem import AttentionProblem

SEQLEN_KV = "seqlen_kv"  # the argument

_OTHERS = attrgetter(
    *("batch", "seqlen_q", "num_heads_q", "num_heads_kv", "head_dim", "head_dim_v", "dtype"),
    *("softmax_scale", "causal", "window_size", "softcap", "dropout_p", "round_mode"),
    *("num_splits", "return_lse", "top_left", "sinks", "total_q"),
)


class _Scales(NamedTuple):
    """Of all attention kernels: where what they take ends, and rows of their KV blocks.

    `kv_tiles` are of those that take windows of so many keys, by the place in `most_window_keys`.
    """

    most_keys: list[int]
    most_window_keys: list[int]
    kv_tiles: list[tuple[int, ...]]


_scales: dict[int, tuple[Sequence[KernelSpec], _Scales]] = {}  # by identity of the rows


def _scales_of(rows: Sequence[KernelSpec]) -> _Scales:
    found = _scales.get(id(rows))
    if found is None:
        kernels = [row for row in rows if row.op == ATTENTION]
        most_keys = sorted({row.constraint("max_seqlen_kv") for row in kernels})
        most_window_keys = sorted({row.constraint("max_window_keys") for row in kernels})
        kv_tiles = [
            tuple({row.kv_tile for row in kernels if row.constraint("max_window_keys") >= most})
            for most in (*most_window_keys, math.inf)
        ]
        found = _scales[id(rows)] = rows, _Scales(most_keys, most_window_keys, kv_tiles)
    return found[1]


def basis(problem: AttentionProblem, rows: Sequence[KernelSpec]) -> tuple[object, ...] | None:
    """Equal for problems whose plans differ in the argument SEQLEN_KV alone.

    None where nothing is known but the problem itself.
    """
    if problem.gather:
        return None
    scales, keys, window = _scales_of(rows), problem.seqlen_kv, problem.window
    of_window = bisect_left(scales.most_window_keys, problem.window_keys)
    kv_tiles = scales.kv_tiles[of_window]
    place: tuple[int, ...]
    if window == (-1, -1):  # blocks of a tile
        place = tuple([-(-keys // kv_tile) for kv_tile in kv_tiles])
    elif window[0] >= 0 and not problem.top_left and keys >= problem.seqlen_q + window[0]:
        # No window begins before the first key: with whole blocks more they only move along.
        place = (keys % math.lcm(*kv_tiles),)
    else:
        return None
    return *_OTHERS(problem), window, *place, bisect_left(scales.most_keys, keys), of_window


def places(launches: tuple[Launch, ...]) -> tuple[int | None, ...]:
    """Which argument of each launch is SEQLEN_KV, if one is."""
    return tuple(
        next((i for i, (name, _) in enumerate(launch.args) if name == SEQLEN_KV), None)
        for launch in launches
    )


def with_keys(
    launches: tuple[Launch, ...], at: tuple[int | None, ...], seqlen_kv: int
) -> tuple[Launch, ...]:
    """The launches of a plan with so many keys instead; `at` are their `places`."""
    return tuple(
        [
            launch
            if i is None
            else Launch(
                launch.kernel,
                launch.grid,
                (*launch.args[:i], (SEQLEN_KV, seqlen_kv), *launch.args[i + 1 :]),
            )
            for launch, i in zip(launches, at, strict=True)
        ]
    )
