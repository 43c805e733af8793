"""Decides which tiles of several heads are computed in parts, so that the last round fills the CUs.

A part has some of the heads of a tile. Every part loads the keys and values that the heads share
again, so early tiles are whole and only the last round has parts.
"""

from __future__ import annotations

import functools

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.ops.attention.cost import heads_clk, last_heads_clk, lone_heads_clk
from amdattn.ops.attention.kv_split import Choice, Split
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.ops.attention.select import tile_heads
from amdattn.ops.attention.work import GRID_XCDS, WorkMap


@functools.lru_cache(maxsize=1024)
def choose(problem: AttentionProblem, kernel: KernelSpec, props: DeviceProps, slots: int) -> Choice:
    """The split with the least modelled clk; among equal ones, the one with fewer parts.

    Parameters
    ----------
    slots : int
        Workgroups that run at a time.
    """
    tiles, heads = WorkMap.of_kernel(problem, kernel).tiles, tile_heads(kernel, problem)
    considered = []
    parts = 1
    while parts <= heads:
        # Whole tiles in full rounds, or none; a multiple of the XCDs, so that heads stay on theirs.
        for rounds in {tiles // slots, 0} if parts > 1 else {0}:
            whole = rounds * slots // GRID_XCDS * GRID_XCDS if parts > 1 else tiles
            clk = -(-whole // slots) * heads_clk(heads)
            last = -(-(tiles - whole) * parts // slots)
            clk += last * heads_clk(heads // parts) + last_heads_clk(heads // parts)
            # A workgroup is one wave: each has its SIMD for itself.
            if whole + (tiles - whole) * parts <= props.architecture.simds_per_cu * props.num_cus:
                clk = lone_heads_clk(heads // parts if whole < tiles else heads)
            considered.append(Split(tiles - whole, parts, clk))
        parts *= 2
    best = min(considered, key=lambda split: split.clk)
    return Choice(best, tuple(considered), tiles * heads_clk(heads))
