"""Runs the assembled attention forward kernels of ROCm/aiter on arrays.

The launch rules are in benchmarks.peers.aiter.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.aiter import HEAD_DIM, LANES, ROUNDINGS, CodeObject, pack
from tests.support.peers.peer_device import Buffers, Kernel, read

__all__ = ["HEAD_DIM", "ROUNDINGS", "Forward", "Variant"]


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
        self._variant = variant
        self._object = CodeObject(directory, variant.rounding, variant.causal, variant.varlen)
        self._kernel = Kernel(self._object.image, self._object.symbol)

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
            fields: dict[str, int | float] = {
                "q": buffers.put(q),
                "k": buffers.put(k),
                "v": buffers.put(v),
                "o": buffers.unwritten(q.shape, q.dtype),
                "lse": buffers.unwritten(lse_shape, np.float32),
                "softmax_scale": HEAD_DIM**-0.5,
                "seqlen_q": seqlen_q,
                "q_stride_tile": self._object.q_tile * q.strides[-3],
                "q_heads_per_kv_head": num_heads_q // num_heads_kv,
                "tuning": self._object.tuning(num_heads_q, seqlen_q),
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
            grid = self._object.grid(batch, num_heads_q, seqlen_q)
            self._kernel.launch(grid, LANES, pack(fields))
            return (
                read(fields["o"], q.shape, q.dtype),
                read(fields["lse"], lse_shape, np.float32),
            )
