"""Host references of the kernels beside this file, in numpy: what each must write."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
U16 = npt.NDArray[np.uint16]

LANES = 64
FRAG_ROWS = 16
LN2 = np.log(2.0)


def round_octet(values: F32, factor: float) -> U16:
    """Bits of bf16(values * factor), both roundings to nearest even; a NaN stays one."""
    with np.errstate(all="ignore"):
        product = values * np.float32(factor)
    return product.astype(ml_dtypes.bfloat16).view(np.uint16)


def lane_reduce(values: F32) -> tuple[F32, F64]:
    """Maximum and (exact) sum over the lanes that are equal modulo 16; shape (64,) each."""
    groups = values.reshape(-1, FRAG_ROWS)
    repeat = LANES // FRAG_ROWS
    return np.tile(groups.max(0), repeat), np.tile(groups.sum(0, dtype=np.float64), repeat)


def mma(a: F64, b: F64, c: F64) -> F64:
    """a (16, 32), b (16, 32), c (16, 16), exact."""
    return a @ b.T + c


def tile_row(fragment: int, row: int) -> int:
    """Inverse of FragmentRow::of_tile_row: rows go to fragment pairs by fours."""
    return fragment // 2 * 32 + row // 4 * 8 + fragment % 2 * 4 + row % 4


def staged(source: U16, kv_tile: int, transposed: bool) -> U16:
    """Operand fragments of a (num_rows, 128) source, as row_stage or transpose_stage write them.

    Returns
    -------
    array of shape (num_tiles, num_fragments, num_steps, 64, 8)
    """
    num_tiles = -(-len(source) // kv_tile)
    padded = np.zeros((num_tiles * kv_tile, source.shape[1]), np.uint16)
    padded[: len(source)] = source
    tiles = padded.reshape(num_tiles, kv_tile, -1)
    if transposed:
        tiles = tiles.swapaxes(1, 2)
    num_fragments, num_steps = tiles.shape[1] // FRAG_ROWS, tiles.shape[2] // 32
    out = np.empty((num_tiles, num_fragments, num_steps, LANES, 8), np.uint16)
    for fragment in range(num_fragments):
        for step in range(num_steps):
            for lane in range(LANES):
                row = tile_row(fragment, lane % FRAG_ROWS)
                first = (step * 4 + lane // FRAG_ROWS) * 8
                out[:, fragment, step, lane] = tiles[:, row, first : first + 8]
    return out


def softmax_state(scores: F32) -> tuple[F64, F64, F64, F64]:
    """Probabilities, rescale, inv_sum and lse in float64 for scores (num_tiles, 64, 4).

    Probabilities are relative to an origin, which moves to the maxima so far whenever one of them
    exceeds its row's by more than 8. A row without a finite score has inv_sum 0 and lse -inf.
    """
    tiles = scores.astype(np.float64)
    num_tiles = len(tiles)
    by_row = tiles.reshape(num_tiles, 4, FRAG_ROWS, 4)  # tile, group, row, element
    running = np.full(FRAG_ROWS, -np.inf)
    total = np.zeros(FRAG_ROWS)
    probabilities, rescale = np.empty_like(by_row), np.empty((num_tiles, LANES))
    with np.errstate(all="ignore"):
        for tile in range(num_tiles):
            top = np.fmax(running, np.fmax.reduce(by_row[tile], axis=(0, 2)))
            moves = (top > running + 8).any()
            if not moves:
                top = running
            origin = np.where(top == -np.inf, 0.0, top)
            factor = np.exp2(running - origin) if moves else np.ones(FRAG_ROWS)
            probabilities[tile] = np.exp2(by_row[tile] - origin[:, None])
            total = total * factor + probabilities[tile].sum((0, 2))
            rescale[tile] = np.tile(factor, 4)
            running = top
        inv_sum = np.where(total == 0, 0.0, 1 / total)
        lse = (np.where(running == -np.inf, 0.0, running) + np.log2(total)) * LN2
    return probabilities.reshape(tiles.shape), rescale, np.tile(inv_sum, 4), np.tile(lse, 4)
