"""Reads caches of 8-bit floats and their scales in the forms of callers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from amdattn.arrays.interchange import as_view
from amdattn.arrays.views import View
from amdattn.dtypes import DType
from amdattn.errors import UnsupportedProblem
from amdattn.op.colocation import colocated, view_colocated

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The type of such caches in libraries without an 8-bit float.
BYTES = "uint8"
_SOME = 50021  # a prime, so that no two rows are equal


@dataclass(frozen=True, slots=True)
class AsQuantized:
    """Reads a cache of 8-bit floats."""

    dtype: DType

    def __call__(self, array: Any, label: str, ordinal: int | None, stream: int) -> View:
        """Return a view of the cache with elements of `dtype`, also if it has bytes."""
        view = as_view(array, label, stream)
        if view.dtype.name != BYTES:
            return view
        host = None if view.array is None else view.array.view(self.dtype.numpy())
        return replace(view, dtype=self.dtype, array=host)


@dataclass(frozen=True, slots=True)
class AsScales:
    """Reads scales of heads: an array with one for each, or with one for all.

    They may also be (batch, heads) with equal rows, as in FlashAttention-3: on the host rows are
    compared, and on the device the stride must be 0, as in an expanded array.
    """

    heads: int
    batch: int

    def __call__(self, array: Any, label: str, ordinal: int | None, stream: int) -> View:
        """Return a view of the scales as (heads, 1)."""
        import numpy as np

        view = as_view(array, label, stream)
        shape = (self.heads, 1)
        if view.shape != shape and view.shape == (self.batch, self.heads):
            view = self._of_all_sequences(view, label)
        of_each = view.shape == (self.heads,)
        if view.shape == shape:
            return colocated(view, label, ordinal, stream)
        if not of_each and view.shape not in ((), (1,)):
            raise ValueError(
                f"{label} has shape {view.shape}; it must be a number, or an array of shape "
                f"({self.heads},), one of each head of the cache, or (1,), or "
                f"({self.batch}, {self.heads}) with equal rows"
            )
        step = view.strides[0] if of_each else 0
        host = view.array
        if host is not None:
            host = np.ascontiguousarray(np.broadcast_to(host.reshape(-1, 1), shape))
            return view_colocated(host, label, ordinal, stream)
        return replace(view, shape=shape, strides=(step, 1))

    def _of_all_sequences(self, view: View, label: str) -> View:
        """The first of equal rows."""
        host = view.array
        if host is not None:
            if not (host == host[:1]).all():
                raise UnsupportedProblem(
                    f"{label} has other scales for each sequence, which is not built (have one of "
                    "each head for all sequences)"
                )
            return replace(view, array=host[0], shape=view.shape[1:], strides=view.strides[1:])
        if view.strides[0] != 0 and self.batch > 1:
            raise UnsupportedProblem(
                f"{label} has shape {view.shape} and strides {view.strides} on the device, where "
                "scales of each sequence are not built (have one of each head for all sequences: "
                f"shape ({self.heads},), or rows that are the same memory, of stride 0)"
            )
        return replace(view, shape=view.shape[1:], strides=view.strides[1:])


def ones(heads: int) -> NDArray[Any]:
    """Scales that change nothing."""
    import numpy as np

    return np.ones((heads, 1), np.float32)


def normal(shape: tuple[int, ...], dtype: DType) -> NDArray[Any]:
    """Normally distributed numbers for a cache, which repeat."""
    import numpy as np

    some = np.random.default_rng(0).standard_normal(_SOME, np.float32)
    return np.resize(some.astype(dtype.numpy()), shape)
