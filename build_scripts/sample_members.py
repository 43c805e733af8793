"""The kernels that draw tokens, as arguments of `build.KernelBuild`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amdattn.ops.sample.planning import GRID, SAMPLE
from build_scripts.toolchain import LLVM22

_TYPES = {"fp32": 0, "bf16": 1, "fp16": 2}  # ELEMENT of sample.hip


def sample_members() -> Iterator[dict[str, Any]]:
    """One of each type of logits."""
    for dtype, element in _TYPES.items():
        yield {
            "name": f"sample_{dtype}",
            "source": "kernels/sample.hip",
            "header": "sample.h",
            "struct": "SampleArgs",
            "toolchain": LLVM22,
            "toolchain_reason": "neither LLVM 21 nor 22 spills; 22 as the other kernels",
            "op": SAMPLE,
            "dtype": dtype,
            "params": {},
            "tile": ("rows",),
            "grid": GRID,
            "accepts": {
                "max_rows": 2**31 - 1,
                "max_columns": 2**18,  # a bit for each is in LDS
            },
            "defines": (f"ELEMENT={element}",),
        }
