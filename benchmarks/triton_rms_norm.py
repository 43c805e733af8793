"""RMS normalisation in Triton's language, as its users write it: a program a row, held at once.

Imported only where Triton is installed.
"""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def rms_norm(
    x,
    weight,
    residual,
    out,
    total,
    columns,
    eps,
    RESIDUAL: tl.constexpr,
    TILE: tl.constexpr,
):
    """Rows lie next to each other. With a residual the sum goes to `total`, rounded."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, TILE)
    there = at < columns
    values = tl.load(x + row * columns + at, mask=there, other=0.0).to(tl.float32)
    if RESIDUAL:
        values += tl.load(residual + row * columns + at, mask=there, other=0.0).to(tl.float32)
        rounded = values.to(x.dtype.element_ty)
        tl.store(total + row * columns + at, rounded, mask=there)
        values = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, axis=0) / columns + eps)
    weights = tl.load(weight + at, mask=there, other=0.0).to(tl.float32)
    tl.store(
        out + row * columns + at, (values * scale * weights).to(x.dtype.element_ty), mask=there
    )
