"""How large a grid may be, and what follows for the problems of a kernel."""

from __future__ import annotations

from amdattn.arch.architectures import ARCHITECTURES

MAX_GRID_YZ = min(arch.grid_yz for arch in ARCHITECTURES.values())
MAX_GRID_LANES_X = 2**32 - 1  # the dispatch packet counts lanes in 32 bits
MAX_INT32 = 2**31 - 1


def workgroups(lanes: int) -> dict[str, int]:
    """Of a grid along x, of workgroups of so many lanes."""
    return {"max_workgroups": MAX_GRID_LANES_X // lanes}
