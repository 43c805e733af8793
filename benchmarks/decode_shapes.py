"""Shapes of a step of decoding, what one may take, and what ours takes by the model.

A plan is made for MOST_KEYS and used with the lengths of a shape, as serving does. Caches are cold.
Memory of the virtual device takes no space until it is written: only keys that are read are. A
launch is counted nowhere, neither in floors and bars nor in times. Queries and caches hold zeros;
other numbers change times by 1 to 2 % (`benchmarks/inputs_by_family.py`).
"""

from __future__ import annotations

import gc
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import amdattn
from amdattn import virtual
from amdattn.device import runtime
from amdattn.dtypes import as_dtype
from amdattn.ops.cache_attention.decode_plan import DecodePlan

MOST_KEYS = 131072
HEAD_DIM = 128
DTYPE = "bfloat16"
_BYTES = 2
# A step may take so many us more than the floor, or so many times the floor.
_MORE_US, _TIMES = 3.0, 1.15


@dataclass(frozen=True)
class Shape:
    """Sequences with so many keys each; of several queries each sees the keys up to its own."""

    batch: int
    keys: int
    heads_q: int
    heads_kv: int
    queries: int = 1
    dtype: str = DTYPE

    @property
    def group(self) -> int:
        """Heads of q that share one of the cache."""
        return self.heads_q // self.heads_kv

    @property
    def nbytes(self) -> int:
        """Of the keys and values that are read."""
        return 2 * self.batch * self.keys * self.heads_kv * HEAD_DIM * _BYTES

    def device_bytes(self, page_size: int) -> int:
        """That a cache takes, which without pages has room for the longest sequences."""
        return self.nbytes if page_size else self.nbytes // self.keys * MOST_KEYS

    def __str__(self) -> str:
        several = f" {self.queries} queries" * (self.queries > 1)
        return f"b{self.batch} h{self.heads_q}/{self.heads_kv} {self.keys} keys{several}"


@dataclass(frozen=True)
class Floor:
    """What the bound device needs at least: HBM, at the rate that it sustains."""

    bytes_per_us: float
    clock_mhz: int

    def us(self, nbytes: int) -> float:
        """Of so many bytes of keys and values."""
        return nbytes / self.bytes_per_us

    def bar_us(self, nbytes: int) -> float:
        """What a step may take."""
        floor = self.us(nbytes)
        return max(floor + _MORE_US, _TIMES * floor)


def floor() -> Floor:
    """Of the bound device, at its peak clock."""
    props = amdattn.device_props()
    return Floor(props.hbm_bytes_per_ns * 1e3, round(props.peak_clock_ghz * 1e3))


def spread_table(batch: int, keys: int, page_size: int, width: int) -> NDArray[np.int32]:
    """A table of `width` pages a sequence; those that are used lie anywhere in the cache."""
    used = -(-keys // page_size)
    table = np.zeros((batch, width), np.int32)
    table[:, :used] = np.random.default_rng(0).permutation(batch * used).reshape(batch, used)
    return table


def plan_of(
    shape: Shape, page_size: int = 0, most_keys: int = MOST_KEYS, is_quantized: bool = False
) -> DecodePlan:
    """Ours for lengths that the device has, up to `most_keys`; of a cache of 8-bit floats."""
    props = amdattn.device_props()
    used = -(-shape.keys // page_size) if page_size else 0
    return amdattn.plan_decode(
        *(shape.batch, shape.queries, most_keys, shape.heads_q, shape.heads_kv, HEAD_DIM),
        device=props,
        dtype=shape.dtype,
        kv_dtype=props.architecture.fp8 if is_quantized else "",
        causal=shape.queries > 1,
        cache_seqlens=True,
        page_size=page_size,
        num_pages=shape.batch * used if page_size else shape.batch,
    )


def zeros_of_keys(cache: tuple[int, ...], dtype: str, keys: int) -> amdattn.DeviceArray:
    """A cache whose first keys, of each page or sequence, are zeros: of NaNs all is done twice.

    The rest is not written: a cache without pages has room for far more than this machine.
    """
    array = amdattn.empty(cache, dtype)
    zeros = np.zeros((min(keys, cache[1]), *cache[2:]), as_dtype(dtype).numpy())
    step = zeros.nbytes // len(zeros) * cache[1]
    for page in range(cache[0]):
        runtime.get().upload(array.address + page * step, zeros.ctypes.data, zeros.nbytes)
    return array


def ours_us(
    shape: Shape,
    page_size: int,
    clock_mhz: int,
    most_keys: int = MOST_KEYS,
    is_quantized: bool = False,
) -> float:
    """Modelled time of a step, a launch not counted."""
    plan = plan_of(shape, page_size, most_keys, is_quantized)
    p = plan.problem
    rows = p.batch, p.seqlen_q, p.num_heads_q, HEAD_DIM
    out = amdattn.empty(rows, p.dtype)
    cache = p.num_pages, p.page_keys, p.num_heads_kv, HEAD_DIM
    q = amdattn.asarray(np.zeros(rows, as_dtype(p.dtype).numpy()))
    k, v = (zeros_of_keys(cache, p.kv_dtype, shape.keys) for _ in range(2))
    lengths = amdattn.asarray(np.full(p.batch, shape.keys, np.int32))
    table = None
    if page_size:
        pages = spread_table(p.batch, shape.keys, page_size, p.pages_of_sequence)
        table = amdattn.asarray(pages)
    workspace = plan.new_workspace()
    with virtual.profile(clock_mhz=clock_mhz) as profile:
        plan.run(
            *(q, k, v),
            cache_seqlens=lengths,
            block_table=table,
            out=out,
            workspace=workspace,
        )
        runtime.synchronize()
    (launch,) = profile.launches
    del q, k, v, out, workspace
    gc.collect()  # before the next shape's caches are made
    return launch.cycles / clock_mhz
