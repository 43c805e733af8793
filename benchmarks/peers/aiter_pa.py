"""How to launch the assembled paged attention of ROCm/aiter (hsa/<arch>/pa).

Facts from its public sources: csrc/py_itfs_cu/asm_pa.cu, csrc/kernels/cache_kernels.cu and the
table pa_asm.csv beside the code objects. A workgroup takes all keys of a sequence and of a head of
the cache. 128 columns; the scale is always that of 128 columns. Objects that share work by a list
that the host makes ("ps") are not launched: their parts are added by a kernel that is no object.
The checkout is the user's; nothing of it is part of this package.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdattn.bench.kernels import Launch
from amdattn.scalars import LOG2_E
from benchmarks.decode_shapes import HEAD_DIM, Shape
from benchmarks.peers.aiter import rows_of_table
from benchmarks.peers.paged import SCALED, Attempt, Operands

LANES = 256  # of a workgroup
_GROUP_STEP = 8  # to which a group is rounded up if no object has it
_MOST_ROWS = 32  # queries of a sequence times the group of an object
_RUN_BYTES = 16  # of elements that stay together in either cache
_WIDE_BYTES = 2  # of an element that has no scale
_NAMES = {"bf16": "bfloat16", "fp16": "float16", "int8": "int8"}

# Argument blocks are 16-byte slots, each holding one address, unsigned integer or float.
_ADDRESS, _UINT, _FLOAT = "Q8x", "I12x", "f12x"
_SLOTS = (
    ("out", _ADDRESS),
    ("q", _ADDRESS),
    ("k", _ADDRESS),
    ("v", _ADDRESS),
    ("block_table", _ADDRESS),
    ("lengths", _ADDRESS),
    ("k_scales", _ADDRESS),
    ("v_scales", _ADDRESS),
    ("softmax_scale_log2", _FLOAT),
    ("table_stride", _UINT),  # entries; other strides are bytes
    ("num_heads_kv", _UINT),
    ("q_stride", _UINT),
    ("page_stride", _UINT),
    ("head_stride", _UINT),
    ("further_queries", _UINT),
    ("group", _UINT),
    ("cu_queries", _ADDRESS),
)
_BLOCK = struct.Struct("<" + "".join(slot for _, slot in _SLOTS))


@dataclass(frozen=True)
class PagedObject:
    """One row of the table.

    Attributes
    ----------
    dtype, kv_dtype : str
        Of q and of the caches; "fp8" is that of the architecture's matrix instructions.
    group : int
        Heads of q that share one of the cache, at most.
    queries : int
        Of a sequence; 0: any few.
    precision : int
        Of an 8-bit cache: 0, 1 or 2, the greatest.
    """

    path: Path
    symbol: str
    dtype: str
    kv_dtype: str
    group: int
    queries: int
    causal: bool
    precision: int
    page_size: int


def objects(directory: Path, arch: str) -> list[PagedObject]:
    """Those of a checkout that need no list of work.

    Raises
    ------
    ValueError
        The directory is no checkout, or has none for the architecture.
    """
    folder = directory / "hsa" / arch / "pa"
    rows = rows_of_table(directory, folder / "pa_asm.csv")
    return [_read(folder, row) for row in rows if row["ps"] == "0"]


def _read(folder: Path, row: Mapping[str, str]) -> PagedObject:
    # 1: any number of queries; 12 and more: 10 and the number.
    several = int(row["Mtp"])
    queries = 1 if not several else 0 if several == 1 else several - 10
    return PagedObject(
        folder / row["co_name"],
        row["knl_name"],
        _NAMES[row["qType"]],
        _NAMES.get(row["kvType"], row["kvType"]),
        int(row["Gqa"]),
        queries,
        row["Msk"] == "1",
        int(row["Hp"]),
        int(row["blkSz"]),
    )


def attempts(every: list[PagedObject], shape: Shape, kv_dtype: str) -> Iterator[Aiter]:
    """Those that the checkout's launcher would choose among for a shape, of every precision."""
    groups = shape.group, -(-shape.group // _GROUP_STEP) * _GROUP_STEP
    for one in every:
        of_kind = (one.dtype, one.kv_dtype) == (shape.dtype, kv_dtype) and one.group in groups
        is_any = not one.queries and shape.queries > 1 and one.causal
        if is_any and one.group * shape.queries > _MOST_ROWS:
            continue
        if of_kind and (is_any or one.queries == shape.queries):
            yield Aiter(one)


class Aiter(Attempt):
    """One object as an attempt at a step."""

    def __init__(self, kernel: PagedObject) -> None:
        self._kernel = kernel
        self.name, self.kv_dtype = kernel.path.stem, kernel.kv_dtype
        self.page_size = kernel.page_size

    def pack_k(self, pages: NDArray[Any]) -> NDArray[Any]:
        """(pages, heads, dim / x, page_size, x), x elements of 16 bytes."""
        num, size, heads, dim = pages.shape
        x = _RUN_BYTES // pages.itemsize
        split = pages.reshape(num, size, heads, dim // x, x)
        return np.ascontiguousarray(split.transpose(0, 2, 3, 1, 4))

    def pack_v(self, pages: NDArray[Any]) -> NDArray[Any]:
        """(pages, heads, page_size / x, dim, x)."""
        num, size, heads, dim = pages.shape
        x = _RUN_BYTES // pages.itemsize
        split = pages.reshape(num, size // x, x, heads, dim)
        return np.ascontiguousarray(split.transpose(0, 3, 1, 4, 2))

    def launches(self, shape: Shape, at: Operands) -> tuple[Launch, ...]:
        """One, without gaps in any array."""
        kernel, is_scaled = self._kernel, self.kv_dtype in SCALED
        head_stride = kernel.page_size * HEAD_DIM * (1 if is_scaled else _WIDE_BYTES)
        fields: dict[str, int | float] = {
            **{name: getattr(at, name) for name in ("out", "q", "k", "v")},
            **{name: getattr(at, name) for name in ("block_table", "lengths", "table_stride")},
            "k_scales": at.k_scales if is_scaled else 0,
            "v_scales": at.v_scales if is_scaled else 0,
            "softmax_scale_log2": HEAD_DIM**-0.5 * LOG2_E,
            "num_heads_kv": shape.heads_kv,
            "q_stride": shape.heads_q * HEAD_DIM * _WIDE_BYTES,
            "page_stride": shape.heads_kv * head_stride,
            "head_stride": head_stride,
            "further_queries": shape.queries - 1,
            "group": shape.group,
            "cu_queries": at.cu_queries if shape.queries > 1 else 0,
        }
        block = _BLOCK.pack(*(fields[name] for name, _ in _SLOTS))
        grid = (shape.heads_kv, shape.batch, 1)
        image = kernel.path.read_bytes()
        return (Launch(image, kernel.symbol, grid, (LANES, 1, 1), block),)
