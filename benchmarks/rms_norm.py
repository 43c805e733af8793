"""Prints the kernels of RMS normalisation beside their bar and beside Triton, modelled.

    python -m benchmarks.rms_norm [--dtype bfloat16] [--weight-dtype float32] [--triton]
                                  [--json FILE] [--clock-mhz 2100]
                                  [--shapes ROWS,COLUMNS[,residual] ...]

Caches are cold. The bar is a launch, 1.2 us, and every byte once at 0.95 of the rate at which the
model copies (`hbm_rate` of the micro kernels); times count a launch as well. Triton's kernel is
`triton_rms_norm`, one workgroup a row, with the waves that Triton's tutorial on layer normalisation
takes for that size; it needs Triton, which compiles without a GPU.
"""

from __future__ import annotations

import argparse
import json
import struct
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import amdattn
from amdattn import virtual
from amdattn.bench.clocks import clocks
from amdattn.bench.kernels import Functions, Launch
from amdattn.device import runtime
from amdattn.device.kernarg import packer
from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import as_dtype
from amdattn.ops.norm import planning
from amdattn.ops.norm.problem import NormProblem
from amdattn.ops.norm.rms_norm import planned
from benchmarks.performance_model.micro import hbm_rate

ROWS = (1, 2, 8, 64, 512, 4096, 16384)
COLUMNS = (64, 100, 1024, 4096, 8192, 16384)
_LAUNCH_US = clocks("gfx942").launch_us
_FIXED_US, _SHARE_OF_RATE = 1.2, 0.95
_EPS = 1e-5
_LANES_PER_WAVE = 64
_ELEMENT_BYTES = 2


@dataclass(frozen=True)
class Shape:
    """Rows of so many columns, next to each other."""

    rows: int
    columns: int
    residual: bool
    weight_bytes: int = _ELEMENT_BYTES  # of an element

    @property
    def nbytes(self) -> int:
        """Read and written, each once."""
        arrays = 4 if self.residual else 2
        return self.columns * (_ELEMENT_BYTES * arrays * self.rows + self.weight_bytes)

    def bar_us(self, copy_bytes_per_ns: float) -> float:
        """What a launch of it may take."""
        return _LAUNCH_US + _FIXED_US + self.nbytes / (_SHARE_OF_RATE * copy_bytes_per_ns) / 1000

    def __str__(self) -> str:
        return f"{self.rows} x {self.columns}" + ", residual" * self.residual


@dataclass(frozen=True)
class Operands:
    """Addresses; those of a shape without a residual are 0."""

    x: int
    weight: int
    residual: int
    out: int
    sum: int


class Memory:
    """Device memory for the largest shape; what it holds does not matter for the time."""

    def __init__(self, shapes: list[Shape]) -> None:
        self._row_bytes = _ELEMENT_BYTES * max(shape.rows * shape.columns for shape in shapes)
        weights = max(shape.weight_bytes * shape.columns for shape in shapes)
        self._base = runtime.get().malloc(4 * self._row_bytes + weights)

    def operands(self, shape: Shape) -> Operands:
        """Of one shape."""
        x, residual, out, total, weight = (self._base + i * self._row_bytes for i in range(5))
        if not shape.residual:
            residual = total = 0
        return Operands(x, weight, residual, out, total)


def ours(kernel: KernelSpec, shape: Shape, at: Operands) -> Launch:
    """A launch of a kernel of the manifest."""
    values: dict[str, int | float] = {
        **asdict(at),
        **{f"{name}_stride": shape.columns for name in ("x", "residual", "out", "sum")},
        **{"columns": shape.columns, "rows": shape.rows, "eps": _EPS},
        "inverse_columns": 1 / shape.columns,
    }
    packed = packer(kernel)
    block = bytearray(packed.size)
    packed.pack_into(block, 0, *(values[name] for name in packed.names))
    grid = planning.grid(kernel, NormProblem((shape.rows,), shape.columns))
    return Launch(kernel.read_code_object(), kernel.symbol, grid, kernel.workgroup, bytes(block))


