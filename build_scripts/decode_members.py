"""The kernels of attention over a cache, as arguments of `build.KernelBuild`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amdattn.ops.decode.planning import GRID
from build_scripts.toolchain import LLVM22

_ELEMENT = {"bf16": "kBf16", "fp16": "kF16"}
# Most columns of a head, rows of an item; waves of a SIMD that registers are left for.
_SHAPES = (
    (64, 16, 1),
    (64, 64, 1),
    (128, 16, 1),
    (128, 64, 1),
    (192, 16, 1),
    (192, 32, 1),
    (256, 32, 1),
)


def decode_members() -> Iterator[dict[str, Any]]:
    """Every member."""
    for dtype in _ELEMENT:
        for columns, rows, waves in _SHAPES:
            yield _member(dtype, columns, rows, waves)


def _member(dtype: str, columns: int, rows: int, waves: int) -> dict[str, Any]:
    defines = {
        "ELEMENT": _ELEMENT[dtype],
        "COLUMNS": columns,
        "ROWS": rows,
        "MIN_WAVES": waves,
    }
    return {
        "name": f"attn_decode_{dtype}_d{columns}_q{rows}",
        "source": "kernels/attn_decode.hip",
        "header": "attn_decode.h",
        "struct": "AttnDecodeArgs",
        "toolchain": LLVM22,
        "toolchain_reason": "neither LLVM 21 nor 22 spills; 22 as the other kernels",
        "op": "attn_decode",
        "dtype": dtype,
        "params": {"columns": columns, "rows": rows},
        "tile": ("rows", "keys"),
        "grid": GRID,
        "accepts": {},
        "defines": tuple(f"{key}={value}" for key, value in defines.items()),
    }
