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
    *("num_splits", "return_lse", "top_left", "sinks", "varlen", "window"),
)


class _Scales(NamedTuple):
    """Of all attention kernels: rows of a KV block, and where what they take ends."""

    kv_tiles: tuple[int, ...]
    period: int
    most_keys: list[int]
    most_window_keys: list[int]


_scales: dict[int, tuple[Sequence[KernelSpec], _Scales]] = {}  # by identity of the rows


def _scales_of(rows: Sequence[KernelSpec]) -> _Scales:
    found = _scales.get(id(rows))
    if found is None:
        kernels = [row for row in rows if row.op == ATTENTION]
        kv_tiles = sorted({row.kv_tile for row in kernels})
        found = _scales[id(rows)] = (
            rows,
            _Scales(
                tuple(kv_tiles),
                math.lcm(*kv_tiles),
                sorted({row.constraint("max_seqlen_kv") for row in kernels}),
                sorted({row.constraint("max_window_keys") for row in kernels}),
            ),
        )
    return found[1]


def basis(problem: AttentionProblem, rows: Sequence[KernelSpec]) -> tuple[object, ...] | None:
    """Equal for problems whose plans differ in the argument SEQLEN_KV alone.

    None where nothing is known but the problem itself.
    """
    scales, keys = _scales_of(rows), problem.seqlen_kv
    left, right = problem.window
    if problem.gather:
        return None
    place: tuple[int, ...]
    if left < 0 and right < 0:  # blocks of a tile
        place = tuple([-(-keys // kv_tile) for kv_tile in scales.kv_tiles])
    elif left >= 0 and not problem.top_left and keys >= problem.seqlen_q + left:
        place = (keys % scales.period,)  # no window begins before the first key: they move along
    else:
        return None
    return (
        *_OTHERS(problem),
        *place,
        bisect_left(scales.most_keys, keys),
        bisect_left(scales.most_window_keys, problem.window_keys),
    )


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
