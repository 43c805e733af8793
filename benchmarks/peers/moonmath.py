"""How to launch MoonMath's attention forward for MI300X (moonmath-ai/amd-kernels@5f758e78).

Facts from its public sources: csrc/attention_api.cpp and csrc/attention_kernel.hip. Its host code
transposes V by a kernel of its own, cuts the tiles of an unfilled last round along KV, and merges
their parts. The code objects are the user's, compiled from those sources as docs/bench.md shows;
nothing of them is part of this package.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from amdattn.bench.kernels import Functions, Launch, Operands
from amdattn.bench.modelled import Modelled
from amdattn.bench.shapes import Shape
from amdattn.device import runtime

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from amdattn.bench.modelled import ModelOptions

ARCH = "gfx942"
HEAD_DIM = 128
Q_TILE, KV_TILE = 384, 64
ROUND_MODES = ("rtne", "rtna", "rtz")
_NUM_CUS, _NUM_XCDS = 304, 8  # constants of its planner
_MAX_PARTS = 2 * _NUM_CUS
_FULL_ENOUGH = _NUM_CUS * 19 // 20  # tiles of a last round that is left as it is
_LEAST_BLOCKS, _LEAST_BLOCKS_OF_PART, _MERGE_BLOCKS = 48, 4, 3
_MERGE_WORKGROUPS = 48  # of a tile
_LANES, _HELPER_LANES = 512, 256
_PART_BYTES, _SUMS_BYTES = Q_TILE * HEAD_DIM * 4, Q_TILE * 2 * 4
_SCHEDULE = "_ZN12_GLOBAL__N_110tail_schedE"
_UINT_MAX = 2**32 - 1

_SYMBOLS = {
    "transpose": "_ZN12_GLOBAL__N_124v_transpose_kernel_16x16ILb{bshd}EEEvPK14__hip_bfloat16PS1_ii",
    "forward": "_ZN12_GLOBAL__N_117attention_forwardILb{bshd}ELb0ELb{parts}EEEvPK14__hip_bfloat16"
    "S3_S3_PS1_iifiPKsPsS6_fiPfiiPKi",
    "merge": "_ZN12_GLOBAL__N_111merge_partsILb{bshd}EEEvP14__hip_bfloat16iiPKf",
}
_TRANSPOSE_ARGUMENTS = "<QQii"  # V, transposed V, rows, heads
_MERGE_ARGUMENTS = "<QiiQ"  # O, rows, heads, parts
# Q, K, transposed V, O, rows, KV rows, scale, heads, four of its sparse variant and its threshold,
# parts, tiles of a head if the grid has one dimension, parts of a tile, order of that variant.
_FORWARD_ARGUMENTS = "<QQQQiifiQQQfiQiiQ"


@dataclass(frozen=True)
class Division:
    """How its planner divides a shape.

    Attributes
    ----------
    tiles_of_head, heads, blocks : int
        Blocks of 64 rows of K and V; heads of all batch entries.
    split_tiles, parts : int
        The last tiles, each in so many parts; 0 and 1 if there is no split.
    """

    tiles_of_head: int
    heads: int
    blocks: int
    split_tiles: int
    parts: int

    @staticmethod
    def of(shape: Shape) -> Division:
        """The parts with the shortest span of rounds, in blocks."""
        tiles_of_head = -(-shape.seqlen_q // Q_TILE)
        heads = shape.batch * shape.heads_q
        blocks = -(-shape.seqlen_kv // KV_TILE)
        tail = tiles_of_head * heads % _NUM_CUS
        best, parts = blocks + _MERGE_BLOCKS, 1
        if 0 < tail <= _FULL_ENOUGH and blocks >= _LEAST_BLOCKS:
            for ways in range(2, min(_MAX_PARTS // tail, blocks // _LEAST_BLOCKS_OF_PART) + 1):
                span = -(-tail * ways // _NUM_CUS) * -(-blocks // ways) + _MERGE_BLOCKS
                if span < best:
                    best, parts = span, ways
        return Division(tiles_of_head, heads, blocks, tail if parts > 1 else 0, parts)

    @property
    def whole_tiles(self) -> int:
        """Those of the launch before the parts'."""
        return self.tiles_of_head * self.heads - self.split_tiles

    def schedule(self) -> bytes:
        """What its host code puts into a device variable before the parts are launched."""
        rows = np.zeros((_MAX_PARTS + self.split_tiles, 4), np.int32)
        tiles = self.whole_tiles + np.arange(self.split_tiles)
        head, tile = np.divmod(tiles, self.tiles_of_head)
        num_parts = self.split_tiles * self.parts
        rows[:num_parts, 0] = np.repeat(tile, self.parts)
        rows[:num_parts, 1] = np.repeat(head, self.parts)
        first = np.arange(self.split_tiles) * self.parts
        rows[_MAX_PARTS:] = np.column_stack([tile, head, first, np.full_like(tile, self.parts)])
        return rows.tobytes()


