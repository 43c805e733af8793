"""Reads cumulative sequence lengths in the forms of callers; kernels read int32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amdattn.arrays.interchange import as_view
from amdattn.arrays.views import View
from amdattn.op.indices import on_device, placed, private

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SumsOfLengths:
    """Makes a compact int32 view of ``cu_seqlens``, on the device of q if q is on one.

    ``cu_seqlens`` is a list, or an array of int32 or int64, or of any integers on the host. On the
    host it is read once, checked, and copied to the device if necessary. On a device, 64-bit sums
    below 0 or beyond the rows are clamped to these.

    Attributes
    ----------
    total, longest : int
        The number of rows, and the greatest length that the caller declares.
    """

    total: int
    longest: int

    def __call__(self, sums: Any, name: str, ordinal: int | None, stream: int) -> View:
        """The view of the sums."""
        view = as_view(private(sums, name, nested=False), name, stream)
        is_integer = view.dtype.name.startswith(("int", "uint"))
        if len(view.shape) != 1 or view.shape[0] < 1 or not is_integer:
            raise ValueError(
                f"{name} has shape {view.shape} and dtype {view.dtype.name}; it must be int32 or "
                "int64 of shape (num_sequences + 1,)"
            )
        if view.array is None:
            return on_device(view, name, stream, 0, self.total)
        check_sums(view.array, name, self.total, self.longest)
        return placed(view.array, name, ordinal, stream)


def check_sums(sums: NDArray[Any], name: str, total: int, longest: int) -> None:
    """Check that sums start at 0, do not decrease, and respect the rows and the declared length."""
    wide: NDArray[np.object_] = sums.astype(object)  # also sums of uint64 and of huge int64 differ
    lengths = wide[1:] - wide[:-1]
    if wide[0] != 0 or (lengths < 0).any() or wide[-1] > total:
        raise ValueError(
            f"{name}={sums.tolist()} must begin with 0, never fall and end with at most {total}, "
            "the rows there are"
        )
    if lengths.max(initial=0) > longest:
        raise ValueError(
            f"{name} has a sequence of {lengths.max()} rows; the greatest length was given as "
            f"{longest}"
        )
