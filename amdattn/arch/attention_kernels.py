"""What planning knows of the attention kernels of an architecture."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AttentionKernels:
    """The order of tiles, and modelled clocks. Of a wave a tile is 16 rows times 32 keys.

    Attributes
    ----------
    heads_of_xcd : int
        That workgroups on an XCD take at once under a mask, at least: kHeadsOfXcd of
        asm_src/arch/target.h.
    tiles_of_xcd : int
        A power of two: of more heads, as long as they have no more tiles than this, which is one
        for each CU. 0: always as many heads. kTilesOfXcd of asm_src/attn/work.h.
    softmax : int
        Of the vector unit for a tile, beside the matrix unit.
    block, block_of_tiles : int
        For barrier, waits and branches of a block of keys; beside that a share that tiles hide,
        the more of them the better.
    block_of_128_rows : int
        More of a block in tiles of 128 rows, where each operand read from LDS serves one matrix
        instruction: there are more instructions than issue slots.
    workgroup, workgroup_per_kib : int
        Before and after the loop of a workgroup: Q and the first K and V out of the memory, the
        first scores, normalisation and stores. And for each KiB of its rows of Q and O.
    masked : int
        More of the vector unit for a tile of which an edge of a window hides keys.
    backward_ordered, backward_compiled : float
        Of the backward, what a tile takes of the limit of the matrix units, in the order of
        asm_src/attn_bwd/step_order.h and in the compiler's.
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
