"""The facts of a problem on which its plan depends, for problems with different numbers of keys.

A cache of keys grows with every step of decoding, but mostly only one argument of the plan changes:
the kernel and the split of tiles depend on the number of blocks of keys.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from amdattn.device.manifest import KernelSpec, candidates_of
from amdattn.op.plan import Launch
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.ops.attention.select import ATTENTION

SEQLEN_KV = "seqlen_kv"  # the argument

_OF_KEYS = SEQLEN_KV, "total_kv", "gather"
_OTHERS = attrgetter(
    *(field.name for field in dataclasses.fields(AttentionProblem) if field.name not in _OF_KEYS)
)


class _Scales(NamedTuple):
    """Limits of all attention kernels for an architecture, and the rows of their KV blocks.

    `kv_tiles` are those of kernels for windows, in the order of `most_window_keys`.
    """

    most_keys: list[int]
    most_window_keys: list[int]
    kv_tiles: list[tuple[int, ...]]


# Of the kernels of a manifest for an architecture, by identity, because comparing them is slow.
_scales: dict[tuple[int, str], tuple[Sequence[KernelSpec], _Scales]] = {}


def _scales_of(rows: Sequence[KernelSpec], arch: str) -> _Scales:
    found = _scales.get((id(rows), arch))
    if found is None or found[0] is not rows:
        kernels = candidates_of(rows, ATTENTION, arch)
        most_keys = sorted({row.accepts["max_seqlen_kv"] for row in kernels})
        most_window_keys = sorted({row.accepts["max_window_keys"] for row in kernels})
        kv_tiles = [
            tuple({row.tile["kv"] for row in kernels if row.accepts["max_window_keys"] >= most})
            for most in (*most_window_keys, math.inf)
        ]
        found = rows, _Scales(most_keys, most_window_keys, kv_tiles)
        if isinstance(rows, tuple):  # a list may change
            _scales[id(rows), arch] = found
    return found[1]


def basis(
    problem: AttentionProblem, rows: Sequence[KernelSpec], arch: str
) -> tuple[object, ...] | None:
    """A key that is equal for problems whose plans differ only in the argument SEQLEN_KV.

    None if no such statement is possible.
    """
    # The schedule depends on the greatest number of blocks, and on whether all have it.
    if problem.gather or (problem.varlen and problem.window != (-1, -1)):
        return None
    keys, window = problem.seqlen_kv, problem.window
    taken = taken_alike(problem, rows, arch)
    kv_tiles = _scales_of(rows, arch).kv_tiles[taken[-1]]
    place: tuple[int, ...]
    if window == (-1, -1):  # blocks of a tile
        all_alike = problem.total_kv == problem.batch * keys
        blocks = [-(-keys // kv_tile) for kv_tile in kv_tiles]
        place = (*blocks, all_alike, problem.total_kv)
    elif window[0] >= 0 and not problem.top_left and keys >= problem.seqlen_q + window[0]:
        # No window begins before the first key: with whole blocks more they only move along.
        place = (keys % math.lcm(*kv_tiles),)
    else:
        return None
    return *taken, window, *place


def taken_alike(
    problem: AttentionProblem, rows: Sequence[KernelSpec], arch: str
) -> tuple[Any, ...]:
    """A key that is equal for problems that the same kernels solve.

    Its last item is the place of the window's keys in `most_window_keys`.
    """
    scales = _scales_of(rows, arch)
    return (
        *_OTHERS(problem),
        problem.window == (-1, -1),
        bisect_left(scales.most_keys, problem.seqlen_kv),
        bisect_left(scales.most_window_keys, problem.window_keys),
    )


def with_keys(launches: tuple[Launch, ...], seqlen_kv: int) -> tuple[Launch, ...]:
    """The launches of a plan with another number of keys."""
    return tuple(
        dataclasses.replace(
            launch,
            args=tuple(
                (name, seqlen_kv if name == SEQLEN_KV else value) for name, value in launch.args
            ),
        )
        for launch in launches
    )
