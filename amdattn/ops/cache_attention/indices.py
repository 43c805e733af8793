"""Reads lengths, sequences and pages of a cache in the forms of callers; kernels read int32."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amdattn import scalars
from amdattn.arrays.interchange import as_view
from amdattn.arrays.views import View
from amdattn.op.indices import on_device, placed, private
from amdattn.ops.cache_attention.decode_problem import DecodeProblem
from amdattn.scalars import INT32_MAX, INT32_MIN

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class IndexCheck:
    """Reads an array of indices of one operand.

    Attributes
    ----------
    shape : tuple of int
    most : int
        The greatest allowed value on the host, where the least is 0; -1: no limit.
    why : str
        What this limit is, for messages.
    total : int
        The greatest allowed sum on the host; -1: no limit.
    why_total : str
    least : int
        The least allowed value on the host.
    why_least : str
    differ : str
        The reason why no two values on the host may be equal; "": they may.
    """

    shape: tuple[int, ...]
    most: int = -1
    why: str = ""
    total: int = -1
    why_total: str = ""
    least: int = 0
    why_least: str = ""
    differ: str = ""

    def __call__(self, array: Any, label: str, ordinal: int | None, stream: int) -> View:
        """Return a view of the indices as int32, on the device of q if q is on one."""
        if isinstance(array, int) or getattr(array, "shape", None) == ():
            array = _of_all(scalars.integer(label, array), label, self.shape)
        view = as_view(private(array, label), label, stream)
        kind = view.dtype.name
        if view.shape != self.shape or not kind.startswith(("int", "uint")):
            raise ValueError(
                f"{label} has shape {view.shape} and dtype {kind}; it must be int32 or int64 of "
                f"shape {self.shape}"
            )
        if view.array is None:
            return on_device(view, label, stream, INT32_MIN, INT32_MAX)
        self._check(view.array, label)
        # Values without a limit may be unused, and may exceed int32.
        return placed(view.array, label, ordinal, stream)

    def _check(self, host: NDArray[Any], label: str) -> None:
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
        if self.differ:
            first: dict[int, int] = {}
            for i, value in enumerate(host.tolist()):
                if value in first:
                    raise ValueError(
                        f"{label}[{i}]={value} is {label}[{first[value]}], too: {self.differ}"
                    )
                first[value] = i


def check_values(values: NDArray[Any], label: str, most: int, why: str) -> None:
    """Raise ValueError unless indices on the host are in ``0..most``."""
    wrong = (values < 0) | (values > most)
    if wrong.any():
        at = tuple(int(i[0]) for i in wrong.nonzero())
        raise ValueError(
            f"{label}[{', '.join(map(str, at))}]={values[at]} must be in 0..{most}, {why}"
        )


# Operands that determine which pages are used.
COUNTED = ("block_table", "cache_seqlens", "cu_seqlens_q", "cu_seqlens_kv")


def check_pages(given: Mapping[str, Any], problem: DecodeProblem) -> None:
    """Raise ValueError if pages on the host that are used do not exist.

    Pages are used if some query sees them or keys are appended to them. If lengths are not known on
    the host, every entry must be a page or -1, which stands for none. The operands must be
    `private`.
    """
    import numpy as np

    p = problem
    pages = _on_host(given["block_table"]) if p.page_size else None
    if pages is None or pages.ndim != len(("batch", "page")):
        return
    why = "the pages of k_cache"
    lengths = given["cache_seqlens"]
    if p.has_key_sums:
        lengths = _differences(given["cu_seqlens_kv"])
    counts = np.full(1, p.seqlen_kv - p.seqlen_new) if lengths is None else _on_host(lengths)
    if counts is None or counts.size not in (1, len(pages)):
        check_values(np.where(pages == -1, 0, pages), "block_table", p.num_pages - 1, why)
        return
    counts = counts.reshape(-1, 1).astype(np.int64)
    left, _ = p.window
    ends, begins = counts + p.seqlen_new, np.zeros_like(counts)
    if left >= 0:
        chunks = _on_host(_differences(given["cu_seqlens_q"]) if p.is_ragged else p.seqlen_q)
        queries = np.ones((1, 1), np.int64) if chunks is None else chunks.reshape(-1, 1)
        begins = np.maximum(ends - queries - left, 0)
    if p.seqlen_new:
        begins = np.minimum(begins, counts)
    nth = np.arange(pages.shape[1])
    used = (nth < -(-ends // p.page_size)) & (nth >= begins // p.page_size)
    check_values(np.where(used, pages, 0), "block_table", p.num_pages - 1, why)


def _on_host(array: Any) -> NDArray[Any] | None:
    """The array of a `private` operand if it is on the host, else None."""
    import numpy as np

    if isinstance(array, (int, np.integer)):
        return np.asarray(array)
    return array if isinstance(array, np.ndarray) else None


def _differences(sums: Any) -> Any:
    """Lengths from cumulative sums on the host; other sums are returned unchanged."""
    import numpy as np

    return np.diff(sums) if isinstance(sums, np.ndarray) else sums


def _of_all(value: int, label: str, shape: tuple[int, ...]) -> NDArray[np.int32]:
    """An array of the number that a caller gives for all sequences."""
    if len(shape) != 1:
        raise TypeError(f"{label}={value} must be an array of shape {shape}")
    if abs(value) > INT32_MAX:
        raise ValueError(f"{label}={value} must be in 0..{INT32_MAX}")
    import numpy as np

    return np.full(shape[0], value, np.int32)
