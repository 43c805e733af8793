"""Layouts of a cache of keys and values by name: shapes, axes, and conversion to rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amdattn import scalars

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Adjacent bytes that kernels load at a time.
CHUNK_BYTES = 16


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """Axes of one of the caches, the last one with stride 1.

    Attributes
    ----------
    axes : tuple of str
        "page", "seq" (keys of a page), "head", "column" (of a head). If an axis is split into
        chunks of 16 bytes, "seq_chunk" or "column_chunk" is the axis of the chunks, and the axis
        itself that of the elements of a chunk.
    """

    axes: tuple[str, ...]

    def shape(self, sizes: Mapping[str, int], chunk: int) -> tuple[int, ...]:
        """The shape for sizes by axis ("page", ...), with `chunk` elements in 16 bytes."""
        chunked = {axis.removesuffix("_chunk") for axis in self.axes if axis.endswith("_chunk")}
        whole = {f"{axis}_chunk": sizes[axis] // chunk for axis in chunked}
        parts = {**sizes, **whole, **dict.fromkeys(chunked, chunk)}
        return tuple(parts[axis] for axis in self.axes)

    def sizes(self, shape: tuple[int, ...]) -> dict[str, int]:
        """The inverse of `shape`: pages, keys, heads and columns of an array in the layout."""
        found = dict(zip(self.axes, shape, strict=True))
        return {
            axis: found[axis] * found.get(f"{axis}_chunk", 1)
            for axis in ("page", "seq", "head", "column")
        }

    def text(self, is_paged: bool) -> str:
        """The axes for messages."""
        first = {"page": "pages", "seq": "page size"} if is_paged else {"page": "batch"}
        usual = {"seq": "seqlen", "head": "num_heads", "column": "head_dim", **first}
        known = [usual.get(axis.removesuffix("_chunk"), axis) for axis in self.axes]
        chunked = [axis for axis in self.axes if axis.endswith("_chunk")]
        return ", ".join(
            f"{name} / x" if axis in chunked else "x" if f"{axis}_chunk" in chunked else name
            for axis, name in zip(self.axes, known, strict=True)
        )

    @property
    def _parts(self) -> list[str]:
        """The axes in the order of the elements of rows."""
        both = [part for axis in _ROWS.axes for part in (f"{axis}_chunk", axis)]
        return [part for part in both if part in self.axes]

    def rows(self, cache: NDArray[Any]) -> NDArray[Any]:
        """The elements of a cache as (page, seq, head, column)."""
        sizes = self.sizes(cache.shape)
        ordered = cache.transpose([self.axes.index(part) for part in self._parts])
        return ordered.reshape([sizes[axis] for axis in _ROWS.axes])

    def of_rows(self, rows: NDArray[Any], chunk: int) -> NDArray[Any]:
        """The inverse of `rows`: the array of the cache with these rows."""
        shape = self.shape(dict(zip(_ROWS.axes, rows.shape, strict=True)), chunk)
        of_part = dict(zip(self.axes, shape, strict=True))
        split = rows.reshape([of_part[part] for part in self._parts])
        return split.transpose([self._parts.index(axis) for axis in self.axes])


_ROWS = CacheLayout(("page", "seq", "head", "column"))
_PACKED_K = CacheLayout(("page", "head", "column_chunk", "seq", "column"))
_PACKED_V = CacheLayout(("page", "head", "column", "seq"))
_SHUFFLED_V = CacheLayout(("page", "head", "seq_chunk", "column", "seq"))

# Layouts of k_cache and of v_cache, by name.
LAYOUTS: Mapping[str, Mapping[str, CacheLayout]] = {
    "NHD": {"k_cache": _ROWS, "v_cache": _ROWS},
    "packed": {"k_cache": _PACKED_K, "v_cache": _PACKED_V},
    "shuffled": {"k_cache": _PACKED_K, "v_cache": _SHUFFLED_V},
}


def layouts_named(name: str, is_paged: bool) -> Mapping[str, CacheLayout]:
    """The layouts of k_cache and v_cache; raises ValueError for an unknown name, or without pages.

    Only "NHD" is possible without pages.
    """
    name = scalars.word("kv_layout", name)
    if name not in LAYOUTS:
        raise ValueError(f"kv_layout={name!r} must be one of {', '.join(LAYOUTS)}")
    if name != "NHD" and not is_paged:
        raise ValueError(f"kv_layout={name!r} is of caches with pages; block_table must be given")
    return LAYOUTS[name]
