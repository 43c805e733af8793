"""What the parts of an attention workgroup cost, for planning: modelled clocks of the kernels."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AttentionCosts:
    """Of the kernels of an architecture. A tile is of a wave: 16 rows times 32 keys.

    Attributes
    ----------
    softmax : int
        Of the vector unit for a tile, beside the matrix unit.
    block, block_of_tiles : int
        For barrier, waits and branches of a block of keys; beside that a share that tiles hide,
        the more of them the better.
    workgroup, workgroup_per_kib : int
        Before and after the loop of a workgroup: Q and the first K and V out of the memory, the
        first scores, normalisation and stores. And for each KiB of its rows of Q and O.
    masked : int
        More of the vector unit for a tile of which an edge of a window hides keys.
    """

    softmax: int
    block: int
    block_of_tiles: int
    workgroup: int
    workgroup_per_kib: int
    masked: int


ATTENTION_COSTS = {
    "gfx942": AttentionCosts(258, 0, 340, 9000, 0, 0),
    "gfx950": AttentionCosts(190, 100, 0, 3500, 26, 90),
}
