"""The kernels that quantise rows to 8 bits, as arguments of `build.KernelBuild`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from amdattn.dtypes import as_dtype
from amdattn.ops.gemm.problem import BLOCK
from amdattn.ops.quantize.planning import (
    GRID,
    GRID_OF_BLOCKS,
    MAXIMA,
    MAXIMA_GRID,
    OF_BLOCKS,
    QUANTIZE_FP8,
)
from amdattn.ops.quantize.problem import NARROW
from build_scripts import preload
from build_scripts.limits import MAX_GRID_YZ, workgroups
from build_scripts.toolchain import LLVM22

_BLOCKS = (128, 4, 4, 1)  # of a row of 128 columns: 16 lanes, of float32 too
# Columns of a row that a workgroup holds at once, rows at once, rows of a lane one after the other,
# chunks in a lane. Of float32 a chunk has half of the columns, and a lane twice as many.
_SHAPES = (
    *((64, 8, 1, 1), (64, 8, 4, 1), _BLOCKS, (512, 1, 1, 1), (1024, 1, 1, 2), (1024, 1, 2, 2)),
    *((1024, 1, 4, 2), (4096, 1, 1, 4), (4096, 1, 1, 2), (8192, 1, 1, 4), (8192, 1, 1, 2)),
    *((16384, 1, 1, 4), (16384, 1, 1, 2)),
)
_LOOP = (32768, 1, 1, 4)  # rows may be longer
_ONE_BY_ONE = (8, 8, 1, 1)  # rows of fewer columns than a chunk has
_HEADER, _STRUCT = "quantize.h", "QuantizeArgs"
_FROM = {"bf16": "kBf16", "fp16": "kF16", "fp32": "kF32"}
_TO = {"e4m3": "E4m3", "e5m2": "E5m2"}
_CHUNK_BYTES = 16
_MAX_ROWS = 2**30  # the row behind the last block must fit 32 bits
_MAX_COLUMNS = 2**30


def quantize_members() -> Iterator[dict[str, Any]]:
    """Every kernel."""
    for dtype, to in itertools.product(_FROM, NARROW):
        chunk = _CHUNK_BYTES // as_dtype(dtype).itemsize
        for shape in _SHAPES:
            if shape != _BLOCKS or to == NARROW[0]:  # as products take them
                yield _member(dtype, to, chunk, *shape)
        yield _member(dtype, to, chunk, *_LOOP, loops=True)
        yield _member(dtype, to, 1, *_ONE_BY_ONE)
    for dtype in _FROM:
        yield _of_blocks(dtype)
    for dtype in _FROM:
        for chunk in (_CHUNK_BYTES // as_dtype(dtype).itemsize, 1):
            yield _maxima(dtype, chunk)


def _limits(lanes: int) -> dict[str, int]:
    """Workgroups along x, and along y."""
    return {**workgroups(lanes), "max_workgroups_yz": MAX_GRID_YZ}


def _member(
    dtype: str,
    to: str,
    chunk: int,
    columns: int,
    rows: int,
    row_steps: int,
    steps: int,
    loops: bool = False,
) -> dict[str, Any]:
    if dtype == "fp32" and (rows == 1 or (columns, rows, row_steps, steps) == _BLOCKS):
        steps *= 2
    row_lanes = columns // (chunk * steps)
    defines = {
        "FROM": f"Wide::{_FROM[dtype]}",
        "TO": _TO[to],
        "ROW_LANES": row_lanes,
        "ROWS_AT_ONCE": rows,
        "ROW_STEPS": row_steps,
        "STEPS": steps,
        "CHUNK": chunk,
        "LOOPS": str(loops).lower(),
        **preload.defines(_HEADER, _STRUCT),
    }
    name = f"c{columns}" + f"_r{rows * row_steps}" * (rows * row_steps > 1)
    name += f"_l{row_lanes * rows}" + "_loop" * loops
    return {
        "name": f"quantize_{dtype}_{to}_{name}",
        "source": "kernels/quantize.hip",
        "header": _HEADER,
        "struct": _STRUCT,
        "flags": preload.FLAGS,
        "op": QUANTIZE_FP8,
        "params": {
            **{"row_lanes": row_lanes, "row_steps": row_steps, "steps": steps, "chunk": chunk}
        },
        "tile": ("rows", "columns"),
        "grid": GRID,
        "accepts": {
            "to": [to],
            # Least and greatest; where no scale is made of a row workgroups share the columns.
            "columns": [chunk, _MAX_COLUMNS],
            "columns_of_row": [chunk, _MAX_COLUMNS if loops else columns],
            "rows": [1, _MAX_ROWS],
            "pointer_align_bytes": as_dtype(dtype).itemsize,
            "row_stride": "any",
        },
        "limits": _limits,
        **_common(dtype, defines),
    }


def _of_blocks(dtype: str) -> dict[str, Any]:
    chunk = _CHUNK_BYTES // as_dtype(dtype).itemsize
    defines = {
        "FROM": f"Wide::{_FROM[dtype]}",
        "TO": _TO["e4m3"],
        "CHUNK": chunk,
        **preload.defines(_HEADER, _STRUCT),
    }
    row_lanes, lanes = BLOCK // chunk, 256
    params = {"row_lanes": row_lanes, "row_steps": 1, "steps": BLOCK * row_lanes // lanes}
    return {
        "name": f"quantize_{dtype}_e4m3_blocks",
        "source": "kernels/quantize_blocks.hip",
        "header": _HEADER,
        "struct": _STRUCT,
        "flags": preload.FLAGS,
        "op": OF_BLOCKS,
        "params": {**params, "chunk": chunk},
        "tile": ("rows", "columns"),
        "grid": GRID_OF_BLOCKS,
        "accepts": {
            "to": ["e4m3"],
            "columns": [BLOCK, _MAX_COLUMNS],
            "rows": [1, _MAX_ROWS],
            "pointer_align_bytes": as_dtype(dtype).itemsize,
            "row_stride": "any",
        },
        "limits": _limits,
        **_common(dtype, defines),
    }


def _maxima(dtype: str, chunk: int) -> dict[str, Any]:
    defines = {"FROM": f"Wide::{_FROM[dtype]}", "CHUNK": chunk}
    return {
        "name": f"quantize_maxima_{dtype}_w{chunk}",
        "source": "kernels/quantize_maxima.hip",
        "header": "quantize_maxima.h",
        "struct": "QuantizeMaximaArgs",
        "op": MAXIMA,
        "params": {"chunk": chunk},
        "tile": ("rows", "columns"),
        "grid": MAXIMA_GRID,
        "accepts": {"columns": [chunk, _MAX_COLUMNS], "rows": [1, _MAX_ROWS]},
        **_common(dtype, defines),
    }


def _common(dtype: str, defines: dict[str, Any]) -> dict[str, Any]:
    return {
        "dtype": dtype,
        "toolchain": LLVM22,
        "toolchain_reason": "neither LLVM 21 nor 22 spills; 22 as the other kernels",
        "defines": tuple(f"{key}={value}" for key, value in defines.items()),
    }
