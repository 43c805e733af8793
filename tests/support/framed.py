"""Arrays in device memory in the midst of poison, which must stay as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import amdattn
from amdattn.device import runtime

POISON = 0xA5  # of every byte


class Framed:
    """An array with poison before and behind it along the first axis and the last.

    values : array, or a shape and a dtype
        What it holds; of a shape poison as well.
    apart : int
        Elements along the last axis; along the first one.
    """

    def __init__(self, values: Any, dtype: Any = None, apart: int = 3) -> None:
        held = np.empty(values, dtype) if dtype is not None else np.asarray(values)
        by = [1, *[0] * (held.ndim - 2), apart] if held.ndim > 1 else [apart]
        shape = [n + 2 * more for n, more in zip(held.shape, by, strict=True)]
        self._where = tuple(slice(more, n + more) for n, more in zip(held.shape, by, strict=True))
        poison = np.full(int(np.prod(shape)) * held.dtype.itemsize, POISON, np.uint8)
        whole = poison.view(held.dtype).reshape(shape)
        if dtype is None:
            whole[self._where] = held
        self._whole = amdattn.asarray(whole)
        self.inner = self._whole[self._where]

    def taken(self) -> NDArray[Any]:
        """What it holds now; nothing around it may have changed."""
        whole = self._whole.numpy()
        found = whole[self._where].copy()
        words = whole.view(f"u{whole.dtype.itemsize}")
        words[self._where] = int.from_bytes(bytes([POISON] * whole.dtype.itemsize), "little")
        assert (words.view(np.uint8) == POISON).all(), "written outside"
        return found

    def put(self, values: NDArray[Any]) -> None:
        """Hold others."""
        whole = self._whole.numpy()
        whole[self._where] = values
        runtime.get().upload(self._whole.address, whole.ctypes.data, whole.nbytes, 0)
