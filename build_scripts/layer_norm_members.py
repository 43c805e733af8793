"""The kernels of layer_norm, of rms_norm's options besides, as arguments of `build.KernelBuild`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from amdattn.dtypes import as_dtype
from amdattn.ops.layer_norm.planning import GRID, NORM
from amdattn.ops.layer_norm_backward.planning import NORM_BACKWARD
from amdattn.ops.norm_backward.planning import GRID as BACKWARD_GRID
from build_scripts import preload
from build_scripts.toolchain import LLVM22

_HEADER, _STRUCT = "norm.h", "NormArgs"
# Columns of a chunk; lanes of a row, rows at once, chunks of a row in a lane.
_SHAPES = (
    *((1, 8, 8, 1), (8, 8, 8, 1), (8, 64, 1, 1), (8, 64, 1, 2), (8, 128, 1, 2), (8, 128, 1, 4)),
    *((8, 256, 1, 2), (8, 256, 1, 4), (8, 512, 1, 4), (8, 1024, 1, 8)),
)
_BACKWARD_SHAPES = (
    *((1, 8, 32, 1), (8, 16, 16, 1), (8, 64, 4, 1), (8, 256, 1, 1), (8, 256, 1, 2), (8, 512, 1, 2)),
    (8, 512, 1, 4),
)
_ELEMENT = {"bf16": "kBf16", "fp16": "kF16"}
_WEIGHT = {False: "Chunk", True: "Float32Chunk"}  # whether it is float32
_MAX_ROWS = 2**30  # the row behind the last tile must fit 32 bits


def layer_norm_members() -> Iterator[dict[str, Any]]:
    """Every member."""
    for dtype, wide in itertools.product(_ELEMENT, _WEIGHT):
        for shape in _SHAPES:
            yield _forward(dtype, wide, *shape)
    for dtype, wide in itertools.product(_ELEMENT, _WEIGHT):
        for shape in _BACKWARD_SHAPES:
            yield _backward(dtype, wide, *shape)


def _forward(dtype: str, wide: bool, *shape: int) -> dict[str, Any]:
    return {
        **_member("norm", dtype, wide, *shape),
        "header": _HEADER,
        "struct": _STRUCT,
        "op": NORM,
        "grid": GRID,
        "defines": (*_defines(dtype, wide, *shape), *_text(preload.defines(_HEADER, _STRUCT))),
        "flags": (*preload.FLAGS, "-fno-slp-vectorize"),  # pairs are in the source
    }


def _backward(dtype: str, wide: bool, *shape: int) -> dict[str, Any]:
    return {
        **_member("norm_backward", dtype, wide, *shape),
        "header": "norm_backward.h",
        "struct": "NormBackwardArgs",
        "op": NORM_BACKWARD,
        "grid": BACKWARD_GRID,
        "defines": _defines(dtype, wide, *shape),
        "flags": ("-fno-slp-vectorize",),
    }


def _text(defines: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"{key}={value}" for key, value in defines.items())


def _defines(
    dtype: str, wide: bool, chunk: int, row_lanes: int, rows: int, steps: int
) -> tuple[str, ...]:
    return _text(
        {
            "ELEMENT": _ELEMENT[dtype],
            "WEIGHT": _WEIGHT[wide],
            "ROW_LANES": row_lanes,
            "ROWS_AT_ONCE": rows,
            "STEPS": steps,
            "CHUNK": chunk,
        }
    )


def _member(
    kernel: str, dtype: str, wide: bool, chunk: int, row_lanes: int, rows: int, steps: int
) -> dict[str, Any]:
    columns = chunk * row_lanes * steps
    params = {"row_lanes": row_lanes, "steps": steps, "chunk": chunk}
    return {
        "name": f"{kernel}_{dtype}_"
        + "weight_fp32_" * wide
        + f"c{columns}"
        + f"_r{rows}" * (rows > 1)
        + f"_l{row_lanes * rows}",
        "source": f"kernels/{kernel}.hip",
        "toolchain": LLVM22,
        "toolchain_reason": "neither LLVM 21 nor 22 spills; 22 as the other kernels",
        "dtype": dtype,
        "params": {**params, "weight_dtype": as_dtype("fp32" if wide else dtype).name},
        "tile": ("rows", "columns"),
        "accepts": {
            # Least and greatest.
            "columns": [chunk, columns],
            "rows": [1, _MAX_ROWS],
            "pointer_align_bytes": 2,
            "stride_multiple": 1,
            "row_stride": "any",
        },
    }
