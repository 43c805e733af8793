"""Layer normalisation and rotary embedding in Triton's language, as its tutorials write them.

A program a row, held at once, as in the tutorials on layer normalisation and low-memory dropout; a
program a token for all heads, as is usual for rotary embeddings. Imported only where Triton is
installed.
"""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def layer_norm(
    x,
    weight,
    bias,
    residual,
    out,
    total,
    columns,
    eps,
    dropout_p,
    seed,
    RESIDUAL: tl.constexpr,
    DROPOUT: tl.constexpr,
    TILE: tl.constexpr,
):
    """Rows lie next to each other. With a residual the sum goes to `total`, rounded."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, TILE)
    there = at < columns
    values = tl.load(x + row * columns + at, mask=there, other=0.0).to(tl.float32)
    if DROPOUT:
        stays = tl.rand(seed, tl.program_id(0) * columns + at) > dropout_p  # 32 bits are faster
        values = tl.where(stays, values / (1 - dropout_p), 0.0)
    if RESIDUAL:
        values += tl.load(residual + row * columns + at, mask=there, other=0.0).to(tl.float32)
        rounded = values.to(x.dtype.element_ty)
        tl.store(total + row * columns + at, rounded, mask=there)
        values = rounded.to(tl.float32)
    mean = tl.sum(values, axis=0) / columns
    apart = tl.where(there, values - mean, 0.0)
    scale = tl.rsqrt(tl.sum(apart * apart, axis=0) / columns + eps)
    weights = tl.load(weight + at, mask=there, other=0.0).to(tl.float32)
    biases = tl.load(bias + at, mask=there, other=0.0).to(tl.float32)
    result = apart * scale * weights + biases
    tl.store(out + row * columns + at, result.to(x.dtype.element_ty), mask=there)


@triton.jit
def rotary(
    x,
    cos,
    sin,
    out,
    seqlen,
    heads,
    HALF: tl.constexpr,
    HEADS: tl.constexpr,
):
    """Pairs are columns i and i + HALF of heads of 2 HALF columns; a table's row has HALF."""
    token = tl.program_id(0)
    position = token % seqlen
    at = tl.arange(0, HALF)
    c = tl.load(cos + position * HALF + at).to(tl.float32)[None, :]
    s = tl.load(sin + position * HALF + at).to(tl.float32)[None, :]
    head = tl.arange(0, HEADS)[:, None]
    there = head < heads
    first = token.to(tl.int64) * heads * 2 * HALF + head * 2 * HALF + at[None, :]
    a = tl.load(x + first, mask=there, other=0.0).to(tl.float32)
    b = tl.load(x + first + HALF, mask=there, other=0.0).to(tl.float32)
    tl.store(out + first, (a * c - b * s).to(x.dtype.element_ty), mask=there)
    tl.store(out + first + HALF, (b * c + a * s).to(x.dtype.element_ty), mask=there)
