"""The kernels that merge partial attention results, as arguments of `build.KernelBuild`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amdattn.dtypes import as_dtype
from amdattn.ops.merge.planning import GRID, MERGE_STATE
from build_scripts import preload
from build_scripts.limits import MAX_GRID_YZ, workgroups
from build_scripts.toolchain import LLVM22

_HEADER, _STRUCT = "merge_state.h", "MergeStateArgs"
# What a lane has of a row, by element type: the type in the source.
_CHUNKS = {
    "bf16": "Chunk16<Element::kBf16, {}>",
    "fp16": "Chunk16<Element::kF16, {}>",
    "fp32": "Chunk32<{}>",
}
_LANES = 64  # of a workgroup
# Dwords of a row that a lane has, rows of a lane one after the other.
_SHAPES = ((1, 1), (2, 1), (4, 1), (4, 2))


def merge_members() -> Iterator[dict[str, Any]]:
    """Every member."""
    for dtype in _CHUNKS:
        for dwords, steps in _SHAPES:
            if dwords > 1 or dtype != "fp32":
                yield _member(dtype, dwords, steps)


def _limits(lanes: int) -> dict[str, int]:
    """Workgroups along x, and along y and z."""
    return {**workgroups(lanes), "max_workgroups_yz": MAX_GRID_YZ}


def _member(dtype: str, dwords: int, steps: int) -> dict[str, Any]:
    name = f"merge_state_{dtype}_b{4 * dwords}" + f"_s{steps}" * (steps > 1)
    itemsize = as_dtype(dtype).itemsize
    step = 16 // itemsize
    defines = {
        "CHUNK": _CHUNKS[dtype].format(dwords),
        "LANES": _LANES,
        "STEPS": steps,
        **preload.defines(_HEADER, _STRUCT),
    }
    return {
        "name": name,
        "source": "kernels/merge_state.hip",
        "header": _HEADER,
        "struct": _STRUCT,
        "toolchain": LLVM22,
        "toolchain_reason": "neither LLVM 21 nor 22 spills; 22 as the other kernels",
        "op": MERGE_STATE,
        "dtype": dtype,
        "params": {"chunk_bytes": 4 * dwords, "steps": steps},
        "tile": ("chunks",),
        "grid": GRID,
        "accepts": {
            "num_parts": [1, 2**23 - 1],  # least and greatest
            # First, last and step: a row is a multiple of 16 bytes, and within a workgroup.
            "head_dims": [step, min(256, _LANES * 4 * dwords // itemsize), step],
            "pointer_align_bytes": 16,  # of o and out
            "stride_bytes": 16,  # of o and out: strides are multiples
            # Least and greatest: of o and out in those, of lse and lse_out in elements.
            "strides": [-(2**31), 2**31 - 1],
        },
        "limits": _limits,
        "defines": tuple(f"{key}={value}" for key, value in defines.items()),
        "flags": preload.FLAGS,
    }