class Triton:
    """The kernel of `triton_rms_norm`, compiled for what Triton's own launcher would find."""

    def __init__(self, dtype: str, weight_dtype: str) -> None:
        self._pointer, self._to_weight = (f"*{as_dtype(of).short}" for of in (dtype, weight_dtype))
        self._compiled: dict[tuple[object, ...], Any] = {}

    def launch(self, shape: Shape, at: Operands) -> Launch:
        """A workgroup a row."""
        tile = 1 << (shape.columns - 1).bit_length()
        waves = min(max(tile // 256, 1), 8)
        compiled = self._compile(shape, tile, waves)
        pointers = (at.x, at.weight, at.residual, at.out, at.sum)
        packed = struct.pack("<5Qif", *pointers, shape.columns, _EPS)
        # Two addresses that the compiler appends: global scratch and profile scratch, unused.
        packed += bytes(16)
        return Launch(
            compiled.asm["hsaco"],
            compiled.metadata.name,
            (shape.rows, 1, 1),
            (waves * _LANES_PER_WAVE, 1, 1),
            packed,
            compiled.metadata.shared,
        )

    def _compile(self, shape: Shape, tile: int, waves: int) -> Any:
        divisible = shape.columns % 16 == 0
        key = (shape.residual, tile, divisible)
        if key not in self._compiled:
            from triton import compile as compile_source
            from triton.backends.compiler import GPUTarget
            from triton.compiler import ASTSource

            from benchmarks.triton_rms_norm import rms_norm

            names = ("x", "weight", "residual", "out", "total")
            constants = {"RESIDUAL": shape.residual, "TILE": tile}
            facts = {(i,): [["tt.divisibility", 16]] for i in range(5 + divisible)}
            signature = dict.fromkeys(names, self._pointer) | {"weight": self._to_weight}
            signature |= {"columns": "i32", "eps": "fp32"}
            self._compiled[key] = compile_source(
                ASTSource(
                    rms_norm, signature | dict.fromkeys(constants, "constexpr"), constants, facts
                ),
                target=GPUTarget("hip", runtime.device_props().arch, _LANES_PER_WAVE),
                options={"num_warps": waves, "enable_fp_fusion": True},
            )
        return self._compiled[key]


def modelled_us(launch: Launch, functions: Functions, clock_mhz: int) -> float:
    """With the launch overhead."""
    with virtual.profile(clock_mhz=clock_mhz) as profile:
        launch.enqueue(functions)
        runtime.synchronize()
    return _LAUNCH_US + profile.launches[0].cycles / clock_mhz


def geomean(values: list[float]) -> float:
    """Geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


def _shape(text: str) -> Shape:
    rows, columns, *more = text.split(",")
    if more not in ([], ["residual"]):
        raise argparse.ArgumentTypeError(f"{text!r} must be ROWS,COLUMNS or ROWS,COLUMNS,residual")
    return Shape(int(rows), int(columns), bool(more))


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), default="bfloat16")
    parser.add_argument("--weight-dtype", choices=("float32",), help="default: as x")
    parser.add_argument("--triton", action="store_true")
    parser.add_argument("--json", type=Path, help="write every result here")
    parser.add_argument("--clock-mhz", type=int, default=2100)
    every = [Shape(r, c, residual) for residual in (False, True) for c in COLUMNS for r in ROWS]
    parser.add_argument("--shapes", nargs="*", type=_shape, default=every)
    options = parser.parse_args()
    dtype = as_dtype(options.dtype).name
    of_weight = as_dtype(options.weight_dtype or dtype)
    shapes = [replace(shape, weight_bytes=of_weight.itemsize) for shape in options.shapes]
    functions, clock, memory = Functions(), options.clock_mhz, Memory(shapes)
    props = amdattn.device_props()
    triton = Triton(dtype, of_weight.name) if options.triton else None
    copy_bytes_per_ns = 1000 * hbm_rate(1, True, mhz=clock)
    print(f"us, modelled at {clock} MHz; copies at {copy_bytes_per_ns:.0f} bytes/ns\n")
    heads = ["rows x columns", "bar", dtype, "of bar", "kernel"]
    heads += ["Triton", "Triton / ours"] if triton else []
    print(f"| {' | '.join(heads)} |\n|---|--:|--:|--:|---|{'--:|' * (len(heads) - 5)}")
    rows: list[dict[str, Any]] = []
    for shape in shapes:
        problem = NormProblem(
            *((shape.rows,), shape.columns, dtype, shape.residual), weight_dtype=of_weight.name
        )
        kernel = planned(problem, props).launches[0].kernel
        at, bar = memory.operands(shape), shape.bar_us(copy_bytes_per_ns)
        us = modelled_us(ours(kernel, shape, at), functions, clock)
        row = {**asdict(shape), "bar_us": bar, "us": us, "kernel": kernel.name}
        name = kernel.name.removeprefix(f"rms_norm_{as_dtype(dtype).short}_")
        cells = [str(shape), f"{bar:.2f}", f"{us:.2f}", f"{us / bar:.3f}", name]
        if triton:
            row["triton_us"] = modelled_us(triton.launch(shape, at), functions, clock)
            cells += [f"{row['triton_us']:.2f}", f"{row['triton_us'] / us:.2f}"]
        print(f"| {' | '.join(cells)} |", flush=True)
        rows.append(row)
    met = sum(row["us"] <= row["bar_us"] for row in rows)
    print(f"\n{met} of {len(rows)} shapes meet the bar", end="")
    worst = max(rows, key=lambda row: row["us"] / row["bar_us"])
    print(f"; the farthest, {worst['rows']} x {worst['columns']}, takes ", end="")
    print(f"{worst['us'] / worst['bar_us']:.3f} of it.")
    if triton:
        ratio = geomean([row["triton_us"] / row["us"] for row in rows])
        print(f"Triton / ours, launches counted: geometric mean {ratio:.3f}.")
    if options.json:
        document = {"clock_mhz": clock, "dtype": dtype, "copy_bytes_per_ns": copy_bytes_per_ns}
        options.json.write_text(json.dumps(document | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
