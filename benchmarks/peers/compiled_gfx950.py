"""Attention forward kernels for gfx950 that others wrote and the user compiled.

A directory has code objects NAME.hsaco, compiled from their authors' repositories, with NAME.json
beside each:

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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from amdattn.bench.kernels import Launch, Operands, Walk
from amdattn.bench.shapes import Shape
from amdattn.device import runtime
from benchmarks.peers.one_launch import OneLaunch, grid_indices, kv_range_of_tiles, streams

ARCH = "gfx950"
KINDS = ("gluon", "flydsl", "hipkittens")
LANES, Q_TILE, KV_TILE = 512, 256, 64
_GLUON, _FLYDSL = "gluon_attn_fwd", "flash_attn_dualwave_swp_gfx950_kernel_0"
_HIPKITTENS = "_Z10attend_kerILi{d}EEv12attn_globalsIXT_EE"
# A tensor of FlyDSL's: its address, and shape and strides, which these kernels do not read.
_FLYDSL_TENSOR, _FLYDSL_TENSORS = "Q40x", 12
_XCDS = 8


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
    tiles_from : int
        FlyDSL compiles another kernel for Q of so many rows or more, in whose grid tiles vary
        fastest; 0: this is not it.
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
    tiles_from: int = 0
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

    def kernarg(
        self,
        at: Mapping[str, int],
        q_rows: int,
        kv_rows: int,
        batch: int = 1,
        of_batch: tuple[int, int] | None = None,
    ) -> bytes:
        """Arguments for compact tensors (batch, rows, heads, d) at these addresses.

        Parameters
        ----------
        of_batch : (int, int), optional
            Rows of Q and of K from one batch entry to the next, if not as many as there are.
            FlyDSL's kernels know none but those.
        """
        q_apart, kv_apart = of_batch or (q_rows, kv_rows)
        heads = {x: self.hk if x in "kv" else self.hq for x in "qkvo"}
        apart = {x: kv_apart if x in "kv" else q_apart for x in "qkvo"}
        strides = {x: self.d * heads[x] for x in "qkvo"}
        if self.kind == "gluon":
            addresses = struct.pack("<5Q", at["q"], at["k"], at["v"], at["lse"], at["o"])
            # Of batch entry, head, row; then two addresses of scratch, unused.
            of_entry = {x: apart[x] * strides[x] if batch > 1 else 0 for x in "qkvo"}
            packed = (struct.pack("<3i", of_entry[x], self.d, strides[x]) for x in "qkvo")
            return addresses + b"".join(packed) + struct.pack("<QQ", 0, 0)
        if self.kind == "flydsl":
            used = [at[x] for x in "qkvo"]
            tensors = struct.pack(
                "<" + _FLYDSL_TENSOR * _FLYDSL_TENSORS,
                *used, *[at["o"]] * (_FLYDSL_TENSORS - len(used)),
            )  # fmt: skip
            return tensors + struct.pack(
                "<8i", q_rows, kv_rows, strides["q"], strides["k"], self.d, 0, 0, 0
            )
        tensors = b"".join(
            struct.pack("<5Q8x", at[x], batch, apart[x], heads[x], self.d) for x in "qkvo"
        )
        return tensors + struct.pack("<5Q8x", at["lse"], batch, self.hq, 1, q_apart) + bytes(8)


def compiled(directory: Path) -> list[Compiled]:
    """The attention kernels of a directory."""
    found = []
    for path in sorted(directory.glob("*.hsaco")):
        facts = json.loads(path.with_suffix(".json").read_text())
        if facts["kind"] != "hipkittens_gemm":
            found.append(Compiled(path, **facts))
    return found


class Objects(OneLaunch):
    """The kernels of one kind in a directory, as a benchmark runs them.

    Those that are compiled for one length are needed for each that is simulated: of a sampled
    launch the shorter ones too, and Gluon's so that they do not take the length of K for Q's.

    Raises
    ------
    ValueError
        The directory has none, or the device is no MI355X.
    """

    round_mode = "rtne"
    causal_granule = 256

    def __init__(self, directory: Path, kind: str) -> None:
        self.peer = kind
        self._objects = [what for what in compiled(directory) if what.kind == kind]
        if not self._objects:
            raise ValueError(f"{kind}={directory} has no kernels of {kind} with their NAME.json")
        arch = runtime.device_props().arch
        if arch != ARCH:
            raise ValueError(f"device {arch} is not {ARCH}, which kernels of {kind} are for")
        self.compact = kind == "flydsl"
        self._images: dict[Path, bytes] = {}

    def refusal(self, shape: Shape) -> str:
        """Which argument it does not take."""
        if shape.window != (-1, -1) or shape.sinks:
            return f"window={shape.window} and sinks={shape.sinks}: it has neither"
        if shape.head_dim_v != shape.head_dim or shape.layout != "bshd":
            return f"head_dim_v={shape.head_dim_v} and layout={shape.layout!r} are not its own"
        if not self._fitting(shape):
            return f"there is no object of {self.peer} for it"
        return ""

    def _fitting(self, shape: Shape) -> list[Compiled]:
        """Objects for the shape; of a sampled launch Q may have more rows than K."""
        wanted = shape.head_dim, shape.heads_q, shape.heads_kv, shape.causal
        fitting = [
            what
            for what in self._objects
            if (what.d, what.hq, what.hk, what.causal) == wanted
            and what.n in (0, shape.seqlen_kv)
            and what.tiles_from <= shape.seqlen_q
            and (what.n or what.cross or shape.seqlen_q == shape.seqlen_kv)
        ]
        return sorted(fitting, key=lambda what: -what.tiles_from)

    def launch(self, shape: Shape, operands: Operands) -> Launch:
        """As its own launcher makes it."""
        fitting = self._fitting(shape)
        if not fitting:
            raise ValueError(f"{shape}: there is no object of {self.peer} for it")
        what = fitting[0]
        if what.path not in self._images:
            self._images[what.path] = what.path.read_bytes()
        kernarg = what.kernarg(
            operands.addresses, shape.seqlen_q, shape.seqlen_kv, shape.batch,
            (operands.shape.seqlen_q, operands.shape.seqlen_kv),
        )  # fmt: skip
        image = self._images[what.path]
        return Launch(image, what.symbol, grid(shape), (LANES, 1, 1), kernarg, what.lds)

    def walk(self, shape: Shape) -> Walk:
        """A workgroup takes a tile of Q."""
        x, y, batch = grid_indices(grid(shape))
        head, tile = x, y
        if self._fitting(shape)[0].tiles_from:
            tiles = grid(shape)[1]
            head, tile = np.divmod(x + y * shape.heads_q, tiles)
        if self.peer == "hipkittens":  # transposed: heads that share K and V go to one XCD
            group = shape.heads_q // shape.heads_kv
            head = head % group * group + head // group
        if self.peer == "gluon" and shape.heads_q % _XCDS == 0:  # as many neighbours to each XCD
            head = head % _XCDS * (shape.heads_q // _XCDS) + head // _XCDS
        begin, end = kv_range_of_tiles(shape, Q_TILE, KV_TILE, tile)
        q_end = (tile + 1) * Q_TILE
        return Walk(end - begin, batch, q_end, streams(shape, batch, head), begin, end)


def grid(shape: Shape) -> tuple[int, int, int]:
    """Workgroups: all of these kernels have heads vary fastest."""
    return shape.heads_q, -(-shape.seqlen_q // Q_TILE), shape.batch
