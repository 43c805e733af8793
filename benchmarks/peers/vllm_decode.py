"""How to launch the split-KV decode kernels of vLLM that the user's Triton compiled.

A directory has code objects NAME.hsaco, compiled from `_fwd_grouped_kernel_stage1` and
`_fwd_kernel_stage2` of vllm/attention/ops/triton_decode_attention.py with the constants and options
that vLLM gives them on ROCm, bfloat16 and 128 columns, for pages of 16 and rows of the table of
131072 keys, with NAME.json beside each: the fields of `Compiled`. The first attends over parts of
the keys of every sequence, the second merges them. Nothing of theirs is copied here.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import amdattn
from amdattn.bench.kernels import Launch
from benchmarks.decode_shapes import DTYPE, HEAD_DIM, Shape
from benchmarks.peers.paged import Attempt, Operands

KINDS = ("parts", "sum")
_LANES_PER_WAVE = 64
_TILE_HEADS = 16  # of q that a workgroup of the first takes, at most
_SCRATCH = bytes(16)  # two addresses that Triton's compiler appends, unused
_MOST_PER_CU = 16  # workgroups, of numbers of splits that are tried beside the least
# What offsets of 32 bits reach, and so the kernels.
_MOST_BYTES = 2**31 - 1


@dataclass(frozen=True)
class Compiled:
    """One code object and what it was compiled for.

    Attributes
    ----------
    kind : str
        Of `KINDS`.
    group, heads_q, heads_kv, splits, page_size : int
    waves : int
        Of a workgroup.
    lds : int
        Its dynamic LDS in bytes.
    """

    path: Path
    kind: str
    group: int
    heads_q: int
    heads_kv: int
    splits: int
    page_size: int
    symbol: str
    waves: int
    lds: int

    def launch(self, grid: tuple[int, int, int], block: bytes) -> Launch:
        """Of a packed argument block."""
        block += bytes(-len(block) % 8) + _SCRATCH
        lanes = self.waves * _LANES_PER_WAVE
        image = self.path.read_bytes()
        return Launch(image, self.symbol, grid, (lanes, 1, 1), block, self.lds)


def compiled(directory: Path) -> list[Compiled]:
    """Those of a directory.

    Raises
    ------
    ValueError
        There is none, or a file has other fields.
    """
    found = []
    for file in sorted(directory.glob("*.json")):
        try:
            found.append(Compiled(file.with_suffix(".hsaco"), **json.loads(file.read_text())))
        except TypeError as error:
            raise ValueError(f"{file} has not the fields of Compiled: {error}") from None
        if found[-1].kind not in KINDS:
            raise ValueError(f"{file}: kind={found[-1].kind!r} must be one of {KINDS}")
    if not found:
        raise ValueError(f"vllm={directory} has no NAME.json beside NAME.hsaco")
    return found


class SplitKv(Attempt):
    """Both kernels for one number of splits."""

    kv_dtype = DTYPE

    def __init__(self, parts: Compiled, total: Compiled) -> None:
        self._parts, self._sum = parts, total
        self.name, self.page_size = f"{parts.splits} splits", parts.page_size

    def launches(self, shape: Shape, at: Operands) -> tuple[Launch, ...]:
        """Caches and q without gaps; a part is its columns and the log of its sum."""
        splits, lengths = self._parts.splits, at.lengths
        row = HEAD_DIM + 1
        of_parts = shape.heads_q * splits * row, splits * row, row
        of_q, of_cache = shape.heads_q * HEAD_DIM, shape.heads_kv * HEAD_DIM
        # Rows and heads of K, then of V; rows lie one behind the other, whatever the page.
        of_caches = (of_cache, HEAD_DIM) * 2
        first = struct.pack("<3Qf4x", at.q, at.k, at.v, HEAD_DIM**-0.5)
        first += struct.pack("<3Q", at.block_table, lengths, at.parts)
        first += struct.pack("<10i", at.table_stride, of_q, HEAD_DIM, *of_caches, *of_parts)
        second = struct.pack("<3Q", at.parts, at.out, lengths)
        second += struct.pack("<5i", *of_parts, of_q, HEAD_DIM)
        return (
            self._parts.launch((shape.batch, _tiles(shape), splits), first),
            self._sum.launch((shape.batch, shape.heads_q, 1), second),
        )


def attempts(every: list[Compiled], shape: Shape, kv_dtype: str) -> Iterator[SplitKv]:
    """Those that were compiled for the heads of a shape, for splits that are not far too many."""
    if shape.queries > 1 or {shape.dtype, kv_dtype} != {DTYPE} or shape.nbytes // 2 > _MOST_BYTES:
        return
    heads = shape.heads_q, shape.heads_kv
    here = [one for one in every if (one.heads_q, one.heads_kv) == heads]
    sums = {(one.splits, one.page_size): one for one in here if one.kind == "sum"}
    most = _MOST_PER_CU * amdattn.device_props().num_cus
    parts = [one for one in here if one.kind == "parts" and (one.splits, one.page_size) in sums]
    least = min((one.splits for one in parts), default=0)
    for one in parts:
        workgroups = shape.batch * _tiles(shape) * one.splits
        if one.splits == least or workgroups <= most:
            yield SplitKv(one, sums[one.splits, one.page_size])


def _tiles(shape: Shape) -> int:
    """Of heads of q, which share a head of the cache."""
    return -(-shape.heads_q // min(_TILE_HEADS, shape.group))
