"""The kernels for products with scales of blocks, as arguments of `build.KernelBuild`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amdattn.arch.architectures import ARCHITECTURES
from amdattn.ops.gemm.problem import BLOCKS
from build_scripts.gemm_tiles_members import tile_member

# As of gemm_tiles_members: 128 sums of a lane are what vector registers hold besides all else.
_TILE = ("blocks_t256x128", 4, 2, 2, 3, 1)
# Accumulation registers: operands of two steps, then a step's loads and scales of two steps, or,
# where loads go straight to LDS, scales of four.
_LAST = {False: 251, True: 215}


def gemm_blocks_members() -> Iterator[dict[str, Any]]:
    """Every member: e4m3 times e4m3."""
    for arch in ARCHITECTURES.values():
        member = tile_member(arch, "e4m3", "nt", *_TILE, LAST=_LAST[arch.converts_bf16])
        accepts = {**member["accepts"], "scales": [BLOCKS]}
        yield {**member, "source": "kernels/gemm_blocks.hip", "accepts": accepts}
