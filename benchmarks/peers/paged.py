"""Attention over a cache in pages as peers run it: operands, what is right, modelled times.

Times are of memory that nobody wrote: no number changes what these kernels of others take.
"""

from __future__ import annotations

import abc
import contextlib
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import amdattn
from amdattn import virtual
from amdattn.bench.kernels import Functions, Launch
from amdattn.device import runtime
from amdattn.dtypes import as_dtype
from benchmarks.decode_shapes import HEAD_DIM, MOST_KEYS, Shape, spread_table

Array = NDArray[Any]
FP8 = "fp8"  # that of the architecture's matrix instructions
# Elements of a cache that have a scale.
SCALED = (FP8, "int8")
_FP8 = {"gfx942": ml_dtypes.float8_e4m3fnuz, "gfx950": ml_dtypes.float8_e4m3fn}
_FP8_MAX = {"gfx942": 240, "gfx950": 448}
# Of parts of results that some peers need, for the most splits.
_MOST_PARTS = 128
_FURTHER = 1  # beside the columns of a part


def numpy_dtype(name: str, arch: str) -> Any:
    """Of an element by its name here."""
    return np.dtype(_FP8[arch]) if name == FP8 else np.dtype(as_dtype(name).numpy())


@dataclass(frozen=True)
class Operands:
    """Addresses of what launches read and write, and the entries of a row of the table."""

    out: int
    q: int
    k: int
    v: int
    block_table: int
    lengths: int
    k_scales: int
    v_scales: int
    cu_queries: int
    parts: int
    table_stride: int


class Attempt(abc.ABC):
    """One way of a peer to do a step: its launches, and how it has the caches."""

    name: str
    kv_dtype: str
    page_size: int

    @abc.abstractmethod
    def launches(self, shape: Shape, at: Operands) -> tuple[Launch, ...]:
        """As the peer's own launcher would make them."""

    def pack_k(self, pages: Array) -> Array:
        """(pages, page_size, heads, dim) as it has K."""
        return pages

    def pack_v(self, pages: Array) -> Array:
        """The same of V."""
        return pages


class Memory(contextlib.ExitStack):
    """Device memory for the operands of a shape, freed at the end of a `with` block."""

    def __init__(self) -> None:
        super().__init__()
        self._device = runtime.get()

    def reserved(self, nbytes: int) -> int:
        """Address of memory that is not written."""
        address = self._device.malloc(nbytes)
        self.callback(self._device.free, address)
        return address

    def holding(self, array: Array) -> int:
        """Address of a copy."""
        array = np.ascontiguousarray(array)
        address = self.reserved(array.nbytes)
        self._device.upload(address, array.ctypes.data, array.nbytes)
        runtime.synchronize()
        return address

    def indices(self, shape: Shape, lengths: Array, table: Array) -> dict[str, int]:
        """Operands that have to be right for any launch, and memory for parts of results."""
        ends = np.arange(shape.batch + 1, dtype=np.int32) * shape.queries
        parts = shape.batch * shape.heads_q * _MOST_PARTS * (HEAD_DIM + _FURTHER) * 4
        return {
            "block_table": self.holding(table),
            "lengths": self.holding(lengths),
            "cu_queries": self.holding(ends),
            "parts": self.reserved(parts),
            "table_stride": table.shape[1],
        }


