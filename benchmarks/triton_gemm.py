"""A matrix product in Triton's language, as its users write it: split along k, then one sum.

Imported only where Triton is installed. Workgroups are ordered as those of `gemm_nt` are: all that
read the same rows of b are on one XCD.
"""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def gemm(
    a,
    b,
    out,
    m,
    n,
    k,
    k_of_split,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    """A part of k of a tile; `out` is (splits, m, n). Rows of k elements lie next to each other."""
    tile_n, tile_m, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if tile_n * TILE_N < n:
        rows_m = tile_m * TILE_M + tl.arange(0, TILE_M)
        rows_n = tile_n * TILE_N + tl.arange(0, TILE_N)
        columns = tl.arange(0, TILE_K)
        begin = split * k_of_split
        end = tl.minimum(begin + k_of_split, k)
        # Rows that do not exist are others: what comes of them is not stored.
        a_tile = a + (rows_m % m)[:, None] * k + (begin + columns)[None, :]
        b_tile = b + (rows_n % n)[None, :] * k + (begin + columns)[:, None]
        total = tl.zeros([TILE_M, TILE_N], tl.float32)
        for at in range(begin, end, TILE_K):
            if EVEN_K:
                a_part, b_part = tl.load(a_tile), tl.load(b_tile)
            else:
                inside = at + columns < end
                a_part = tl.load(a_tile, mask=inside[None, :], other=0.0)
                b_part = tl.load(b_tile, mask=inside[:, None], other=0.0)
            total = tl.dot(a_part, b_part, total)
            a_tile += TILE_K
            b_tile += TILE_K
        at = out + split * m * n + rows_m[:, None] * n + rows_n[None, :]
        there = (rows_m[:, None] < m) & (rows_n[None, :] < n)
        tl.store(at, total.to(out.dtype.element_ty), mask=there)


@triton.jit
def add(parts, out, count, SPLITS: tl.constexpr, TILE: tl.constexpr):
    """The sum of `SPLITS` parts of `count` elements each."""
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    there = at < count
    total = tl.zeros([TILE], tl.float32)
    for split in tl.static_range(SPLITS):
        total += tl.load(parts + split * count + at, mask=there, other=0.0)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=there)
