"""The kernels for products with scales of blocks, as arguments of `build.KernelBuild`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amdattn.arch.architectures import ARCHITECTURES
from amdattn.ops.gemm.problem import BLOCKS
from build_scripts.gemm_tiles_members import tile_member

# As of gemm_tiles_members: 128 sums of a lane are what vector registers hold besides all else. And
# the last accumulation register, of operands of two steps, loads on their way, and scales ahead.
_WIDE, _SMALL = ("blocks_t256x128", 4, 2, 2, 3, 1), ("blocks_t128x128", 2, 2, 2, 3, 1)
_LAST = {(False, _WIDE): 251, (True, _WIDE): 215, (False, _SMALL): 207, (True, _SMALL): 143}


def gemm_blocks_members() -> Iterator[dict[str, Any]]:
    """Every member: e4m3 times e4m3."""
    for arch in ARCHITECTURES.values():
        for (direct, tile), last in _LAST.items():
            if direct == arch.converts_bf16:
                member = tile_member(arch, "e4m3", "nt", *tile, LAST=last)
                accepts = {**member["accepts"], "scales": [BLOCKS], "max_splits": 1}
                yield {**member, "source": "kernels/gemm_blocks.hip", "accepts": accepts}