class MoonMath:
    """That operation in one rounding mode, as a benchmark runs it."""

    peer = "moonmath"

    def __init__(self, directory: Path, round_mode: str) -> None:
        file = directory / f"moonmath_{round_mode}.hsaco"
        if not file.is_file():
            raise ValueError(
                f"moonmath={directory} has no {file.name}: docs/bench.md shows how to compile it"
            )
        self.round_mode = round_mode
        self._image = file.read_bytes()

    def refusal(self, shape: Shape) -> str:
        """Which argument it does not take."""
        arch = runtime.device_props().arch
        if arch != ARCH:
            return f"device {arch} is not {ARCH}"
        if (shape.head_dim, shape.head_dim_v) != (HEAD_DIM, HEAD_DIM):
            return (
                f"head_dim={shape.head_dim} and head_dim_v={shape.head_dim_v} are not "
                f"both {HEAD_DIM}"
            )
        if shape.masked or shape.sinks:
            return f"causal={shape.causal}, window={shape.window}, sinks={shape.sinks}: it has none"
        if shape.heads_q != shape.heads_kv:
            return f"heads_kv={shape.heads_kv} is not heads_q={shape.heads_q}"
        largest = self._transposed_bytes(shape)
        if largest > _UINT_MAX:
            return f"V of {largest} bytes does not fit its 32-bit offsets"
        return ""

    @staticmethod
    def _transposed_bytes(shape: Shape) -> int:
        blocks = -(-shape.seqlen_kv // KV_TILE)
        return shape.batch * shape.heads_kv * blocks * KV_TILE * HEAD_DIM * 2

    def transposed(self, operands: Operands) -> int:
        """Address of transposed V, followed by the parts."""
        parts = _MAX_PARTS * (_PART_BYTES + _SUMS_BYTES)
        return operands.workspace(self._transposed_bytes(operands.shape) + parts)

    def launches(self, shape: Shape, operands: Operands) -> list[Launch]:
        """As its host code makes them."""
        division = Division.of(shape)
        found = [self.transposition(shape, operands)]
        if division.whole_tiles:
            found.append(self.whole(shape, operands, division))
        if division.split_tiles:
            found.append(self.parts(shape, operands, division))
            found.append(self.merge(shape, operands, division))
        return found

    def model(
        self, shape: Shape, functions: Functions, **options: Unpack[ModelOptions]
    ) -> list[Modelled]:
        """What the performance model says of every launch; see `MoonMathSampler`."""
        from benchmarks.peers.moonmath_sampling import MoonMathSampler  # which needs what is here

        return MoonMathSampler(self, shape, functions, **options).model()

    def transposition(self, shape: Shape, operands: Operands) -> Launch:
        """Of V, a workgroup for a block of a head."""
        blocks = shape.batch * shape.heads_kv * -(-shape.seqlen_kv // KV_TILE)
        addresses = operands.addresses["v"], self.transposed(operands)
        arguments = struct.pack(_TRANSPOSE_ARGUMENTS, *addresses, shape.seqlen_kv, shape.heads_kv)
        return self._launch("transpose", shape, (blocks, 1, 1), _HELPER_LANES, arguments)

    def whole(self, shape: Shape, operands: Operands, division: Division) -> Launch:
        """Tiles that are not split; its kernel orders them itself if these are all."""
        if not division.split_tiles:
            grid = (division.tiles_of_head, division.heads, 1)
            return self._forward(shape, operands, grid, 0, 0)
        grid = (division.whole_tiles, 1, 1)
        return self._forward(shape, operands, grid, division.tiles_of_head, 0)

    def parts(self, shape: Shape, operands: Operands, division: Division) -> Launch:
        """The parts of the other tiles; each takes every so manieth block."""
        grid = (division.split_tiles * division.parts, 1, 1)
        return self._forward(
            shape, operands, grid, division.tiles_of_head, division.parts, division
        )

    def merge(self, shape: Shape, operands: Operands, division: Division) -> Launch:
        """Of the parts."""
        arguments = struct.pack(
            _MERGE_ARGUMENTS,
            operands.addresses["o"],
            shape.seqlen_q,
            shape.heads_q,
            self._parts_address(operands),
        )
        grid = (division.split_tiles * _MERGE_WORKGROUPS, 1, 1)
        return self._launch("merge", shape, grid, _HELPER_LANES, arguments)

    def _parts_address(self, operands: Operands) -> int:
        return self.transposed(operands) + self._transposed_bytes(operands.shape)

    def _forward(
        self,
        shape: Shape,
        operands: Operands,
        grid: tuple[int, int, int],
        tiles_of_head: int,
        parts: int,
        scheduled: Division | None = None,
    ) -> Launch:
        addresses = operands.addresses
        arguments = struct.pack(
            _FORWARD_ARGUMENTS,
            *(addresses["q"], addresses["k"], self.transposed(operands), addresses["o"]),
            *(shape.seqlen_q, shape.seqlen_kv, math.log2(math.e) / HEAD_DIM**0.5, shape.heads_q),
            *(0, 0, 0, 0.0, 0),
            *(self._parts_address(operands) if parts else 0, tiles_of_head, parts, 0),
        )
        variables = ((_SCHEDULE, scheduled.schedule()),) if scheduled else ()
        return self._launch("forward", shape, grid, _LANES, arguments, int(parts > 0), variables)

    def _launch(
        self,
        kind: str,
        shape: Shape,
        grid: tuple[int, int, int],
        lanes: int,
        arguments: bytes,
        parts: int = 0,
        variables: tuple[tuple[str, bytes], ...] = (),
    ) -> Launch:
        symbol = _SYMBOLS[kind].format(bshd=int(shape.layout == "bshd"), parts=parts)
        return Launch(self._image, symbol, grid, (lanes, 1, 1), arguments, variables=variables)
