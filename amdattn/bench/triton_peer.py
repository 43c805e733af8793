"""The kernel of `triton_kernel`, compiled on the spot by the user's Triton without a GPU."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from amdattn import runtime
from amdattn.bench.kernels import Launch, Operands, Walk, grid_indices, kv_rows_of_tiles
from amdattn.bench.shapes import Shape
from amdattn.errors import AmdattnError

LANES_PER_WAVE = 64
_NUM_WAVES = 4
_TILE_Q, _TILE_KV = 128, 64
_POINTERS = ("q", "k", "v", "o")
# Of a pointer: what Triton's own launcher would find of a 256-byte aligned allocation.
_ALIGNED = [["tt.divisibility", 16]]
_UNDER_2_GIB = [["tt.pointer_range", 32]]
_INT_MAX = 2**31 - 1


class TritonMissing(AmdattnError):
    """--peer triton without Triton, or with one that cannot compile for the device."""


class Triton:
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
        dim = shape.head_dim
        if dim < 16 or dim & (dim - 1):
            return f"head_dim={dim} is not a power of two of at least 16"
        if max(stride for x in "qkvo" for stride in shape.strides(x).values()) > _INT_MAX:
            return f"strides beyond {_INT_MAX} do not fit its 32-bit arguments"
        return ""

    def _arguments(self, shape: Shape, operands: Operands | None) -> dict[str, int | float]:
        values: dict[str, int | float] = {
            name: operands.addresses[name] if operands else 0 for name in _POINTERS
        }
        values["softmax_scale_log2"] = shape.problem("rtne").softmax_scale_log2
        for name in _POINTERS:
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
            if name in _POINTERS:
                whole = operands.shape if operands else shape
                nbytes = whole.strides(name)["batch"] * whole.batch * 2
                facts[(i,)] = _ALIGNED + (_UNDER_2_GIB if nbytes <= _INT_MAX else [])
            elif isinstance(values[name], int) and values[name] % 16 == 0:
                facts[(i,)] = _ALIGNED
        key = (shape.causal, shape.head_dim, repr(facts))
        if key not in self._compiled:
            from triton import compile as compile_source
            from triton.backends.compiler import GPUTarget
            from triton.compiler import ASTSource

            from amdattn.bench.triton_kernel import attention_forward

            constants = {
                "CAUSAL": shape.causal,
                "HEAD_DIM": shape.head_dim,
                "TILE_Q": _TILE_Q,
                "TILE_KV": _TILE_KV,
            }
            signature = {
                name: "*bf16" if name in _POINTERS else _scalar_type(values[name]) for name in names
            } | dict.fromkeys(constants, "constexpr")
            self._compiled[key] = compile_source(
                ASTSource(attention_forward, signature, constants, facts),
                target=GPUTarget("hip", runtime.device_props().arch, LANES_PER_WAVE),
                # What the autotuner of Triton's tutorial offers for this architecture.
                options={
                    "num_warps": _NUM_WAVES,
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
            (_NUM_WAVES * LANES_PER_WAVE, 1, 1),
            struct.pack(format_, *values.values(), 0, 0),
            compiled.metadata.shared,
        )

    def walk(self, shape: Shape) -> Walk:
        """A workgroup takes one tile of Q."""
        x, _, batch = grid_indices(_grid(shape))
        rows = kv_rows_of_tiles(shape, _TILE_Q, _TILE_KV, x)
        return Walk(rows, batch, np.minimum((x + 1) * _TILE_Q, shape.seqlen_q))


def _grid(shape: Shape) -> tuple[int, int, int]:
    return -(-shape.seqlen_q // _TILE_Q), shape.heads_q, shape.batch


def _scalar_type(value: int | float) -> str:
    return "i32" if isinstance(value, int) else "fp32"
