"""Lengths, sequences and pages of a cache, in the forms callers have; kernels read int32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amdattn import scalars
from amdattn.arrays.buffers import View, allocate, upload
from amdattn.arrays.dlpack import compact_strides
from amdattn.arrays.interchange import as_view
from amdattn.device import runtime
from amdattn.dtypes import as_dtype
from amdattn.op.beside import refuse_capture
from amdattn.scalars import INT32_MAX

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_INT32 = as_dtype("int32")
_ON_CPU = 1  # kDLCPU


@dataclass(frozen=True, slots=True)
class IndexCheck:
    """Reads an array of indices of one operand.

    Attributes
    ----------
    shape : tuple of int
    most : int
        The greatest value of those on the host, of which the least is 0; -1: any are taken.
    why : str
        What that is, for messages.
    total : int
        The greatest sum of those on the host; -1: any is taken.
    why_total : str
    least : int
        The least value of those on the host.
    why_least : str
    """

    shape: tuple[int, ...]
    most: int = -1
    why: str = ""
    total: int = -1
    why_total: str = ""
    least: int = 0
    why_least: str = ""

    def __call__(self, array: Any, label: str, ordinal: int | None, stream: int) -> View:
        """See indices as int32, on the device of q if it is on one."""
        if isinstance(array, int) or getattr(array, "shape", None) == ():
            array = _of_all(scalars.integer(label, array), label, self.shape)
        elif isinstance(array, (list, tuple, range)):
            array = _listed(array, label)
        view = as_view(array, label, stream)
        self._check_kind(view, label)
        if view.array is None:
            return _on_device(view, label, stream)
        host = view.array
        if self.most >= 0:
            check_values(host, label, self.most, self.why)
        if self.least and (host < self.least).any():
            raise ValueError(
                f"{label}[{int(host.argmin())}]={host.min()} must be at least {self.least}, "
                f"{self.why_least}"
            )
        if self.total >= 0 and (found := int(host.sum(dtype="int64"))) > self.total:
            raise ValueError(
                f"the sum of {label} is {found}; it may be {self.total}, as {self.why_total}"
            )
        # What no value is asked of may be unused, and more than int32 holds.
        host = host.astype("int32", order="C", copy=False)
        if ordinal is None:
            return as_view(host, label, stream)
        refuse_capture(label, "an int32 array", stream)
        return upload(host, runtime.get(ordinal)).view_on(stream)

    def _check_kind(self, view: View, label: str) -> None:
        name = view.dtype.name
        if view.shape != self.shape or not name.startswith(("int", "uint")):
            raise ValueError(
                f"{label} has shape {view.shape} and dtype {name}; it must be int32 or int64 of "
                f"shape {self.shape}"
            )


def spread_pages(shape: tuple[int, int], num_pages: int) -> NDArray[np.int32]:
    """A table whose pages are anywhere in the cache, each once if there are enough."""
    import numpy as np

    order = np.random.default_rng(0).permutation(num_pages)
    return np.resize(order, shape).astype(np.int32)


def alike(value: int, count: int) -> NDArray[np.int32]:
    """The same number for every sequence."""
    import numpy as np

    return np.full(count, value, np.int32)


def in_order(num_pages: int, count: int) -> NDArray[np.int32]:
    """The first sequences of a cache."""
    import numpy as np

    return np.resize(np.arange(num_pages), count).astype(np.int32)


def check_values(values: NDArray[Any], label: str, most: int, why: str) -> None:
    """That indices on the host are in ``0..most``."""
    wrong = (values < 0) | (values > most)
    if wrong.any():
        at = tuple(int(i[0]) for i in wrong.nonzero())
        raise ValueError(
            f"{label}[{', '.join(map(str, at))}]={values[at]} must be in 0..{most}, {why}"
        )


def check_pages(table: Any, lengths: Any, page_size: int, num_pages: int, seqlen_new: int) -> None:
    """That the pages that are used are there, of a table on the host and lengths known there.

    Parameters
    ----------
    table, lengths : array, list, int or None
        As callers give them; lengths None: all pages are used.
    seqlen_new : int
        Keys that are appended to these.
    """
    import numpy as np

    pages = _on_host(table)
    if pages is None or pages.ndim != len(("batch", "page")):
        return
    counts = np.full(1, pages.shape[1] * page_size) if lengths is None else _on_host(lengths)
    if counts is None:
        return
    used = -(-(counts.reshape(-1, 1) + seqlen_new) // page_size)
    unused = np.arange(pages.shape[1]) >= used
    if len(unused) in (1, len(pages)):
        why = "the pages of k_cache"
        check_values(np.where(unused, 0, pages), "block_table", num_pages - 1, why)


def _on_host(array: Any) -> NDArray[Any] | None:
    """An array of what a caller gives, if it is on the host."""
    import numpy as np

    if isinstance(array, (int, list, tuple, range, np.integer)):
        return np.asarray(array)
    place = getattr(array, "__dlpack_device__", None)
    if place is None or place()[0] != _ON_CPU:
        return None
    return as_view(array, "block_table", 0).array


def _of_all(value: int, label: str, shape: tuple[int, ...]) -> NDArray[np.int32]:
    """One number that a caller gives for all sequences."""
    if len(shape) != 1:
        raise TypeError(f"{label}={value} must be an array of shape {shape}")
    if abs(value) > INT32_MAX:
        raise ValueError(f"{label}={value} must be in 0..{INT32_MAX}")
    return alike(value, shape[0])


def _listed(values: Any, label: str) -> NDArray[Any]:
    """Of ints, or of rows of them."""
    import numpy as np

    def read(value: Any) -> Any:
        if isinstance(value, (list, tuple, range)):
            return [read(one) for one in value]
        number = scalars.integer(label, value)
        if abs(number) > INT32_MAX:
            raise ValueError(f"{label} holds {number}; it must be in 0..{INT32_MAX}")
        return number

    try:
        return np.array(read(values), np.int32)
    except ValueError as error:
        raise ValueError(f"{label} is no array of ints: {error}") from None


def _on_device(view: View, label: str, stream: int) -> View:
    """Of device memory; of int64, of which an index is the lower half, too."""
    if view.dtype.name not in ("int32", "int64"):
        raise ValueError(f"{label} has dtype {view.dtype.name}; on the device int32 or int64")
    if view.dtype == _INT32 and (view.strides[-1] == 1 or view.shape[-1] == 1):
        return view
    if view.strides != compact_strides(view.shape) and len(view.shape) > 1:
        raise ValueError(
            f"{label} has strides {view.strides} (elements); on the device the last one must be "
            "1, and int64 without gaps"
        )
    step = view.strides[-1]
    count = view.shape[0] if len(view.shape) == 1 else view.shape[0] * view.shape[1]
    if step <= 0 and count > 1:
        raise ValueError(f"{label} has stride {step}; on the device it must be positive")
    refuse_capture(label, "an int32 array", stream)
    device = runtime.get(view.ordinal)
    made = allocate(view.shape, compact_strides(view.shape), _INT32, stream, device)
    device.copy_rows(
        *(made.address, _INT32.itemsize, view.address, max(step, 1) * view.dtype.itemsize),
        *(_INT32.itemsize, count, stream),
    )
    made.stream = stream
    return made.view_on(stream)
