"""A Triton kernel that takes a lock, as no kernel of tests/support/peers does for a vector."""

import triton
import triton.language as tl


@triton.jit
def locked_accumulate(lock, total, x, TILE: tl.constexpr):
    """Add row `program_id` of x to total, one workgroup at a time."""
    i = tl.arange(0, TILE)
    value = tl.load(x + tl.program_id(0) * TILE + i)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(total + i, tl.load(total + i, volatile=True) + value)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)
