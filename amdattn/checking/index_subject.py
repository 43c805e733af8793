"""Indices of 64 bits in device memory, which calls narrow before their plans run, as a subject."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amdattn.arrays.interchange import as_view, asarray
from amdattn.checking.session import Check
from amdattn.device import runtime
from amdattn.op.indices import on_device

if TYPE_CHECKING:
    from numpy.typing import NDArray

_COUNT, _LEAST, _MOST = 1001, -1, 1000
_FAR = 2**40  # beyond 32 bits


@dataclass(frozen=True)
class OfIndices:
    """Random ones, of which many are out of range."""

    seed: int = 0

    @property
    def title(self) -> str:
        """One line for people."""
        return f"narrow_indices {_COUNT} of 64 bits, to {_LEAST}..{_MOST}"

    def run(self, check: Check) -> Mapping[str, NDArray[Any]]:
        """Launch once."""
        import numpy as np

        rng = np.random.default_rng(self.seed)
        near = rng.integers(2 * _LEAST, 2 * _MOST, _COUNT)
        given = asarray(np.where(rng.random(_COUNT) < 0.5, near, rng.integers(-_FAR, _FAR, _COUNT)))
        check.declare(read_only={"indices": given})
        narrow = on_device(as_view(given, "indices", 0), "indices", 0, _LEAST, _MOST)
        found = np.empty(_COUNT, np.int32)
        device = runtime.get(narrow.ordinal)
        device.download(found.ctypes.data, narrow.address, found.nbytes, 0)
        device.synchronize(0)
        return {"indices": found}
