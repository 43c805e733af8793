"""The kernel that merges attention over a shared prefix, as arguments of `build.KernelBuild`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amdattn.ops.cache_attention.kernels import CASCADE_MERGE, MERGE_GRID
from build_scripts.limits import workgroups
from build_scripts.toolchain import LLVM22

_ELEMENT = {"bf16": "kBf16", "fp16": "kF16"}


def cascade_members() -> Iterator[dict[str, Any]]:
    """Every member."""
    for dtype, element in _ELEMENT.items():
        yield {
            "name": f"cascade_merge_{dtype}",
            "source": "kernels/cascade_merge.hip",
            "header": "cascade_merge.h",
            "struct": "CascadeMergeArgs",
            "toolchain": LLVM22,
            "toolchain_reason": "as the kernels whose results it merges",
            "op": CASCADE_MERGE,
            "dtype": dtype,
            "params": {},
            "tile": ("lanes", "columns"),
            "grid": MERGE_GRID,
            "accepts": {"head_dims_v": [8, 256, 8]},
            "limits": workgroups,
            "defines": (f"ELEMENT={element}",),
        }
