"""Operands of kernels that rescale only where a row's maximum grows."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from amdattn.bench import inputs
from amdattn.bench.inputs import Place
from amdattn.bench.kernels import Operands
from amdattn.bench.shapes import Shape
from amdattn.device import runtime
from amdattn.ops.attention.problem import axis_order


class ScaledKeys(Operands):
    """Operands whose first keys can be scaled, and that tell what they were filled with."""

    _scale = 1.0

    def put_keys(self, shape: Shape, batches: Iterable[int], rows: int, scale: float) -> None:
        """Put the first rows of K again, times a factor; 1 as they were."""
        by_head = axis_order(self.shape.layout)[1] == "head"
        self._scale = scale
        for batch in batches:
            for head in range(shape.heads_kv) if by_head else [0]:
                self._put(Place("k", batch, 0, head), rows, 1 if by_head else shape.heads_kv)
        self._scale = 1.0
        runtime.synchronize()

    def rows(self, operand: str, head: int, rows: range) -> NDArray[np.float32]:
        """What `fill_for` puts into rows of a head of "q", "k" or "v", whatever the batch entry."""
        made = [self._made(Place(operand, 0, row, head), 1, 1)[0, 0] for row in rows]
        return np.array(made).astype(self.dtype).astype(np.float32)

    def put_random(self, address: int, count: int) -> None:
        """Normal random numbers, bfloat16, for what a kernel reads besides."""
        some = inputs.normal("v", 0, count).astype(self.dtype)
        runtime.get().upload(address, some.ctypes.data, some.nbytes)
        runtime.synchronize()

    def _made(self, place: Place, rows: int, heads: int) -> NDArray[np.float32]:
        made = super()._made(place, rows, heads)
        if self._scale == 1.0:
            return made
        return made.astype(self.dtype).astype(np.float32) * np.float32(self._scale)
