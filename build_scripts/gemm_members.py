"""The members of the decode GEMM family, as arguments of `build.KernelBuild`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from build_scripts.toolchain import LLVM22

GEMM_GRID = "x=ceil(n/tile_n) to a multiple of 8, y=ceil(m/tile_m), z=splits"

# Tiles of 16 rows of m and of n of a wave, waves along m and along k, steps of k in flight. Chosen
# by the model: few rows of n a workgroup keep HBM busy without splits; more rows of both where A
# would be read too often. All waves of a CU have 64 loads in flight.
_ALIGNED = (
    ("m16n16", 1, 1, 1, 2, 8),
    ("m16n32", 1, 2, 1, 2, 8),
    ("m32n16", 2, 1, 1, 2, 8),
    ("m32n32", 2, 2, 1, 2, 4),
    ("m64n32", 4, 2, 1, 4, 2),
    ("m64n64", 4, 4, 1, 4, 2),
)
_ANY = ("any", 1, 1, 1, 4, 1)  # any alignment, element by element
_ELEMENT = {"bf16": "kBf16", "fp16": "kF16"}
_TILE, _LANES = 16, 64
# SGPRs that hold the first kernel arguments at the start.
_PRELOADED_DWORDS = 14

_MAX_GRID_Y = 65535  # hipDeviceProp_t.maxGridSize[1]
_MAX_GRID_LANES_X = 2**32 - 1  # the dispatch packet counts lanes in 32 bits
_MAX_INDEX = 2**30  # indices of a tile behind the last one must fit 32 bits, too
_MAX_SPLITS = 4096  # far below what the 16 bits of an arrival count hold
# 64 rows are addressed by offsets of 31 bits.
_MAX_ALIGNED_STRIDE = 2**24 - 1


def gemm_members() -> Iterator[dict[str, Any]]:
    """Every member."""
    for dtype in _ELEMENT:
        for member in (*_ALIGNED, _ANY):
            yield _member(dtype, *member)


def _member(
    dtype: str, tile: str, tiles_m: int, tiles_n: int, waves_m: int, waves_k: int, depth: int
) -> dict[str, Any]:
    any_alignment = tile == "any"
    name = f"gemm_nt_{dtype}_{tile}"
    defines = {
        "KERNEL": f"amdattn_{name}_gfx942",
        "TILES_M": tiles_m,
        "TILES_N": tiles_n,
        "WAVES_M": waves_m,
        "WAVES_K": waves_k,
        "DEPTH": depth,
        "ELEMENT": _ELEMENT[dtype],
        "LAST": 4 * tiles_m * tiles_n - 1,
        "STREAM": "ElementStream" if any_alignment else "Stream",
    }
    workgroups_x = _MAX_GRID_LANES_X // (_LANES * waves_m * waves_k)
    return {
        "name": name,
        "arch": "gfx942",
        "source": "kernels/gemm_nt.hip",
        "header": "gemm.h",
        "struct": "GemmArgs",
        "toolchain": LLVM22,
        "toolchain_reason": "neither LLVM 21 nor 22 spills; the order of the loop is the source's",
        "op": "gemm_nt",
        "dtype": dtype,
        "head_dim": 0,
        "head_dim_v": 0,
        "grid": GEMM_GRID,
        "constraints": {
            "waves_k": waves_k,
            "steps_in_flight": depth,
            "pointer_align_bytes": 2 if any_alignment else 4,
            "stride_multiple": 1 if any_alignment else 2,
            "row_stride": [-(2**31), 2**31 - 1] if any_alignment else [0, _MAX_ALIGNED_STRIDE],
            "k_multiple": 1 if any_alignment else 8,
            "out_dtype": ["float32", "bfloat16", "float16"],
            "activation": [
                *(None, "silu", "gelu_tanh", "gelu"),
                *("silu_and_mul", "gelu_tanh_and_mul", "gelu_and_mul"),
            ],
            "max_m": _MAX_GRID_Y * _TILE * tiles_m * waves_m,
            "max_n": min(workgroups_x * _TILE * tiles_n, _MAX_INDEX),
            "max_k": _MAX_INDEX if any_alignment else _MAX_ALIGNED_STRIDE,
            "max_splits": _MAX_SPLITS,
        },
        "names_acc": not any_alignment,
        "defines": tuple(f"{key}={value}" for key, value in defines.items()),
        "flags": ("-mllvm", f"-amdgpu-kernarg-preload-count={_PRELOADED_DWORDS}"),
    }
