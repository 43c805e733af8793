"""Which kernel normalises rows, its grid and its cost. Pure; knows of no operation around it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from amdattn.arch.props import LANES_PER_WAVE, SIMDS_PER_CU, DeviceProps
from amdattn.device.manifest import KernelSpec

RMS_NORM = "rms_norm"  # of KernelSpec.op
# Of KernelSpec.grid: x = ceil(rows / tile.rows), y = ceil(columns / tile.columns). A workgroup
# reads whole rows, also where its tile is a part of them.
GRID = "tiles_of_rows_and_columns"

_ELEMENT_BYTES = 2
_CHUNK = 8  # columns that a lane loads at a time
# Clk at the peak clock, fitted to what the performance model of the virtual device gives for the
# shipped bfloat16 kernels: in 84 shapes the one that they prefer takes at most 5 % longer than the
# fastest. They are no account of the instructions.
_PEAK_CLOCK_GHZ = 2.1
_START_CLK, _DISPATCH_CLK = 716, 14  # of a launch; of each wave of an XCD
_TRIP_CLK = 976  # from the first load to the first result, without arithmetic
_WAVE_CLK, _ROW_CLK = 10, 93  # of a wave, and of each row that its lanes have one after the other
# Of the vector unit, for each chunk: its squares, its residual, what is written of it, its mask.
_SQUARES_CLK, _RESIDUAL_CLK, _OUTPUT_CLK, _PARTIAL_CLK = 14, 194, 264, 183
_LOAD_BYTES_PER_CLK = 65  # of a CU
_L2_BYTES = 4 << 20  # of an XCD: what it holds at the end is written then


def grid(kernel: KernelSpec, rows: int, columns: int) -> tuple[int, int, int]:
    """Workgroups along x, y and z."""
    kernel.check_grid(GRID)
    return -(-rows // kernel.tile["rows"]), -(-columns // kernel.tile["columns"]), 1


def takes(kernel: KernelSpec, rows: int, columns: int, residual: bool, in_place: bool) -> bool:
    """Whether a kernel solves a problem.

    in_place : whether `out` or `sum` may overlap `x` or `residual`.
    """
    accepts = kernel.accepts
    least, most = accepts["columns"]
    fewest_rows, most_rows = accepts["rows"]
    x, y, _ = grid(kernel, rows, columns)
    return (
        least <= columns <= most
        and fewest_rows <= rows <= most_rows
        and residual in accepts["residual"]
        and (accepts["in_place"] or not in_place)
        and x * y <= accepts["max_workgroups"]
    )


def cost_clk(
    kernel: KernelSpec, rows: int, columns: int, residual: bool, props: DeviceProps
) -> float:
    """Estimated clocks of a launch with cold caches, for a choice among those that take it."""
    tile, params = kernel.tile, kernel.params
    x, y, _ = grid(kernel, rows, columns)
    of_xcd = -(-x * y // props.num_xcds)
    cus = props.num_cus // props.num_xcds
    of_cu = -(-of_xcd // cus)
    waves = kernel.workgroup[0] / LANES_PER_WAVE

    # The vector unit, a wave. Slices add the residual to their part of the row once more.
    chunks: int = params["steps"] * params["row_steps"]
    own = tile["columns"] / (params["row_lanes"] * _CHUNK) * params["row_steps"]
    is_slice = tile["columns"] < kernel.accepts["columns"][1]
    vector = _WAVE_CLK + _ROW_CLK * params["row_steps"] + chunks * _SQUARES_CLK + own * _OUTPUT_CLK
    if residual:
        vector += _RESIDUAL_CLK * (chunks * params["chunk"] / _CHUNK + is_slice * own)
    if columns < kernel.accepts["columns"][1]:
        vector += chunks * _PARTIAL_CLK
    read = tile["rows"] * columns * (1 + residual) + min(columns, tile["columns"])
    loads = read * _ELEMENT_BYTES / _LOAD_BYTES_PER_CLK

    # The last workgroup to start; all that share a CU; HBM: the slowest of these.
    last = of_xcd * waves * _DISPATCH_CLK + loads + vector * math.ceil(waves / SIMDS_PER_CU)
    shared = of_cu * max(loads, vector * max(1, waves / SIMDS_PER_CU))
    shared += min(of_xcd, cus) * waves * _DISPATCH_CLK
    hbm_bytes_per_clk = props.hbm_bytes_per_ns / props.num_xcds / _PEAK_CLOCK_GHZ
    written = rows * columns * (1 + residual) * _ELEMENT_BYTES / props.num_xcds
    at_the_end = min(written, _L2_BYTES) / hbm_bytes_per_clk
    stream = 2 * written / hbm_bytes_per_clk - at_the_end
    clk: float = _START_CLK + _TRIP_CLK + max(last, shared, stream) + at_the_end
    return clk


def preferred(
    kernels: Sequence[KernelSpec],
    rows: int,
    columns: int,
    residual: bool,
    props: DeviceProps,
    in_place: bool = False,
) -> KernelSpec | None:
    """The one of least estimated cost, or None: none takes the problem."""
    takers = [kernel for kernel in kernels if takes(kernel, rows, columns, residual, in_place)]
    return min(takers, key=lambda one: cost_clk(one, rows, columns, residual, props), default=None)