def modelled_us(attempt: Attempt, shape: Shape, functions: Functions, clock_mhz: int) -> float:
    """Of all launches, caches cold before the first; launching them is not counted."""
    arch = amdattn.device_props().arch
    rows = shape.batch * shape.queries * shape.heads_q * HEAD_DIM
    pages = shape.batch * -(-shape.keys // attempt.page_size)
    scales = pages * attempt.page_size * shape.heads_kv * 4
    cache = scales // 4 * HEAD_DIM * numpy_dtype(attempt.kv_dtype, arch).itemsize
    sizes = {"q": 2 * rows, "out": 2 * rows, "k": cache, "v": cache}
    sizes |= {"k_scales": scales, "v_scales": scales}
    width = MOST_KEYS // attempt.page_size
    table = spread_table(shape.batch, shape.keys, attempt.page_size, width)
    with Memory() as memory:
        at = Operands(
            **{name: memory.reserved(nbytes) for name, nbytes in sizes.items()},
            **memory.indices(shape, np.full(shape.batch, shape.keys, np.int32), table),
        )
        with virtual.profile(clock_mhz=clock_mhz) as profile:
            for launch in attempt.launches(shape, at):
                launch.enqueue(functions)
            runtime.synchronize()
    return sum(launch.cycles for launch in profile.launches) / clock_mhz


@dataclass(frozen=True)
class Problem:
    """Random rows of a few sequences, and what attention makes of them.

    Attributes
    ----------
    q : (batch * queries, heads_q, dim)
    k, v : (pages, page_size, heads_kv, dim)
    k_scales, v_scales : float32, (pages, heads_kv, page_size)
        Of 8-bit caches; else ones.
    """

    shape: Shape
    q: Array
    k: Array
    v: Array
    k_scales: Array
    v_scales: Array
    table: Array
    lengths: Array

    @property
    def expected(self) -> NDArray[np.float64]:
        """In float64."""
        shape, page_size = self.shape, self.k.shape[1]
        out = np.empty(self.q.shape, np.float64)
        for b, length in enumerate(self.lengths.tolist()):
            position = np.arange(length)
            at = self.table[b, position // page_size], position % page_size
            k, v = (
                x[at].astype(np.float64) * scales.swapaxes(1, 2)[at][..., None]
                for x, scales in ((self.k, self.k_scales), (self.v, self.v_scales))
            )
            for i in range(shape.queries):
                seen = length - shape.queries + 1 + i
                row = b * shape.queries + i
                q = self.q[row].astype(np.float64).reshape(shape.heads_kv, shape.group, -1)
                scores = np.einsum("hgd,khd->hgk", q, k[:seen]) / np.sqrt(HEAD_DIM)
                weights = np.exp(scores - scores.max(-1, keepdims=True))
                weights /= weights.sum(-1, keepdims=True)
                out[row] = np.einsum("hgk,khd->hgd", weights, v[:seen]).reshape(shape.heads_q, -1)
        return out


def random_problem(
    shape: Shape, lengths: list[int], kv_dtype: str, page_size: int, width: int = 0
) -> Problem:
    """Normally distributed rows; pages anywhere; 8-bit ones with a scale for every key and head."""
    arch, rng = amdattn.device_props().arch, np.random.default_rng(sum(lengths))
    used = -(-max(lengths) // page_size)
    pages = shape.batch * used
    q = rng.standard_normal((shape.batch * shape.queries, shape.heads_q, HEAD_DIM))
    kv = rng.standard_normal((2, pages, page_size, shape.heads_kv, HEAD_DIM))
    scales = np.ones(kv.shape[:-1], np.float32)
    element = numpy_dtype(kv_dtype, arch)
    if kv_dtype in SCALED:
        greatest = 127 if kv_dtype == "int8" else _FP8_MAX[arch]
        # Up to half of the range is unused, so that scales are no function of what is in a row.
        scales = (np.abs(kv).max(-1) / greatest * rng.uniform(1, 2, scales.shape)).astype("f4")
        kv /= scales[..., None]
    if kv_dtype == "int8":
        kv = np.rint(kv)
    k, v = kv.astype(element)
    k_scales, v_scales = np.ascontiguousarray(scales.swapaxes(2, 3))
    table = spread_table(shape.batch, max(lengths), page_size, width or used)
    made = q.astype(numpy_dtype(shape.dtype, arch))
    return Problem(shape, made, k, v, k_scales, v_scales, table, np.array(lengths, np.int32))


def result(attempt: Attempt, problem: Problem, functions: Functions) -> Array:
    """What an attempt makes of a problem; elements that it does not write are NaN."""
    out = np.full_like(problem.q, np.nan)
    with Memory() as memory:
        at = Operands(
            out=memory.holding(out),
            q=memory.holding(problem.q),
            k=memory.holding(attempt.pack_k(problem.k)),
            v=memory.holding(attempt.pack_v(problem.v)),
            k_scales=memory.holding(problem.k_scales),
            v_scales=memory.holding(problem.v_scales),
            **memory.indices(problem.shape, problem.lengths, problem.table),
        )
        for launch in attempt.launches(problem.shape, at):
            launch.enqueue(functions)
        runtime.get().download(out.ctypes.data, at.out, out.nbytes)
        runtime.synchronize()
    return out


def worst_error(out: Array, expected: Array) -> float:
    """Greatest error of a row, rms over rms of what is expected; NaN if any element is."""
    difference = out.astype(np.float64) - expected
    rows = (difference**2).mean(-1) / (expected**2).mean(-1)
    return float(np.sqrt(rows.max()))
