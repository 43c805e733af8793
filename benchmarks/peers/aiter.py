"""How to launch the assembled attention forward kernels of ROCm/aiter (hsa/<arch>/fmha_v3_fwd).

Facts from its public sources: csrc/include/mha_fwd.h, csrc/cpp_itfs/mha_fwd.cu and the table
fmha_fwd.csv beside the code objects: head_dim 128, and 192 with values of 128.
The checkout is the user's; nothing of it is part of this package.
"""

from __future__ import annotations

import csv
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from amdattn.bench.kernels import Launch, Operands, Walk
from amdattn.bench.shapes import Shape
from amdattn.device import runtime
from benchmarks.peers.one_launch import OneLaunch, grid_indices, kv_range_of_tiles, streams

ARCH = "gfx942"
# Where an architecture's objects are, in its table's folder.
_FOLDERS = {"gfx942": "MI300", "gfx950": "."}
HEAD_DIM = 128  # of V
HEAD_DIMS = (128, 192)  # of Q and K
LANES, WIDE_LANES = 512, 256  # of a workgroup, the latter for 192
ROUNDINGS = {"rtne": 0, "rtna": 1, "rtz": 2}  # of probabilities to bfloat16
NO_MASK, CAUSAL = 0, 2
FP8 = "fp8bf16"  # Q, K and V; the result is bfloat16
_KV_TILE = 64  # two of the table's: the loop is unrolled twice
_UINT_MAX = 2**32 - 1

# Argument blocks are 16-byte slots, each holding one address, unsigned integer or float.
_ADDRESS, _UINT, _FLOAT = "Q8x", "I12x", "f12x"
_SLOTS = (
    ("o", _ADDRESS),
    ("q", _ADDRESS),
    ("k", _ADDRESS),
    ("v", _ADDRESS),
    ("lse", _ADDRESS),
    ("softmax_scale", _FLOAT),
    ("seqlen_q", _UINT),
    ("q_stride_seq", _UINT),  # strides are bytes
    ("q_stride_tile", _UINT),
    ("q_stride_head", _UINT),
    ("q_stride_batch", _UINT),
    ("q_heads_per_kv_head", _UINT),
    ("k_stride_seq", _UINT),
    ("k_stride_head", _UINT),
    ("k_stride_batch", _UINT),
    ("tuning", _UINT),
    ("writes_lse", _UINT),
    ("seqlen_kv", _UINT),
    ("head_dim", _UINT),
    ("head_dim_v", _UINT),
    ("num_heads_q", _UINT),
    ("v_stride_seq", _UINT),
    ("v_stride_head", _UINT),
    ("v_stride_batch", _UINT),
    ("o_stride_seq", _UINT),
    ("o_stride_head", _UINT),
    ("o_stride_batch", _UINT),
    ("cu_seqlens_q", _ADDRESS),
    ("cu_seqlens_kv", _ADDRESS),
    ("lse_stride_head", _UINT),
    ("cu_seqlens_q_padded", _ADDRESS),
    ("cu_seqlens_kv_padded", _ADDRESS),
    ("q_descale", _ADDRESS),
    ("k_descale", _ADDRESS),
    ("v_descale", _ADDRESS),
    ("q_descale_stride_batch", _UINT),
    ("q_descale_stride_head", _UINT),
    ("k_descale_stride_batch", _UINT),
    ("k_descale_stride_head", _UINT),
    ("v_descale_stride_batch", _UINT),
    ("v_descale_stride_head", _UINT),
)
_BLOCK = struct.Struct("<" + "".join(slot for _, slot in _SLOTS))


def rows_of_table(directory: Path, file: Path) -> list[dict[str, str]]:
    """A table of objects; ValueError if the directory, which has to hold it, is no checkout."""
    if not file.is_file():
        raise ValueError(
            f"aiter={directory} is no checkout of ROCm/aiter: no {file}; "
            "git clone https://github.com/ROCm/aiter"
        )
    with open(file, newline="", encoding="utf-8") as rows:
        return list(csv.DictReader(rows))


