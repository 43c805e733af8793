"""Operands of kernels that rescale only where a row's maximum grows."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from amdattn.bench.kernels import BYTES_PER_ELEMENT, CHUNK_ELEMENTS, Operands
from amdattn.bench.shapes import Shape
from amdattn.device import runtime
from amdattn.ops.attention.problem import axis_order


class ScaledKeys(Operands):
    """Operands whose first keys can be scaled, and that tell what they were filled with."""

    def put_keys(self, shape: Shape, batches: Iterable[int], rows: int, scale: float) -> None:
        """Put the first rows of K again, times a factor; 1 as they were."""
        strides = self.strides("k")
        whole = (self._chunks["k"].astype(np.float32) * scale).astype(self.dtype)
        heads = range(shape.heads_kv) if axis_order(self.shape.layout)[1] == "head" else [0]
        for batch in batches:
            base = self.addresses["k"] + batch * strides["batch"] * BYTES_PER_ELEMENT
            for head in heads:
                at = head * strides["head"]
                self._put(whole, base, at, at + rows * strides["seq"])
        runtime.synchronize()

    def rows(self, operand: str, head: int, rows: range) -> NDArray[np.float32]:
        """What `fill_for` puts into rows of a head of "q", "k" or "v", whatever the batch entry."""
        strides, chunk = self.strides(operand), self._chunks[operand]
        first = np.asarray(rows) * strides["seq"] + head * strides["head"]
        dim = self.shape.problem("rtne").axes(operand)["dim"]
        at = (first[:, None] + np.arange(dim)) % CHUNK_ELEMENTS
        return chunk[at].astype(np.float32)

    def put_random(self, address: int, count: int) -> None:
        """Normal random numbers, bfloat16, for what a kernel reads besides."""
        self._put(self._chunks["v"], address, 0, count)
        runtime.synchronize()
