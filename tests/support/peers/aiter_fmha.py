"""Runs the assembled attention forward kernels of ROCm/aiter on arrays.

The launch rules are in benchmarks.peers.aiter.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from amdattn.device import runtime
from benchmarks.peers.aiter import HEAD_DIM, ROUNDINGS, CodeObject, pack
from tests.support.peers.peer_device import Buffers, Kernel, read

__all__ = ["HEAD_DIM", "ROUNDINGS", "Forward", "Variant"]


@dataclass(frozen=True)
class Variant:
    """One row of the table of kernels."""

    rounding: str
    causal: bool
    varlen: bool
    head_dim: int = HEAD_DIM
    dtype: str = "bf16"

    def __str__(self) -> str:
        return self.rounding + "-causal" * self.causal + "-varlen" * self.varlen


class Forward:
    """A bfloat16 attention forward kernel for the bound device."""

    def __init__(self, directory: Path, variant: Variant) -> None:
        self._variant = variant
        arch = runtime.device_props().arch
        self._object = CodeObject(
            *(directory, variant.rounding, variant.causal, variant.varlen, variant.head_dim),
            *(arch, variant.dtype),
        )
        self._kernel = Kernel(self._object.image, self._object.symbol)

    def __call__(
        self,
        q: NDArray[Any],
        k: NDArray[Any],
        v: NDArray[Any],
        cu_seqlens_q: NDArray[np.int32] | None = None,
        cu_seqlens_kv: NDArray[np.int32] | None = None,
    ) -> tuple[NDArray[ml_dtypes.bfloat16], NDArray[np.float32]]:
        """Run the kernel.

        Parameters
        ----------
        q, k, v : (batch, seqlen, num_heads, head_dim); varlen: (total, num_heads, head_dim)
            bfloat16, or fp8 whose factors are 1.

        Returns
        -------
        out : bfloat16, like q with the columns of v
        lse : (batch, num_heads_q, seqlen_q); varlen: (num_heads_q, total_q)
        """
        batch = q.shape[0] if cu_seqlens_q is None else len(cu_seqlens_q) - 1
        seqlen_q, num_heads_q, _ = q.shape[-3:]
        seqlen_kv, num_heads_kv, _ = k.shape[-3:]
        lse_shape = (*q.shape[:-3], num_heads_q, seqlen_q)
        out_like = np.empty((*q.shape[:-1], v.shape[-1]), ml_dtypes.bfloat16)
        with Buffers() as buffers:
            fields: dict[str, int | float] = {
                "q": buffers.put(q),
                "k": buffers.put(k),
                "v": buffers.put(v),
                "o": buffers.unwritten(out_like.shape, out_like.dtype),
                "lse": buffers.unwritten(lse_shape, np.float32),
                "softmax_scale": q.shape[-1] ** -0.5,
                "seqlen_q": seqlen_q,
                "q_stride_tile": self._object.q_tile * q.strides[-3],
                "q_heads_per_kv_head": num_heads_q // num_heads_kv,
                "tuning": self._object.tuning(num_heads_q, seqlen_q),
                "writes_lse": 1,
                "seqlen_kv": seqlen_kv,
                "head_dim": q.shape[-1],
                "head_dim_v": v.shape[-1],
                "num_heads_q": num_heads_q,
                "lse_stride_head": seqlen_q * 4,
            }
            for name, x in {"q": q, "k": k, "v": v, "o": out_like}.items():
                fields[f"{name}_stride_seq"], fields[f"{name}_stride_head"] = x.strides[-3:-1]
                fields[f"{name}_stride_batch"] = 0 if self._variant.varlen else x.strides[0]
            for name, cu in {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_kv": cu_seqlens_kv}.items():
                if cu is not None:
                    fields[name] = fields[f"{name}_padded"] = buffers.put(cu)
            if q.dtype.itemsize == 1:
                for name in ("q_descale", "k_descale", "v_descale"):
                    fields[name] = buffers.put(np.ones((batch, num_heads_q), np.float32))
                    fields[f"{name}_stride_batch"] = 4 * num_heads_q
                    fields[f"{name}_stride_head"] = 4
            grid = self._object.grid(batch, num_heads_q, seqlen_q)
            self._kernel.launch(grid, self._object.lanes, pack(fields))
            return (
                read(fields["o"], out_like.shape, out_like.dtype),
                read(fields["lse"], lse_shape, np.float32),
            )
