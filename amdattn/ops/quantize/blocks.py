"""Scales of blocks of a row: if rows follow each other, each block is treated as a row."""

from __future__ import annotations

from amdattn import scalars
from amdattn.arrays.views import View
from amdattn.errors import UnsupportedProblem
from amdattn.ops.quantize.problem import BLOCK

SHAPES = (1, BLOCK), (BLOCK, BLOCK)  # those that `gemm_nt` takes, for a and for b


def check_block(block: object, columns: int) -> None:
    """Check that blocks of this shape can have scales in rows of a number of columns.

    Raises
    ------
    ValueError, UnsupportedProblem
    """
    have = " or ".join(map(str, SHAPES))
    lengths = tuple(block) if isinstance(block, tuple | list) else ()
    if tuple(scalars.integer("block", length) for length in lengths) not in SHAPES:
        raise ValueError(f"block={block!r} must be {have}")
    if columns % BLOCK:
        raise UnsupportedProblem(
            f"columns={columns} with block={block!r} is not built (have multiples of {BLOCK})"
        )


def as_rows(x: View) -> View:
    """View blocks of x as rows, without a copy on the device.

    Raises
    ------
    UnsupportedProblem
        Rows in device memory do not follow each other.
    """
    rows, columns = x.shape
    shape, strides = (rows * (columns // BLOCK), BLOCK), (BLOCK, 1)
    if x.array is not None:
        array = x.array.reshape(shape)  # a copy of rows that do not follow each other
        address = array.ctypes.data
        return View(address, shape, strides, x.dtype, x.read_only, array, array, x.ordinal)
    if 0 not in x.shape and (x.strides[1] != 1 or (rows > 1 and x.strides[0] != columns)):
        raise UnsupportedProblem(
            f"x has strides {x.strides} (elements), which with block=(1, {BLOCK}) is not built "
            f"(have {(columns, 1)})"
        )
    return View(x.address, shape, strides, x.dtype, x.read_only, x.owner, None, x.ordinal)
