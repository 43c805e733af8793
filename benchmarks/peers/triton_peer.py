"""The kernel of `triton_kernel`, compiled on the spot by the user's Triton without a GPU."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from amdattn.bench.kernels import Launch, Operands, Walk
from amdattn.bench.shapes import Shape
from amdattn.device import runtime
from amdattn.errors import AmdattnError
from benchmarks.peers.one_launch import OneLaunch, grid_indices, kv_range_of_tiles, streams

LANES_PER_WAVE = 64
_TILE_Q, _TILE_KV = 128, 64
_LEAST_TILE_Q = 16  # of one wave; four waves from 64 on
_POINTERS = ("q", "k", "v", "o", "sinks")
_STRIDED = _POINTERS[:4]
# Of a pointer: what Triton's own launcher would find of a 256-byte aligned allocation.
_ALIGNED = [["tt.divisibility", 16]]
_UNDER_2_GIB = [["tt.pointer_range", 32]]
_INT_MAX = 2**31 - 1


class TritonMissing(AmdattnError):
    """--peer triton without Triton, or with one that cannot compile for the device."""


class Triton(OneLaunch):
    """That kernel as a benchmark runs it."""

    peer = "triton"
    causal_granule = 256
    round_mode = "rtne"

    def __init__(self) -> None:
        try:
            import triton
        except ImportError as error:
            raise TritonMissing(f"peer triton needs Triton: pip install triton ({error})") from None
        self.version = str(triton.__version__)
        self._compiled: dict[tuple[Any, ...], Any] = {}

    def try_compile(self) -> None:
        """Compile for some shape, to know before anything else runs that it can be done.

        Raises
        ------
        TritonMissing
        """
        try:
            self._compile(Shape(1, 1, 1, 128, 128, 128), None)
        except Exception as error:  # of a compiler: any kind
            raise TritonMissing(
                f"Triton {self.version} cannot compile for {runtime.device_props().arch}: "
                f"{type(error).__name__}: {error}; pip install --upgrade triton"
            ) from error

    def refusal(self, shape: Shape) -> str:
        """Which argument it does not take."""
        for name in ("head_dim", "head_dim_v"):
            dim = getattr(shape, name)
            if dim < 16 or dim & (dim - 1):
                return f"{name}={dim} is not a power of two of at least 16"
        if max(stride for x in _STRIDED for stride in shape.strides(x).values()) > _INT_MAX:
            return f"strides beyond {_INT_MAX} do not fit its 32-bit arguments"
        return ""

    def _arguments(self, shape: Shape, operands: Operands | None) -> dict[str, int | float]:
        values: dict[str, int | float] = {
            name: operands.addresses[name] if operands else 0 for name in _POINTERS
        }
        values["softmax_scale_log2"] = shape.problem("rtne").softmax_scale_log2
        for name in _STRIDED:
            strides = (operands or shape).strides(name)
            for axis in ("batch", "seq", "head"):
                values[f"{name}_stride_{axis}"] = strides[axis]
        values["seqlen_q"], values["seqlen_kv"] = shape.seqlen_q, shape.seqlen_kv
        values["q_heads_per_kv_head"] = shape.heads_q // shape.heads_kv
        return values

    def _compile(self, shape: Shape, operands: Operands | None) -> Any:
        """For the facts that Triton's launcher specialises on: alignment, divisibility, size."""
        values = self._arguments(shape, operands)
        names = tuple(values)
        facts: dict[tuple[int, ...], list[list[object]]] = {}
        for i, name in enumerate(names):
            if name == "sinks":
                facts[(i,)] = _ALIGNED + _UNDER_2_GIB
            elif name in _POINTERS:
                whole = operands.shape if operands else shape
                nbytes = whole.strides(name)["batch"] * whole.batch * 2
                facts[(i,)] = _ALIGNED + (_UNDER_2_GIB if nbytes <= _INT_MAX else [])
            elif isinstance(values[name], int) and values[name] % 16 == 0:
                facts[(i,)] = _ALIGNED
        left, right = shape.problem("rtne").window
        constants = {
            "WINDOW_LEFT": left,
            "WINDOW_RIGHT": right,
            "SINKS": shape.sinks,
            "HEAD_DIM": shape.head_dim,
            "HEAD_DIM_V": shape.head_dim_v,
            "TILE_Q": _tile_q(shape),
            "TILE_KV": _TILE_KV,
        }
        key = (*constants.values(), repr(facts))
        if key not in self._compiled:
            from triton import compile as compile_source
            from triton.backends.compiler import GPUTarget
            from triton.compiler import ASTSource

            from benchmarks.peers.triton_kernel import attention_forward

            signature = {name: _type(name, values[name]) for name in names}
            signature |= dict.fromkeys(constants, "constexpr")
            self._compiled[key] = compile_source(
                ASTSource(attention_forward, signature, constants, facts),
                target=GPUTarget("hip", runtime.device_props().arch, LANES_PER_WAVE),
                # What the autotuner of Triton's tutorial offers for this architecture.
                options={
                    "num_warps": _num_waves(shape),
                    "num_stages": 1,
                    "waves_per_eu": 2,
                    "enable_fp_fusion": True,
                },
            )
        return self._compiled[key]

    def launch(self, shape: Shape, operands: Operands) -> Launch:
        """As Triton's own launcher would make it."""
        compiled = self._compile(shape, operands)
        values = self._arguments(shape, operands)
        format_ = "<"
        for name, value in values.items():
            code = "Q" if name in _POINTERS else "i" if isinstance(value, int) else "f"
            format_ += "x" * (-struct.calcsize(format_) % (8 if code == "Q" else 4)) + code
        # Two addresses that the compiler appends: global scratch and profile scratch, unused.
        format_ += "x" * (-struct.calcsize(format_) % 8) + "QQ"
        return Launch(
            compiled.asm["hsaco"],
            compiled.metadata.name,
            _grid(shape),
            (_num_waves(shape) * LANES_PER_WAVE, 1, 1),
            struct.pack(format_, *values.values(), 0, 0),
            compiled.metadata.shared,
        )

    def walk(self, shape: Shape) -> Walk:
        """A workgroup takes one tile of Q."""
        x, head, batch = grid_indices(_grid(shape))
        tile = _tile_q(shape)
        begin, end = kv_range_of_tiles(shape, tile, _TILE_KV, x)
        q_end = np.minimum((x + 1) * tile, shape.seqlen_q)
        return Walk(end - begin, batch, q_end, streams(shape, batch, head), begin, end)


def _tile_q(shape: Shape) -> int:
    """No larger than a short Q needs."""
    return min(max(1 << (shape.seqlen_q - 1).bit_length(), _LEAST_TILE_Q), _TILE_Q)


def _num_waves(shape: Shape) -> int:
    return min(_tile_q(shape) // _LEAST_TILE_Q, 4)


def _grid(shape: Shape) -> tuple[int, int, int]:
    return -(-shape.seqlen_q // _tile_q(shape)), shape.heads_q, shape.batch


def _type(name: str, value: int | float) -> str:
    if name in _POINTERS:
        return "*fp32" if name == "sinks" else "*bf16"
    return "i32" if isinstance(value, int) else "fp32"
