"""The kernels that draw tokens, as arguments of `build.KernelBuild`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amdattn.ops.sample.planning import GRID, GRID_OF_SLICES, SAMPLE
from build_scripts.toolchain import LLVM22

_TYPES = {"fp32": 0, "bf16": 1, "fp16": 2}  # ELEMENT of sample.hip


def sample_members() -> Iterator[dict[str, Any]]:
    """Two of each type of logits: of whole rows, and of slices."""
    for dtype, element in _TYPES.items():
        common = {
            "header": "sample.h",
            "struct": "SampleArgs",
            "toolchain": LLVM22,
            "toolchain_reason": "neither LLVM 21 nor 22 spills; 22 as the other kernels",
            "op": SAMPLE,
            "dtype": dtype,
            "params": {},
            "defines": (f"ELEMENT={element}",),
        }
        most = {"max_columns": 2**18}  # a bit for each is in LDS, or there is a lane for each slice
        yield {
            "name": f"sample_{dtype}",
            "source": "kernels/sample.hip",
            "tile": ("rows",),
            "grid": GRID,
            "accepts": {"max_rows": 2**31 - 1, **most},
            **common,
        }
        yield {
            "name": f"sample_slices_{dtype}",
            "source": "kernels/sample_slices.hip",
            "tile": ("rows", "columns"),
            "grid": GRID_OF_SLICES,
            "accepts": {"max_rows": 2**15, **most},
            **common,
        }
