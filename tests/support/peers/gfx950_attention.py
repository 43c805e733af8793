"""Launches attention forward kernels for gfx950 that others wrote, each by its launcher's rules.

AMDATTN_GFX950_DIR names a directory of code objects NAME.hsaco, compiled from their authors'
repositories, with NAME.json beside each:

| `kind` | of |
|---|---|
| `gluon` | ROCm/gfx950-gluon-tutorials, `kernels/attention/fmha_v3.py`, `fmha_v4.py` |
| `flydsl` | ROCm/FlyDSL, `kernels/attention/flash_attn_gfx950.py` |
| `hipkittens` | HazyResearch/HipKittens, `kernels/attn/gqa*/kernel*.cpp` |
| `hipkittens_gemm` | the same, `kernels/gemm/bf16fp32/mi350x`; the file has no other fields |

The other fields are those of `Compiled`. Nothing of theirs is copied here.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.peers.peer_device import Buffers, Kernel, read

LANES, Q_TILE = 512, 256
_GLUON, _FLYDSL = "gluon_attn_fwd", "flash_attn_dualwave_swp_gfx950_kernel_0"
_HIPKITTENS = "_Z10attend_kerILi{d}EEv12attn_globalsIXT_EE"
# A tensor of FlyDSL's: its address, and shape and strides, which these kernels do not read.
_FLYDSL_TENSOR, _FLYDSL_TENSORS = "Q40x", 12


@dataclass(frozen=True)
class Compiled:
    """One code object and what it was compiled for.

    Attributes
    ----------
    d, hq, hk : int
        Columns of a head; heads of Q, and of K and V.
    n : int
        Rows of Q, K and V; 0: the kernel takes them as arguments.
    cross : bool
        Q may have other rows than K and V.
    lds : int
        Its dynamic LDS in bytes.
    """

    path: Path
    kind: str
    d: int
    hq: int
    hk: int
    n: int = 0
    causal: bool = False
    cross: bool = False
    lds: int = 0

    @property
    def name(self) -> str:
        """Of the file."""
        return self.path.stem

    @property
    def symbol(self) -> str:
        """Of the kernel."""
        symbols = {"gluon": _GLUON, "flydsl": _FLYDSL, "hipkittens": _HIPKITTENS}
        return symbols[self.kind].format(d=self.d)

    def kernarg(self, at: dict[str, int], q_rows: int, kv_rows: int) -> bytes:
        """Arguments for tensors of one batch entry, (rows, heads, d), at these addresses."""
        strides = {x: self.d * (self.hk if x in "kv" else self.hq) for x in "qkvo"}
        if self.kind == "gluon":
            addresses = struct.pack("<5Q", at["q"], at["k"], at["v"], at["lse"], at["o"])
            # Of batch entry, head, row; then two addresses of scratch, unused.
            return (
                addresses
                + b"".join(struct.pack("<3i", 0, self.d, strides[x]) for x in "qkvo")
                + struct.pack("<QQ", 0, 0)
            )
        if self.kind == "flydsl":
            used = [at[x] for x in "qkvo"]
            tensors = struct.pack(
                "<" + _FLYDSL_TENSOR * _FLYDSL_TENSORS,
                *used, *[at["o"]] * (_FLYDSL_TENSORS - len(used)),
            )  # fmt: skip
            return tensors + struct.pack(
                "<8i", q_rows, kv_rows, strides["q"], strides["k"], self.d, 0, 0, 0
            )
        rows = {x: kv_rows if x in "kv" else q_rows for x in "qkvo"}
        heads = {x: self.hk if x in "kv" else self.hq for x in "qkvo"}
        tensors = b"".join(
            struct.pack("<5Q8x", at[x], 1, rows[x], heads[x], self.d) for x in "qkvo"
        )
        return tensors + struct.pack("<5Q8x", at["lse"], 1, self.hq, 1, q_rows) + bytes(8)


def compiled(directory: Path) -> list[Compiled]:
    """The attention kernels of a directory."""
    found = []
    for path in sorted(directory.glob("*.hsaco")):
        facts = json.loads(path.with_suffix(".json").read_text())
        if facts["kind"] != "hipkittens_gemm":
            found.append(Compiled(path, **facts))
    return found


class Forward:
    """A loaded kernel."""

    def __init__(self, what: Compiled) -> None:
        self.what = what
        self._kernel = Kernel(what.path.read_bytes(), what.symbol)

    def __call__(
        self, q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], tiles: int | None = None
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Result and log-sum-exp of (rows, heads, d) arrays; of FlyDSL's the latter is NaN.

        Parameters
        ----------
        tiles : int, optional
            Of 256 rows of Q that are launched, of head 0 only; all of all heads if None.
        """
        what = self.what
        lse_shape = (what.hq, len(q))
        with Buffers() as buffers:
            at = {name: buffers.put(x) for name, x in zip("qkv", (q, k, v), strict=True)}
            at["o"] = buffers.unwritten(q.shape, q.dtype)
            at["lse"] = buffers.unwritten(lse_shape, np.float32)
            grid = (what.hq, -(-len(q) // Q_TILE), 1) if tiles is None else (1, tiles, 1)
            self._kernel.launch(grid, LANES, what.kernarg(at, len(q), len(k)), what.lds)
            return read(at["o"], q.shape, q.dtype), read(at["lse"], lse_shape, np.float32)
