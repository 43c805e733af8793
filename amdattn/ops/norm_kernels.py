"""Which kernel normalises rows, its grid and its cost. Pure; knows of no operation around it."""

from __future__ import annotations

from amdattn.device.manifest import KernelSpec

RMS_NORM = "rms_norm"  # of KernelSpec.op
# Of KernelSpec.grid: x = ceil(rows / tile.rows), y = ceil(columns / tile.columns). A workgroup
# reads whole rows, also where its tile is a part of them.
GRID = "tiles_of_rows_and_columns"


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
