"""Runs attention forward kernels for gfx950 that others wrote on arrays.

AMDATTN_GFX950_DIR names a directory of their code objects, as benchmarks.peers.compiled_gfx950
says, which has the launch rules.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.compiled_gfx950 import LANES, Q_TILE, Compiled, compiled
from tests.support.peers.peer_device import Buffers, Kernel, read

__all__ = ["LANES", "Q_TILE", "Compiled", "Forward", "compiled"]


class Forward:
    """A loaded kernel."""

    def __init__(self, what: Compiled) -> None:
        self.what = what
        self._kernel = Kernel(what.path.read_bytes(), what.symbol)

    def __call__(
        self, q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], tiles: int | None = None
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Result and log-sum-exp of (rows, heads, d) arrays; of FlyDSL's the latter is NaN.

        Parameters
        ----------
        tiles : int, optional
            Of 256 rows of Q that are launched, of head 0 only; all of all heads if None.
        """
        what = self.what
        lse_shape = (what.hq, len(q))
        with Buffers() as buffers:
            at = {name: buffers.put(x) for name, x in zip("qkv", (q, k, v), strict=True)}
            at["o"] = buffers.unwritten(q.shape, q.dtype)
            at["lse"] = buffers.unwritten(lse_shape, np.float32)
            grid = (what.hq, -(-len(q) // Q_TILE), 1) if tiles is None else (1, tiles, 1)
            self._kernel.launch(grid, LANES, what.kernarg(at, len(q), len(k)), what.lds)
            return read(at["o"], q.shape, q.dtype), read(at["lse"], lse_shape, np.float32)
