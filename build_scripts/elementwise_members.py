"""The kernels of rows element by element, as arguments of `build.KernelBuild`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amdattn.ops.embedding.planning import EMBEDDING, GRID as EMBEDDING_GRID
from amdattn.ops.gated.planning import GATED_ACTIVATION, GRID
from amdattn.ops.rotary.planning import GRID as ROTARY_GRID, ROTARY
from build_scripts import preload
from build_scripts.limits import MAX_GRID_YZ, workgroups
from build_scripts.toolchain import LLVM22

_ELEMENT = {"bf16": "kBf16", "fp16": "kF16"}
_MAX_CHUNKS = 2**31 - 2**12  # the number behind those of the last workgroup is below 2^31


def elementwise_members() -> Iterator[dict[str, Any]]:
    """Every kernel."""
    for dtype in _ELEMENT:
        for steps in (1, 2):
            yield _gated(dtype, steps)
    for dtype in _ELEMENT:
        for norm in (False, True):
            for heads in (1, 2):
                yield _rotary(dtype, heads, norm)
    for row_lanes, steps in ((16, 1), (64, 4)):
        yield _embedding(row_lanes, steps)


def _gated(dtype: str, steps: int) -> dict[str, Any]:
    header, struct = "gated_activation.h", "GatedActivationArgs"
    defines = {
        **{"ELEMENT": _ELEMENT[dtype], "STEPS": steps},
        **preload.defines(header, struct),
    }
    return {
        "name": f"gated_activation_{dtype}_s{steps}",
        "source": "kernels/gated_activation.hip",
        "header": header,
        "struct": struct,
        "toolchain": LLVM22,
        "toolchain_reason": "neither LLVM 21 nor 22 spills; 22 as the other kernels",
        "op": GATED_ACTIVATION,
        "dtype": dtype,
        "params": {"steps": steps},
        "tile": ("chunks",),
        "grid": GRID,
        "accepts": {
            "max_chunks": _MAX_CHUNKS,  # of all rows
            "pointer_align_bytes": 2,
            "strides": [-(2**31), 2**31 - 1],  # of rows
        },
        "defines": tuple(f"{key}={value}" for key, value in defines.items()),
        "flags": preload.FLAGS,
    }


def _rotary(dtype: str, heads: int, norm: bool) -> dict[str, Any]:
    header, struct = "rotary.h", "RotaryArgs"
    defines = {
        **{"ELEMENT": _ELEMENT[dtype], "HEADS": heads, "NORM": int(norm)},
        **preload.defines(header, struct),
    }
    return {
        "name": f"rotary_{'norm_' * norm}{dtype}_h{heads}",
        "source": "kernels/rotary.hip",
        "header": header,
        "struct": struct,
        "toolchain": LLVM22,
        "toolchain_reason": "neither LLVM 21 nor 22 spills; 22 as the other kernels",
        "op": ROTARY,
        "dtype": dtype,
        "params": {"steps": heads, "norm": norm},
        "tile": ("lanes",),
        "grid": ROTARY_GRID,
        "accepts": {
            "max_lanes": _MAX_CHUNKS,  # of x, and of k
            "pointer_align_bytes": 2,
            "strides": [-(2**31), 2**31 - 1],
        },
        "defines": tuple(f"{key}={value}" for key, value in defines.items()),
        "flags": (*preload.FLAGS, "-fno-slp-vectorize"),  # pairs are in the source
    }


def _limits(lanes: int) -> dict[str, int]:
    """Workgroups along x, and along y."""
    return {**workgroups(lanes), "max_workgroups_yz": MAX_GRID_YZ}


def _embedding(row_lanes: int, steps: int) -> dict[str, Any]:
    header, struct = "embedding.h", "EmbeddingArgs"
    defines = {"ROW_LANES": row_lanes, "STEPS": steps, **preload.defines(header, struct)}
    return {
        "name": f"embedding_b{16 * row_lanes * steps}_l{row_lanes}",
        "source": "kernels/embedding.hip",
        "header": header,
        "struct": struct,
        "toolchain": LLVM22,
        "toolchain_reason": "neither LLVM 21 nor 22 spills; 22 as the other kernels",
        "op": EMBEDDING,
        "dtype": "uint8",  # rows are bytes
        "params": {"row_lanes": row_lanes, "steps": steps},
        "tile": ("rows", "columns"),
        "grid": EMBEDDING_GRID,
        "accepts": {
            "out_dtype": ["bfloat16", "float16", "float32"],
            "rows": [1, 2**30],  # the row behind the last workgroup must fit 32 bits
            "pointer_align_bytes": 2,
            "strides": [-(2**31), 2**31 - 1],  # of out
        },
        "limits": _limits,
        "defines": tuple(f"{key}={value}" for key, value in defines.items()),
        "flags": preload.FLAGS,
    }
