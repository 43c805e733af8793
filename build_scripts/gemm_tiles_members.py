"""The kernels for products with many rows, as arguments of `build.KernelBuild`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amdattn.arch.architectures import ARCHITECTURES
from amdattn.ops.gemm.tile_cost import GRID
from build_scripts.gemm_members import (
    ACTIVATIONS,
    ELEMENTS,
    MAX_ALIGNED_STRIDE,
    OUT_DTYPES,
    of_product,
)

# Fragments of 32 x 32 of a wave along m and n; stages of the LDS where loads go straight to it;
# workgroups that a CU shall hold.
_TILES = (
    ("t256x256", 4, 4, 2, 1),
    ("t256x128", 4, 2, 3, 1),
    ("t128x128", 2, 2, 2, 2),
)
_HEADER, _STRUCT = "gemm_tiles.h", "GemmTilesArgs"
_STEP, _FRAGMENT = 64, 32
_MAX_ROWS = 2**30  # rows behind the last tile must fit 32 bits, too


def gemm_tiles_members() -> Iterator[dict[str, Any]]:
    """Every member."""
    for arch in ARCHITECTURES.values():
        for dtype in ELEMENTS:
            for member in _TILES:
                yield _member(arch.name, arch.converts_bf16, dtype, *member)


def _member(
    arch: str,
    direct: bool,
    dtype: str,
    name: str,
    tiles_m: int,
    tiles_n: int,
    stages: int,
    of_cu: int,
) -> dict[str, Any]:
    stages = stages if direct else 1
    defines = {
        "TILES_M": tiles_m,
        "TILES_N": tiles_n,
        "STAGES": stages,
        "WAVES": of_cu,
        "ELEMENT": ELEMENTS[dtype],
        "LAST": 16 * tiles_m * tiles_n - 1,
    }
    return {
        **of_product(arch, dtype, name, _HEADER, _STRUCT, defines),
        "source": "kernels/gemm_tiles.hip",
        "params": {"mfma": _FRAGMENT, "step": _STEP, "waves_k": 1, "steps_in_flight": stages},
        "grid": GRID,
        "accepts": {
            "pointer_align_bytes": 4,
            "stride_multiple": 2,
            "row_stride": [0, MAX_ALIGNED_STRIDE],
            "k_multiple": 8,
            "out_dtype": OUT_DTYPES,
            "activation": ACTIVATIONS,
            "max_m": _MAX_ROWS,
            "max_n": _MAX_ROWS,
            "max_k": MAX_ALIGNED_STRIDE,
            "max_splits": 1,
        },
        "names_acc": True,
    }
