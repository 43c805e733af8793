"""The kernels for products with many rows, as arguments of `build.KernelBuild`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amdattn.arch.architectures import ARCHITECTURES, Architecture
from amdattn.dtypes import as_dtype
from amdattn.ops.gemm.grids import WINDOWS
from amdattn.ops.gemm.problem import LAYOUTS, SCALES_OF_ROWS, by_k
from build_scripts.gemm_members import (
    ACTIVATIONS,
    ELEMENTS,
    MAX_ALIGNED_STRIDE,
    NAMES_OF_8_BITS,
    OUT_DTYPES,
    of_product,
)

# Fragments of 32 x 32 of a wave along m and n; waves along m; stages of the LDS where loads go
# straight to it; workgroups that a CU shall hold.
_TILES = (
    ("t256x256", 4, 4, 2, 2, 1),
    ("t256x192", 2, 6, 4, 2, 1),
    ("t256x128", 4, 2, 2, 3, 1),
    ("t128x128", 2, 2, 2, 2, 2),
)
# Those that fill chips better which are no power of two, or layers that are none: 4096 columns are
# 19 tiles of 224, of which 304 CUs get one each, 28672 are 128 of them; 5120 are 32 of 160.
_UNEVEN_TILES = {
    False: (("t256x224", 2, 7, 4, 1, 1), ("t128x224", 1, 7, 4, 1, 1)),
    True: (("t256x224", 2, 7, 4, 2, 1), ("t256x160", 2, 5, 4, 3, 1)),
}  # by whether loads go straight to LDS
_WAVES_BY_K = 2  # along m, of operands that are stored by k
_HEADER, _STRUCT = "gemm_tiles.h", "GemmTilesArgs"
_ROW_BYTES, _FRAGMENT = 128, 32  # of a row, of a step
_MAX_SPLITS = 16
_MAX_PRODUCTS = 2**20  # of a launch
_MAX_ROWS = 2**30  # rows behind the last tile must fit 32 bits, too


def gemm_tiles_members() -> Iterator[dict[str, Any]]:
    """Every member."""
    for arch in ARCHITECTURES.values():
        for dtype in (*ELEMENTS, *NAMES_OF_8_BITS):
            for layout in LAYOUTS if dtype in ELEMENTS else ("nt",):
                for member in (*_TILES, *_UNEVEN_TILES[arch.converts_bf16]):
                    if layout == "nt" or member[3] == _WAVES_BY_K:
                        yield tile_member(arch, dtype, layout, *member)


def tile_member(
    arch: Architecture,
    dtype: str,
    layout: str,
    name: str,
    tiles_m: int,
    tiles_n: int,
    waves_m: int,
    stages: int,
    of_cu: int,
    **more: Any,
) -> dict[str, Any]:
    """A member of `_TILES`; more: macros."""
    stages = stages if arch.converts_bf16 else 1
    a_by_k, b_by_k = by_k(layout)
    of_a, of_b = (dtype.split("_") * 2)[:2]
    types = {"e4m3": arch.fp8, "e5m2": arch.bf8}
    is_8_bit = of_a in types
    defines = {
        "TILES_M": tiles_m,
        "TILES_N": tiles_n,
        "WAVES_M": waves_m,
        "STAGES": stages,
        "WAVES": of_cu,
        "ELEMENT": ELEMENTS.get(of_a, f"k{of_a.capitalize()}"),
        "ELEMENT_B": ELEMENTS.get(of_b, f"k{of_b.capitalize()}"),
        "LAST": 16 * tiles_m * tiles_n - 1,
        "A_BY_K": int(a_by_k),
        "B_BY_K": int(b_by_k),
        **more,
    }
    return {
        **of_product(arch.name, dtype, name, _HEADER, _STRUCT, defines, layout),
        "dtype": types.get(of_a, of_a),
        "source": "kernels/gemm_tiles.hip",
        "params": {
            "mfma": _FRAGMENT,
            "step": _ROW_BYTES // (1 if is_8_bit else 2),
            "waves_k": 1,
            "steps_in_flight": stages,
        },
        "grid": WINDOWS,
        "accepts": {
            "b_dtype": [as_dtype(types.get(of_b, of_b)).name],
            "scales": [None, *SCALES_OF_ROWS] if is_8_bit else [None],
            "pointer_align_bytes": 4,
            "stride_multiple": 4 if is_8_bit else 2,
            "row_stride": [0, MAX_ALIGNED_STRIDE],
            "layout": layout,
            # Of what lies next to each other: 16 bytes of k, or whole dwords of rows.
            "k_multiple": 1 if a_by_k and b_by_k else 16 if is_8_bit else 8,
            "m_multiple": 2 if a_by_k else 1,
            "n_multiple": 2 if b_by_k else 1,
            "out_dtype": OUT_DTYPES,
            "activation": ACTIVATIONS,
            "max_m": MAX_ALIGNED_STRIDE if a_by_k else _MAX_ROWS,
            "max_n": MAX_ALIGNED_STRIDE if b_by_k else _MAX_ROWS,
            "max_k": MAX_ALIGNED_STRIDE,
            "max_splits": _MAX_SPLITS,
            "max_products": _MAX_PRODUCTS,
        },
        "names_acc": True,
    }
