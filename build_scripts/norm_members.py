"""The kernels of RMS normalisation, as arguments of `build.KernelBuild`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from build_scripts import preload
from build_scripts.toolchain import LLVM22

# Of KernelSpec.grid: x = workgroups, tile.rows * x = the argument row_step; y = params.slices
GRID = "row_groups_and_slices"
_HEADER, _STRUCT = "rms_norm.h", "RmsNormArgs"

_CHUNK = 8  # columns that a lane has next to each other: 16 bytes
# Rows of a workgroup at a time, lanes of a row, steps in which they go over it, slices.
_FAMILY = (
    (32, 8, 1, 1),
    (16, 16, 1, 1),
    (4, 64, 1, 1),
    (4, 64, 2, 1),
    (1, 256, 2, 1),
    (1, 256, 4, 1),
    (1, 512, 4, 1),
    (1, 1024, 8, 1),
)
_NARROW = (32, 8, 1, 1)  # rows that are shorter than a chunk, element by element
_ELEMENT = {"bf16": "kBf16", "fp16": "kF16"}
_SIMDS, _MIN_WAVES = 4, 4  # of a SIMD: a lane has up to 128 registers
_MAX_ROWS = 2**30  # row + row_step must not overflow 32 bits


def norm_members() -> Iterator[dict[str, Any]]:
    """Every member."""
    for dtype in _ELEMENT:
        for member in _FAMILY:
            yield _member(dtype, _CHUNK, *member)
        yield _member(dtype, 1, *_NARROW)


def _member(
    dtype: str, chunk: int, rows: int, row_lanes: int, steps: int, slices: int
) -> dict[str, Any]:
    lanes_and_steps = f"l{row_lanes}s{steps}" + f"x{slices}" * (slices > 1)
    name = f"rms_norm_{dtype}_{'narrow' if chunk == 1 else lanes_and_steps}"
    defines = {
        "KERNEL": f"amdattn_{name}_gfx942",
        "ELEMENT": _ELEMENT[dtype],
        "ROWS": rows,
        "ROW_LANES": row_lanes,
        "STEPS": steps,
        "SLICES": slices,
        "CHUNK": chunk,
        "MIN_WAVES": _MIN_WAVES,
        **preload.defines(_HEADER, _STRUCT),
    }
    return {
        "name": name,
        "arch": "gfx942",
        "source": "kernels/rms_norm.hip",
        "header": _HEADER,
        "struct": _STRUCT,
        "toolchain": LLVM22,
        "toolchain_reason": "neither LLVM 21 nor 22 spills; 22 as the other kernels",
        "op": "rms_norm",
        "dtype": dtype,
        "params": {"row_lanes": row_lanes, "steps": steps, "slices": slices, "chunk": chunk},
        "tile": ("rows", "columns"),
        "grid": GRID,
        "accepts": {
            # Least and greatest.
            "columns": [chunk, chunk * row_lanes * steps],
            "rows": [1, _MAX_ROWS],
            "residual": [False, True],
            "pointer_align_bytes": 2,
            "stride_multiple": 1,
            "row_stride": "any",
            # out may be x or the residual, and sum either of them, unless slices of a row are
            # written while others read it.
            "in_place": slices == 1,
        },
        "defines": tuple(f"{key}={value}" for key, value in defines.items()),
        "flags": preload.FLAGS,
    }
