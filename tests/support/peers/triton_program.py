"""Compiles a Triton kernel for the bound device, and launches it as its own launcher would."""

from __future__ import annotations

import struct
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from triton import compile as compile_source
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from amdattn.device import runtime
from tests.support.peers.peer_device import WAVE_LANES, Buffers, Kernel, read

# Pointers as Triton's own launcher finds them: allocations are 256-byte aligned and, under 2 GiB,
# addressed by buffer instructions.
_POINTER_FACTS = [["tt.divisibility", 16], ["tt.pointer_range", 32]]
_POINTERS = {
    np.dtype(dtype): f"*{name}"
    for dtype, name in [
        (np.float64, "fp64"),
        (np.float32, "fp32"),
        (np.float16, "fp16"),
        (ml_dtypes.bfloat16, "bf16"),
        (ml_dtypes.float8_e4m3fnuz, "fp8e4b8"),
        (ml_dtypes.float8_e5m2fnuz, "fp8e5b16"),
        (ml_dtypes.float8_e4m3fn, "fp8e4nv"),
        (ml_dtypes.float8_e5m2, "fp8e5"),
        (np.int64, "i64"),
        (np.int32, "i32"),
        (np.int8, "i8"),
    ]
}


class Program:
    """A kernel compiled for the types of its arguments.

    Parameters
    ----------
    function : triton.JITFunction
        Its tl.constexpr parameters follow all others.
    *args : array, int (32 bits) or float (float32)
    num_waves : int
        Waves of a workgroup.
    **constants : values of the tl.constexpr parameters
    """

    def __init__(
        self,
        function: Any,
        *args: NDArray[Any] | int | float,
        num_waves: int = 4,
        num_stages: int = 2,
        **constants: Any,
    ) -> None:
        names = function.arg_names[: len(args)]
        signature = {name: _type(arg) for name, arg in zip(names, args, strict=True)}
        facts = {(i,): _POINTER_FACTS for i, arg in enumerate(args) if isinstance(arg, np.ndarray)}
        source = ASTSource(
            function, signature | dict.fromkeys(constants, "constexpr"), constants, facts
        )
        options = {
            "num_warps": num_waves,
            "num_stages": num_stages,
            "enable_fp_fusion": True,
        }
        target = GPUTarget("hip", runtime.device_props().arch, WAVE_LANES)
        compiled = compile_source(source, target=target, options=options)
        self.assembly: str = compiled.asm["amdgcn"]
        self.dynamic_lds_bytes: int = compiled.metadata.shared
        self._lanes = num_waves * WAVE_LANES
        self._args = args
        self._kernel = Kernel(compiled.asm["hsaco"], compiled.metadata.name)

    def __call__(
        self, grid: tuple[int] | tuple[int, int], *outputs: NDArray[Any]
    ) -> list[NDArray[Any]]:
        """Launch over `grid` workgroups; returns what those of the arguments then hold."""
        with Buffers() as buffers:
            at: dict[int, int] = {}
            format_ = "<"
            values: list[int | float] = []
            for arg in self._args:
                if isinstance(arg, np.ndarray):
                    at[id(arg)] = buffers.put(arg)
                    format_ += _pad(format_, 8) + "Q"
                    values.append(at[id(arg)])
                else:
                    format_ += "i" if isinstance(arg, int) else "f"
                    values.append(arg)
            # Two addresses that the compiler appends: global scratch and profile scratch, unused.
            kernarg = struct.pack(format_ + _pad(format_, 8) + "QQ", *values, 0, 0)
            x, y = (*grid, 1)[:2]
            self._kernel.launch((x, y, 1), self._lanes, kernarg, self.dynamic_lds_bytes)
            return [read(at[id(array)], array.shape, array.dtype) for array in outputs]


def _type(arg: NDArray[Any] | int | float) -> str:
    if isinstance(arg, np.ndarray):
        return _POINTERS[arg.dtype]
    return "i32" if isinstance(arg, int) else "fp32"


def _pad(format_: str, alignment: int) -> str:
    return "x" * (-struct.calcsize(format_) % alignment)
