"""The kernels of the gradients of RMS normalisation, as arguments of `build.KernelBuild`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from amdattn.dtypes import as_dtype
from amdattn.ops.norm_backward.planning import COLUMN_SUMS, GRID, RMS_NORM_BACKWARD, SUMS_GRID
from build_scripts.toolchain import LLVM22

# Columns of a chunk; lanes of a row, rows at once, chunks of a row in a lane.
_SHAPES = (
    *((1, 8, 32, 1), (8, 16, 16, 1), (8, 64, 4, 1), (8, 256, 1, 1), (8, 256, 1, 2), (8, 512, 1, 2)),
    (8, 512, 1, 4),
)
_SLICED = (8, 512, 1, 4)  # of rows that no workgroup has the gradients of all columns of
_MOST_SLICES = 4
_ELEMENT = {"bf16": "kBf16", "fp16": "kF16"}
_WEIGHT = {False: "Chunk", True: "Float32Chunk"}  # whether it is float32
_MAX_ROWS = 2**30  # the row behind the last block must fit 32 bits


def norm_backward_members() -> Iterator[dict[str, Any]]:
    """Every kernel."""
    for dtype, wide in itertools.product(_ELEMENT, _WEIGHT):
        for shape in _SHAPES:
            yield _member(dtype, wide, *shape, sliced=False)
        yield _member(dtype, wide, *_SLICED, sliced=True)
    yield {
        "name": "column_sums",
        "source": "kernels/column_sums.hip",
        "header": "column_sums.h",
        "struct": "ColumnSumsArgs",
        "toolchain": LLVM22,
        "toolchain_reason": "as the kernels whose sums it adds",
        "op": COLUMN_SUMS,
        "dtype": "fp32",
        "params": {},
        "tile": ("columns",),
        "grid": SUMS_GRID,
        "accepts": {},
    }


def _member(
    dtype: str, wide: bool, chunk: int, row_lanes: int, rows: int, steps: int, sliced: bool
) -> dict[str, Any]:
    columns = chunk * row_lanes * steps
    defines = {
        "ELEMENT": _ELEMENT[dtype],
        "WEIGHT": _WEIGHT[wide],
        "ROW_LANES": row_lanes,
        "ROWS_AT_ONCE": rows,
        "STEPS": steps,
        "CHUNK": chunk,
        "SLICED": str(sliced).lower(),
    }
    name = f"c{columns}" + f"_r{rows}" * (rows > 1) + f"_l{row_lanes * rows}" + "_sliced" * sliced
    params = {"row_lanes": row_lanes, "steps": steps, "chunk": chunk}
    return {
        "name": f"rms_norm_backward_{dtype}_" + "weight_fp32_" * wide + name,
        "source": "kernels/rms_norm_backward.hip",
        "header": "rms_norm_backward.h",
        "struct": "RmsNormBackwardArgs",
        "toolchain": LLVM22,
        "toolchain_reason": "as the kernels of the forward pass",
        "op": RMS_NORM_BACKWARD,
        "dtype": dtype,
        "params": {**params, "weight_dtype": as_dtype("fp32" if wide else dtype).name},
        "tile": ("rows", "columns"),
        "grid": GRID,
        "accepts": {
            # Least and greatest.
            "columns": [chunk, columns * (_MOST_SLICES if sliced else 1)],
            "rows": [1, _MAX_ROWS],
            "residual": [False, True],
            "pointer_align_bytes": 2,
            "stride_multiple": 1,
            "row_stride": "any",
        },
        "defines": tuple(f"{key}={value}" for key, value in defines.items()),
        "flags": ("-fno-slp-vectorize",),  # pairs are in the source
    }
