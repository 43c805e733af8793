"""Whether strided views share elements: exact, from addresses alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from amdattn.arrays.dlpack import RawMemory
from amdattn.arrays.views import View

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# The budget of numpy's exact test; strided tensors of usual layouts need a tiny part of it.
_SOLVER_WORK = 100_000
# Beyond it, rows are compared one by one, up to this number: 2**22 take a second.
_MAX_ROWS = 1 << 22


def share_memory(a: View, b: View) -> bool | None:
    """Whether an element is in both views; None if that takes too long to tell.

    Elements of the last axis must lie next to each other.
    """
    import numpy as np

    a_low, a_high = a.extent()
    b_low, b_high = b.extent()
    if a_high <= b_low or b_high <= a_low:
        return False
    one, other = (
        np.asarray(RawMemory(view.address, view.shape, view.strides, view.dtype, None, True))
        for view in (a, b)
    )
    try:
        # numpy's type stub lacks integer budgets.
        return bool(np.shares_memory(one, other, max_work=_SOLVER_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        pass
    if max(map(_num_rows, (a, b))) > _MAX_ROWS:
        return None
    rows_a, rows_b = _rows(a), _rows(b)
    # Of the rows of b that begin before a row of a ends, the last one reaches farthest.
    before = np.searchsorted(rows_b, rows_a + _row_bytes(a)) - 1
    ends = rows_b[before] + _row_bytes(b)
    return bool(((before >= 0) & (ends > rows_a)).any())


def repeats_elements(view: View) -> bool | None:
    """Whether an element has several indices; None if that takes too long to tell.

    Elements of the last axis must lie next to each other.
    """
    reach = 0
    for step, length in sorted(
        (abs(step), length)
        for step, length in zip(view.strides, view.shape, strict=True)
        if length > 1
    ):
        if step == 0:
            return True
        if step <= reach:
            break  # the axes interleave
        reach += (length - 1) * step
    else:
        return False
    if _num_rows(view) > _MAX_ROWS:
        return None
    rows = _rows(view)
    return bool((rows[1:] - rows[:-1] < _row_bytes(view)).any())


def _num_rows(view: View) -> int:
    return math.prod(view.shape[:-1])


def _row_bytes(view: View) -> int:
    return view.shape[-1] * view.dtype.itemsize


def _rows(view: View) -> NDArray[np.int64]:
    """Addresses of the rows, sorted."""
    import numpy as np

    rows: NDArray[Any] = np.array([view.address], np.int64)
    for length, step in zip(view.shape[:-1], view.strides[:-1], strict=True):
        rows = np.add.outer(rows, np.arange(length) * (step * view.dtype.itemsize)).ravel()
    rows.sort()
    return rows
