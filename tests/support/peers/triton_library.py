"""Small kernels that pull in much of what Triton's library compiles to."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def elementwise(x, out, n, FUNCTION: tl.constexpr, TILE: tl.constexpr):
    """out = FUNCTION(x)."""
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    value = tl.load(x + i, mask=i < n)
    if FUNCTION == "erf":
        value = tl.erf(value)
    elif FUNCTION == "exp":
        value = libdevice.exp(value)
    elif FUNCTION == "sin":
        value = libdevice.sin(value)
    elif FUNCTION == "pow":
        value = libdevice.pow(value, value)
    elif FUNCTION == "divide":
        value = tl.div_rn(value, value + 0.7)
    tl.store(out + i, value.to(out.dtype.element_ty), mask=i < n)


@triton.jit
def divide_integers(x, y, quotient, remainder, n, TILE: tl.constexpr):
    """Truncating division: a call of a long sequence where the hardware has no instruction."""
    i = tl.arange(0, TILE)
    a = tl.load(x + i, mask=i < n, other=1)
    b = tl.load(y + i, mask=i < n, other=1)
    tl.store(quotient + i, a // b, mask=i < n)
    tl.store(remainder + i, a % b, mask=i < n)


@triton.jit
def order(x, ordered, sums, where, TILE: tl.constexpr):
    """Sort, prefix sum and position of the maximum: DPP, permutes and LDS."""
    i = tl.arange(0, TILE)
    value = tl.load(x + i)
    tl.store(ordered + i, tl.sort(value))
    tl.store(sums + i, tl.cumsum(value, 0))
    tl.store(where, tl.argmax(value, 0))


@triton.jit
def transpose(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """out = x.T through LDS."""
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    value = tl.load(x + rows[:, None] * COLUMNS + columns[None, :])
    tl.store(out + columns[:, None] * ROWS + rows[None, :], tl.trans(value))


@triton.jit
def scatter_add(x, index, total, n, TILE: tl.constexpr):
    """total[index] += x, with many lanes adding to one place."""
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.atomic_add(
        total + tl.load(index + i, mask=i < n, other=0), tl.load(x + i, mask=i < n), mask=i < n
    )


@triton.jit
def locked_increment(lock, counter, repeats):
    """Workgroups that take turns at a lock in memory."""
    for _ in range(repeats):
        while tl.atomic_cas(lock, 0, 1) == 1:
            pass
        tl.store(counter, tl.load(counter, volatile=True) + 1)
        tl.debug_barrier()
        tl.atomic_xchg(lock, 0)
