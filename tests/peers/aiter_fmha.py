"""How to launch the assembled attention forward kernels of ROCm/aiter (hsa/<arch>/fmha_v3_fwd).

Facts from its public sources: csrc/include/mha_fwd.h, csrc/cpp_itfs/mha_fwd.cu and the table
fmha_fwd.csv beside the code objects. head_dim 128 only: the others differ in grid and workgroup.
"""

from __future__ import annotations

import csv
import struct
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from peer_device import Buffers, Kernel, read

HEAD_DIM = 128
LANES = 512
ROUNDINGS = {"rtne": 0, "rtna": 1, "rtz": 2}  # of probabilities to bfloat16
NO_MASK, CAUSAL = 0, 2

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


@dataclass(frozen=True)
class Variant:
    """One row of the table of kernels."""

    rounding: str
    causal: bool
    varlen: bool

    def __str__(self) -> str:
        return self.rounding + "-causal" * self.causal + "-varlen" * self.varlen


class Forward:
    """A bfloat16 attention forward kernel for MI300X."""

    def __init__(self, directory: Path, variant: Variant) -> None:
        table = directory / "hsa" / "gfx942" / "fmha_v3_fwd"
        wanted = {
            "dtype": "bf16",
            "hdim_q": str(HEAD_DIM),
            "hdim_v": str(HEAD_DIM),
            "mask": str(CAUSAL if variant.causal else NO_MASK),
            "mode": str(int(variant.varlen)),
            "bf16_cvt": str(ROUNDINGS[variant.rounding]),
        }
        with open(table / "fmha_fwd.csv", newline="", encoding="utf-8") as rows:
            (row,) = (row for row in csv.DictReader(rows) if wanted.items() <= row.items())
        self._variant = variant
        self._q_tile = int(row["ts_qo"])
        image = (table / "MI300" / row["co_name"]).read_bytes()
        self._kernel = Kernel(image, row["knl_name"])

    def __call__(
        self,
        q: NDArray[ml_dtypes.bfloat16],
        k: NDArray[ml_dtypes.bfloat16],
        v: NDArray[ml_dtypes.bfloat16],
        cu_seqlens_q: NDArray[np.int32] | None = None,
        cu_seqlens_kv: NDArray[np.int32] | None = None,
    ) -> tuple[NDArray[ml_dtypes.bfloat16], NDArray[np.float32]]:
        """Run the kernel.

        Parameters
        ----------
        q, k, v : (batch, seqlen, num_heads, head_dim); varlen: (total, num_heads, head_dim)

        Returns
        -------
        out : like q
        lse : (batch, num_heads_q, seqlen_q); varlen: (num_heads_q, total_q)
        """
        batch = q.shape[0] if cu_seqlens_q is None else len(cu_seqlens_q) - 1
        seqlen_q, num_heads_q, _ = q.shape[-3:]
        seqlen_kv, num_heads_kv, _ = k.shape[-3:]
        lse_shape = (*q.shape[:-3], num_heads_q, seqlen_q)
        with Buffers() as buffers:
            fields = dict.fromkeys((name for name, _ in _SLOTS), 0) | {
                "q": buffers.put(q),
                "k": buffers.put(k),
                "v": buffers.put(v),
                "o": buffers.unwritten(q.shape, q.dtype),
                "lse": buffers.unwritten(lse_shape, np.float32),
                "softmax_scale": HEAD_DIM**-0.5,
                "seqlen_q": seqlen_q,
                "q_stride_tile": self._q_tile * q.strides[-3],
                "q_heads_per_kv_head": num_heads_q // num_heads_kv,
                "tuning": self._tuning(num_heads_q, seqlen_q),
                "writes_lse": 1,
                "seqlen_kv": seqlen_kv,
                "head_dim": HEAD_DIM,
                "head_dim_v": HEAD_DIM,
                "num_heads_q": num_heads_q,
                "lse_stride_head": seqlen_q * 4,
            }
            for name, x in {"q": q, "k": k, "v": v, "o": q}.items():
                fields[f"{name}_stride_seq"], fields[f"{name}_stride_head"] = x.strides[-3:-1]
                fields[f"{name}_stride_batch"] = 0 if self._variant.varlen else x.strides[0]
            for name, cu in {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_kv": cu_seqlens_kv}.items():
                if cu is not None:
                    fields[name] = fields[f"{name}_padded"] = buffers.put(cu)
            grid = self._grid(batch, num_heads_q, seqlen_q)
            self._kernel.launch(grid, LANES, _BLOCK.pack(*fields.values()))
            return (
                read(fields["o"], q.shape, q.dtype),
                read(fields["lse"], lse_shape, np.float32),
            )

    def _tuning(self, num_heads_q: int, seqlen_q: int) -> int:
        uneven = self._variant.causal and (num_heads_q % 8 != 0 or seqlen_q > 16384)
        return 3 if uneven else 5

    def _grid(self, batch: int, num_heads_q: int, seqlen_q: int) -> tuple[int, int, int]:
        tiles = -(-seqlen_q // self._q_tile)
        if self._variant.causal:  # a workgroup takes a tile from either end
            tiles = -(-tiles // 2)
        if self._variant.varlen:
            return num_heads_q, batch, tiles
        return tiles, num_heads_q, batch
