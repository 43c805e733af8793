"""The kernels of RMS normalisation, as arguments of `build.KernelBuild`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from amdattn.dtypes import as_dtype
from amdattn.ops.norm.planning import GRID, RMS_NORM
from build_scripts import preload
from build_scripts.toolchain import LLVM22

_HEADER, _STRUCT = "rms_norm.h", "RmsNormArgs"
_CHUNK = 8  # columns that a lane has next to each other: 16 bytes, where rows are long

# Columns of a chunk; lanes of a row, rows at once, rows of a lane one after the other, chunks of a
# row in a lane.
_WHOLE = (
    (1, 8, 8, 1, 1),
    (2, 64, 1, 1, 1),
    (8, 8, 8, 1, 1),
    (8, 8, 8, 2, 1),
    (8, 16, 4, 1, 1),
    (8, 16, 4, 2, 1),
    (8, 64, 1, 1, 1),
    (8, 64, 1, 1, 2),
    (8, 64, 1, 2, 2),
    (8, 128, 1, 1, 2),
    (8, 128, 1, 1, 4),
    (8, 256, 1, 1, 2),
    (8, 256, 1, 1, 4),
    (8, 512, 1, 1, 4),
    (8, 1024, 1, 1, 8),
)
# Residual; lanes, chunks of a row in a lane; of the slice columns of a chunk and chunks in a lane.
# With a residual the vector unit of a CU is busy with all of the row: four waves, one a SIMD.
_SLICES = (
    (False, 64, 2, 4, 1),
    (False, 64, 8, 4, 1),
    (False, 64, 8, 8, 2),
    (False, 64, 16, 4, 1),
    (False, 128, 8, 8, 2),
    (False, 256, 8, 2, 1),
    (False, 256, 8, 8, 1),
    (False, 128, 16, 8, 4),
    (True, 64, 1, 4, 1),
    (True, 128, 1, 4, 1),
    (True, 256, 2, 2, 1),
    (True, 256, 2, 8, 1),
    (True, 256, 4, 2, 1),
    (True, 256, 4, 8, 1),
    (True, 256, 8, 2, 1),
    (True, 256, 8, 8, 1),
    (True, 256, 8, 8, 2),
)
_ELEMENT = {"bf16": "kBf16", "fp16": "kF16"}
_WEIGHT = {False: "Chunk", True: "Float32Chunk"}  # whether it is float32
_MAX_ROWS = 2**30  # the row behind the last tile must fit 32 bits


def norm_members() -> Iterator[dict[str, Any]]:
    """Every member."""
    for dtype, wide in itertools.product(_ELEMENT, _WEIGHT):
        for whole in _WHOLE:
            yield _whole(dtype, wide, *whole)
        for slices in _SLICES:
            yield _slice(dtype, wide, *slices)


def _whole(
    dtype: str,
    wide: bool,
    chunk: int,
    row_lanes: int,
    rows_at_once: int,
    row_steps: int,
    steps: int,
) -> dict[str, Any]:
    """Workgroups that write whole rows."""
    rows, lanes = rows_at_once * row_steps, row_lanes * rows_at_once
    name = f"c{row_lanes * chunk * steps}" + f"_r{rows}" * (rows > 1) + f"_l{lanes}"
    return _member(
        *(dtype, wide),
        name,
        "kernels/rms_norm.hip",
        {
            "ROW_LANES": row_lanes,
            "ROWS_AT_ONCE": rows_at_once,
            "ROW_STEPS": row_steps,
            "STEPS": steps,
            "CHUNK": chunk,
        },
        params={"row_lanes": row_lanes, "row_steps": row_steps, "steps": steps, "chunk": chunk},
        columns=[chunk, chunk * row_lanes * steps],
        residual=[False, True],
        in_place=True,
    )


def _slice(
    dtype: str, wide: bool, residual: bool, lanes: int, steps: int, width: int, own_steps: int
) -> dict[str, Any]:
    """Workgroups that read a whole row and write a slice of it."""
    slice_columns = lanes * width * own_steps
    return _member(
        *(dtype, wide),
        f"c{lanes * _CHUNK * steps}_slice{slice_columns}" + "_residual" * residual,
        "kernels/rms_norm_slice.hip",
        {
            "RESIDUAL": str(residual).lower(),
            "LANES": lanes,
            "STEPS": steps,
            "WIDTH": width,
            "OWN_STEPS": own_steps,
        },
        params={"row_lanes": lanes, "row_steps": 1, "steps": steps, "chunk": _CHUNK},
        columns=[_CHUNK, _CHUNK * lanes * steps],
        residual=[residual],
        in_place=False,
    )


def _member(
    dtype: str,
    wide: bool,
    name: str,
    source: str,
    defines: dict[str, Any],
    params: dict[str, Any],
    columns: list[int],
    residual: list[bool],
    in_place: bool,
) -> dict[str, Any]:
    name = f"rms_norm_{dtype}_" + "weight_fp32_" * wide + name
    defines = {
        **{"ELEMENT": _ELEMENT[dtype], "WEIGHT": _WEIGHT[wide]},
        **defines,
        **preload.defines(_HEADER, _STRUCT),
    }
    return {
        "name": name,
        "source": source,
        "header": _HEADER,
        "struct": _STRUCT,
        "toolchain": LLVM22,
        "toolchain_reason": "neither LLVM 21 nor 22 spills; 22 as the other kernels",
        "op": RMS_NORM,
        "dtype": dtype,
        "params": {**params, "weight_dtype": as_dtype("fp32" if wide else dtype).name},
        "tile": ("rows", "columns"),
        "grid": GRID,
        "accepts": {
            # Least and greatest.
            "columns": columns,
            "rows": [1, _MAX_ROWS],
            "residual": residual,
            "pointer_align_bytes": 2,
            "stride_multiple": 1,
            "row_stride": "any",
            # Whether out may be x or the residual, and sum either of them. Not where a row is
            # written by one workgroup while others read it.
            "in_place": in_place,
        },
        "defines": tuple(f"{key}={value}" for key, value in defines.items()),
        "flags": (*preload.FLAGS, "-fno-slp-vectorize"),  # pairs are in the source
    }