class CodeObject:
    """A forward kernel of a checkout, for MI300X or for MI355X.

    Those for MI355X round to nearest even only, by hardware.

    Raises
    ------
    ValueError
        The directory is no checkout, or its table has no such kernel.
    """

    def __init__(
        self,
        directory: Path,
        round_mode: str,
        causal: bool,
        varlen: bool,
        head_dim: int = HEAD_DIM,
        arch: str = ARCH,
        dtype: str = "bf16",
    ) -> None:
        table = directory / "hsa" / arch / "fmha_v3_fwd"
        wanted = {
            "dtype": dtype,
            "hdim_q": str(head_dim),
            "hdim_v": str(max(head_dim, HEAD_DIM) if dtype == FP8 else HEAD_DIM),
            "mask": str(CAUSAL if causal else NO_MASK),
            "mode": str(int(varlen)),
            "bf16_cvt": str(ROUNDINGS[round_mode]),
        }
        file = table / "fmha_fwd.csv"
        found = [row for row in rows_of_table(directory, file) if wanted.items() <= row.items()]
        if len(found) != 1:
            raise ValueError(f"{file} has {len(found)} rows of {wanted}, not one")
        (row,) = found
        self.q_tile = int(row["ts_qo"])
        self.symbol = row["knl_name"]
        self.image = (table / _FOLDERS[arch] / row["co_name"]).read_bytes()
        self._causal, self._varlen = causal, varlen
        wide = dtype != FP8 and head_dim != HEAD_DIM
        self.lanes = WIDE_LANES if wide else LANES
        # Such a kernel takes one tile of Q a workgroup, and has no order of its own.
        self.heads_first = wide and arch == ARCH

    @property
    def pairs(self) -> bool:
        """Whether a workgroup takes a tile of Q from either end."""
        return self._causal and not self.heads_first

    def tuning(self, num_heads_q: int, seqlen_q: int) -> int:
        """How the checkout's launcher wants workgroups ordered."""
        if self.heads_first:
            return 0
        uneven = self._causal and (num_heads_q % 8 != 0 or seqlen_q > 16384)
        return 3 if uneven else 5

    def grid(self, batch: int, num_heads_q: int, seqlen_q: int) -> tuple[int, int, int]:
        """Workgroups."""
        tiles = -(-seqlen_q // self.q_tile)
        if self.pairs:
            tiles = -(-tiles // 2)
        if self._varlen:
            return num_heads_q, batch, tiles
        if self.heads_first:
            return num_heads_q, tiles, batch
        return tiles, num_heads_q, batch


def pack(fields: Mapping[str, int | float]) -> bytes:
    """The argument block; fields that are not given are 0."""
    unknown = set(fields) - {name for name, _ in _SLOTS}
    if unknown:
        raise ValueError(f"fields {sorted(unknown)} are not among {[name for name, _ in _SLOTS]}")
    return _BLOCK.pack(*(fields.get(name, 0) for name, _ in _SLOTS))


class Aiter(OneLaunch):
    """Those kernels as a benchmark runs them, without a log-sum-exp."""

    peer = "aiter"
    causal_granule = 512

    def __init__(self, directory: Path, round_mode: str) -> None:
        self.round_mode = round_mode
        self._arch = runtime.device_props().arch
        if self._arch not in _FOLDERS:
            raise ValueError(f"device {self._arch} is not among {list(_FOLDERS)}")
        self._objects = {
            (head_dim, causal): CodeObject(
                *(directory, round_mode, causal, False, head_dim), arch=self._arch
            )
            for head_dim in HEAD_DIMS
            for causal in (False, True)
        }

    def refusal(self, shape: Shape) -> str:
        """Which argument it does not take."""
        arch = runtime.device_props().arch
        if arch != self._arch:
            return f"device {arch} is not {self._arch}"
        if shape.head_dim not in HEAD_DIMS or shape.head_dim_v != HEAD_DIM:
            return (
                f"head_dim={shape.head_dim} and head_dim_v={shape.head_dim_v} are not "
                f"{' or '.join(map(str, HEAD_DIMS))} and {HEAD_DIM}"
            )
        if shape.window != (-1, -1) or shape.sinks:
            return f"window={shape.window} and sinks={shape.sinks}: it has neither"
        largest = max(shape.strides(x)["batch"] * 2 for x in "qkvo")
        if largest > _UINT_MAX:
            return f"a batch entry of {largest} bytes does not fit its 32-bit strides"
        return ""

    def launch(self, shape: Shape, operands: Operands) -> Launch:
        """As the checkout's own launcher makes it."""
        kernel = self._objects[shape.head_dim, shape.causal]
        fields: dict[str, int | float] = {
            **{name: operands.addresses[name] for name in "oqkv"},
            "softmax_scale": shape.head_dim**-0.5,
            "seqlen_q": shape.seqlen_q,
            "q_stride_tile": kernel.q_tile * operands.strides("q")["seq"] * 2,
            "q_heads_per_kv_head": shape.heads_q // shape.heads_kv,
            "tuning": kernel.tuning(shape.heads_q, operands.shape.seqlen_q),
            "seqlen_kv": shape.seqlen_kv,
            "head_dim": shape.head_dim,
            "head_dim_v": HEAD_DIM,
            "num_heads_q": shape.heads_q,
        }
        for name in "qkvo":
            for axis, stride in operands.strides(name).items():
                fields[f"{name}_stride_{axis}"] = stride * 2
        grid = kernel.grid(shape.batch, shape.heads_q, shape.seqlen_q)
        return Launch(kernel.image, kernel.symbol, grid, (kernel.lanes, 1, 1), pack(fields))

    def walk(self, shape: Shape) -> Walk:
        """A workgroup of a causal kernel may take tile i and tile i from the end."""
        kernel = self._objects[shape.head_dim, shape.causal]
        x, y, batch = grid_indices(kernel.grid(shape.batch, shape.heads_q, shape.seqlen_q))
        tile, head = (y, x) if kernel.heads_first else (x, y)
        _, rows = kv_range_of_tiles(shape, kernel.q_tile, _KV_TILE, tile)
        last = tile
        if kernel.pairs:
            last = -(-shape.seqlen_q // kernel.q_tile) - 1 - tile
            _, other = kv_range_of_tiles(shape, kernel.q_tile, _KV_TILE, last)
            rows = np.where(last > tile, rows + other, rows)
        q_end = np.minimum((last + 1) * kernel.q_tile, shape.seqlen_q)
        return Walk(rows, batch, q_end, streams(shape, batch, head), np.zeros_like(rows), rows)
