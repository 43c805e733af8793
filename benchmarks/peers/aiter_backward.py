"""How to launch the assembled attention backward kernels of ROCm/aiter (hsa/<arch>/fmha_v3_bwd).

Facts from its public sources: csrc/include/mha_bwd.h, csrc/cpp_itfs/mha_bwd.cu and the table
fmha_bwd_dqdkdv.csv beside the code objects. Only the main kernel, of sequences of one length, which
adds to dQ in 16 bits (a16) or in 32 (a32): delta and the zeroes of dQ are made here, and of a16 on
MI355X dQ stays in the order of its sums. The checkout is the user's; nothing of it is part of this
package.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from amdattn import virtual
from amdattn.bench.kernels import Functions, Launch
from amdattn.device import runtime
from amdattn.device.profiling import LaunchProfile
from amdattn.ops.attention_backward.reference import Inputs
from benchmarks.peers.aiter import ROUNDINGS, rows_of_table

BF16 = ml_dtypes.bfloat16
LANES = 256
NO_MASK, CAUSAL = 0, 1  # aligned at the top left
_ANY_ROUNDING = "3"

# Argument blocks are 16-byte slots, each holding one address, unsigned integer or float.
_ADDRESS, _UINT, _FLOAT = "Q8x", "I12x", "f12x"
_SLOTS = (
    *((name, _ADDRESS) for name in ("dq", "dk", "dv", "q", "k", "v", "dout", "lse", "delta")),
    *(("softmax_scale", _FLOAT), ("log2e", _FLOAT), ("seqlen_q", _UINT), ("k_tile", _UINT)),
    *((f"q_{axis}", _UINT) for axis in ("head", "batch", "row")),  # strides are bytes
    ("heads_of_group", _UINT),
    *((f"k_{axis}", _UINT) for axis in ("head", "batch", "row")),
    *((name, _UINT) for name in ("dk_row", "seqlen_k", "head_dim", "head_dim_v", "heads")),
    *((f"v_{axis}", _UINT) for axis in ("head", "batch", "row")),
    *((f"dout_{axis}", _UINT) for axis in ("head", "batch", "row")),
    *((name, _UINT) for name in ("dk_head", "dk_batch", "dv_head", "dv_batch", "dv_row")),
    ("lse_head", _UINT),
    *((name, _ADDRESS) for name in ("q_starts", "k_starts", "q_padded", "k_padded")),
    *(("dq_rows", _UINT), ("mask_x", _UINT), ("mask_y", _UINT)),
)
_BLOCK = struct.Struct("<" + "".join(slot for _, slot in _SLOTS))


def pack(fields: Mapping[str, int | float]) -> bytes:
    """The argument block; fields that are not given are 0."""
    unknown = set(fields) - {name for name, _ in _SLOTS}
    if unknown:
        raise ValueError(f"fields {sorted(unknown)} are not among {[name for name, _ in _SLOTS]}")
    return _BLOCK.pack(*(fields.get(name, 0) for name, _ in _SLOTS))


@dataclass(frozen=True)
class CodeObject:
    """A main kernel of a checkout: of bfloat16, head_dim columns everywhere."""

    symbol: str
    image: bytes
    keys: int  # of a workgroup; under a mask it takes such a block from either end
    rows: int  # of a step
    head_dim: int
    causal: bool
    sums: int = 16  # bits of those of dQ

    @staticmethod
    def of(
        directory: Path,
        arch: str,
        head_dim: int,
        causal: bool,
        round_mode: str = "rtz",
        sums: int = 16,
    ) -> CodeObject:
        """Of a table, one that takes no padding where there is one; ValueError without any."""
        folder = directory / "hsa" / arch / "fmha_v3_bwd"
        wanted = {
            "dtype": "bf16",
            "hdim_q": str(head_dim),
            "hdim_v": str(head_dim),
            "mask": str(CAUSAL if causal else NO_MASK),
            "atomic32": str(int(sums == 32)),
            "mode": "0",
        }
        roundings = (str(ROUNDINGS[round_mode]), _ANY_ROUNDING)
        file = folder / "fmha_bwd_dqdkdv.csv"
        found = [
            row
            for row in rows_of_table(directory, file)
            if wanted.items() <= row.items() and row["bf16_cvt"] in roundings
        ]
        if not found:
            raise ValueError(f"{file} has no row of {wanted}, bf16_cvt={round_mode}")
        row = min(found, key=lambda row: (row["pssk"], row["pddv"]))
        image = (folder / row["co_name"]).read_bytes()
        return CodeObject(
            *(row["knl_name"], image, int(row["ts"]), int(row["ts_qo"]), head_dim, causal, sums)
        )

    def blocks(self, seqlen: int) -> int:
        """Workgroups of a head: as many as blocks of keys, or pairs of these."""
        blocks = -(-seqlen // self.keys)
        return -(-blocks // 2) if self.causal else blocks

    def run(
        self, inputs: Inputs, functions: Functions, blocks: int | None = None
    ) -> dict[str, NDArray[Any]]:
        """Dq, dk (of every head of q), dv; `blocks` are the first workgroups of each head only.

        Parameters
        ----------
        inputs : Inputs
            Of as many rows as keys, a multiple of `keys`, twice that under a mask.
        """
        q, k = inputs.q, inputs.k
        batch, seqlen, heads, columns = q.shape
        granule = self.keys * (2 if self.causal else 1)
        if k.shape[1] != seqlen or seqlen % granule:
            raise ValueError(f"{seqlen} rows and {k.shape[1]} keys: not one multiple of {granule}")
        delta = (inputs.dout.astype(np.float64) * inputs.o.astype(np.float64)).sum(3)
        device, addresses = runtime.get(), dict[str, int]()

        def put(name: str, x: NDArray[Any]) -> None:
            x = np.ascontiguousarray(x)
            addresses[name] = device.malloc(x.nbytes)
            device.upload(addresses[name], x.ctypes.data, x.nbytes)
            runtime.synchronize()

        try:
            for name, x in (("q", q), ("k", k), ("v", inputs.v), ("dout", inputs.dout)):
                put(name, x)
            put("lse", inputs.lse.astype(np.float32))
            put("delta", delta.transpose(0, 2, 1).astype(np.float32))
            of_dq = (batch, seqlen, heads, columns), BF16
            if self.sums == 32:  # heads apart
                of_dq = (batch, heads, seqlen, columns), np.float32
            put("dq", np.zeros(*of_dq))
            for name in ("dk", "dv"):
                put(name, np.full((batch, seqlen, heads, columns), np.nan, BF16))
            self._launch(inputs, addresses, blocks or self.blocks(seqlen)).enqueue(functions)
            runtime.synchronize()
            found = {}
            for name in ("dq", "dk", "dv"):
                shape, dtype = of_dq if name == "dq" else ((batch, seqlen, heads, columns), BF16)
                found[name] = np.empty(shape, dtype)
                device.download(found[name].ctypes.data, addresses[name], found[name].nbytes)
            runtime.synchronize()
            if self.sums == 32:
                found["dq"] = found["dq"].transpose(0, 2, 1, 3)
            return found
        finally:
            for address in addresses.values():
                device.free(address)

    def _launch(self, inputs: Inputs, addresses: Mapping[str, int], blocks: int) -> Launch:
        batch, seqlen, heads, columns = inputs.q.shape
        heads_kv = inputs.k.shape[2]
        fields: dict[str, int | float] = {
            **addresses,
            "softmax_scale": 1 / math.sqrt(columns),
            "log2e": math.log2(math.e),
            "seqlen_q": seqlen,
            "seqlen_k": seqlen,
            "k_tile": self.keys * heads_kv * columns * 2,
            "heads_of_group": heads // heads_kv,
            "head_dim": columns,
            "head_dim_v": columns,
            "heads": heads,
            "lse_head": seqlen * 4,
            "dq_rows": seqlen,
        }
        for name in ("q", "k", "v", "dout", "dk", "dv"):
            row = (heads_kv if name in ("k", "v") else heads) * columns * 2
            fields |= {f"{name}_head": columns * 2, f"{name}_row": row}
            fields[f"{name}_batch"] = row * seqlen
        grid = (blocks, heads, batch)
        return Launch(self.image, self.symbol, grid, (LANES, 1, 1), pack(fields))


def lifetime(kernel: CodeObject, inputs: Inputs, functions: Functions) -> tuple[int, LaunchProfile]:
    """Clk of the first workgroup of a head, alone: a block of keys, or under a mask a pair."""
    with virtual.profile() as profile:
        kernel.run(inputs, functions, 1)
    (launch,) = profile.launches
    (time,) = launch.times
    return time.end - time.start, launch
