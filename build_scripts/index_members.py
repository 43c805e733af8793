"""The kernel that copies indices of 64 bits to 32, as arguments of `build.KernelBuild`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amdattn.op.indices import NARROW, NARROW_GRID
from build_scripts.toolchain import LLVM22


def index_members() -> Iterator[dict[str, Any]]:
    """Every kernel."""
    yield {
        "name": "narrow_indices",
        "source": "kernels/narrow_indices.hip",
        "header": "narrow_indices.h",
        "struct": "NarrowIndicesArgs",
        "toolchain": LLVM22,
        "toolchain_reason": "as the kernels that read what it writes",
        "op": NARROW,
        "dtype": "i64",
        "params": {},
        "tile": (),
        "grid": NARROW_GRID,
        "accepts": {},
    }
