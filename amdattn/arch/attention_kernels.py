"""Constants by which planning predicts the time of the attention kernels of an architecture."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AttentionKernels:
    """The order of tiles, and modelled costs in clk.

    The tile of a wave, to which the costs refer, has 16 rows and 32 keys.

    Attributes
    ----------
    heads_of_xcd : int
        The least number of heads that an XCD processes at once under a mask: kHeadsOfXcd in
        asm_src/arch/target.h.
    tiles_of_xcd : int
        A power of two. An XCD processes more heads at once as long as they have no more tiles than
        this, which is one per CU; 0: never more than `heads_of_xcd`. kTilesOfXcd in
        asm_src/attn/work.h.
    softmax : int
        Clk of the vector unit per tile; the matrix unit works at the same time.
    block, block_of_tiles : int
        Clk per block of keys for barrier, waits and branches: a constant part, and a part that is
        divided by the tiles of the wave, because their work hides it.
    block_of_128_rows : int
        Additional clk per block in tiles of 128 rows. There each operand that is read from LDS
        serves one matrix instruction only, so there are more instructions than issue slots.
    workgroup, workgroup_per_kib : int
        Clk of a workgroup before and after its loop, which loads Q and the first K and V, computes
        the first scores, normalises and stores: a constant part, and a part per KiB of its rows of
        Q and O.
    masked : int
        Additional clk of the vector unit for a tile in which the edge of a window hides keys.
    backward_ordered, backward_compiled : float
        Time of a tile of the backward relative to the limit of the matrix units, with instructions
        in the order of asm_src/attn_bwd/step_order.h, and in the compiler's order.
    """

    heads_of_xcd: int
    tiles_of_xcd: int
    softmax: int
    block: int
    block_of_tiles: int
    block_of_128_rows: int
    workgroup: int
    workgroup_per_kib: int
    masked: int
    backward_ordered: float
    backward_compiled: float


ATTENTION_KERNELS = {
    "gfx942": AttentionKernels(8, 0, 258, 0, 340, 0, 9000, 100, 0, 1.07, 4.8),
    "gfx950": AttentionKernels(2, 32, 190, 100, 0, 180, 3500, 26, 90, 1.4, 6.7),
}
