"""The kernels for products with scales of 32 elements of k, as arguments of `build.KernelBuild`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amdattn.arch.architectures import ARCHITECTURES
from amdattn.dtypes import as_dtype
from amdattn.ops.gemm.problem import MX
from build_scripts.gemm_tiles_members import tile_member

# As of gemm_tiles_members, by bits.
_TILES = (("mx_t256x256", 4, 4, 2, 2, 1), ("mx_t256x128", 4, 2, 2, 3, 1))
_OF_BITS = {8: _TILES, 6: (("mx_t256x256", 4, 4, 2, 3, 1),), 4: _TILES}
_SHORT = ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")
_STEPS = {8: 128, 6: 128, 4: 256}  # elements of k by bits
_K_MULTIPLE = 128


def gemm_mx_members() -> Iterator[dict[str, Any]]:
    """Every member: of gfx950, which has matrix instructions with scales."""
    for arch in ARCHITECTURES.values():
        if not arch.converts_bf16:
            continue
        for short in _SHORT:
            dtype = as_dtype({"e4m3": arch.fp8, "e5m2": arch.bf8}.get(short, f"{short}fn"))
            for tile in _OF_BITS[dtype.bits]:
                member = tile_member(arch, "e4m3", "nt", *tile, FORMAT=f"k{short.capitalize()}")
                yield {
                    **member,
                    "name": member["name"].replace("e4m3", short),
                    "dtype": dtype.name,
                    "source": "kernels/gemm_mx.hip",
                    "params": {**member["params"], "step": _STEPS[dtype.bits]},
                    "accepts": {
                        **member["accepts"],
                        "max_splits": 1,
                        "b_dtype": [dtype.name],
                        "scales": [MX],
                        "stride_multiple": 4,
                        "k_multiple": _K_MULTIPLE,
                    },
                }
