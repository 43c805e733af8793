"""Quantisation to 8 bits as an operation: options, cases, and expected results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdattn.arch.architectures import Architecture, architecture
from amdattn.device import runtime
from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import DType, as_dtype
from amdattn.op.operation import Case, Expected, Operation
from amdattn.op.options import REQUIRED, Option
from amdattn.ops.quantize import planning
from amdattn.ops.quantize.planning import MAXIMA, OF_BLOCKS, QUANTIZE_FP8
from amdattn.ops.quantize.problem import BLOCK, BLOCKS, LEAST_SCALE, NARROW, QuantizeProblem
from amdattn.ops.quantize.quantize_fp8 import QuantizePlan, planned


@dataclass(frozen=True)
class QuantizeCase(Case[QuantizeProblem]):
    """Normally distributed rows of different magnitudes, and one of zeros.

    Attributes
    ----------
    arch : str
        The architecture whose 8-bit type results have; "": the bound device's.
    """

    arch: str = ""

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """Random host arrays by operand; equal seeds give equal arrays."""
        p, rng = self.problem, np.random.default_rng(seed)
        sizes = np.exp2(rng.integers(-8, 9, (p.rows, 1)))
        if p.rows > 2:
            sizes[rng.integers(p.rows)] = 0
        x = rng.standard_normal((p.rows, p.columns), np.float32) * sizes
        made = {"x": x.astype(as_dtype(p.dtype).numpy())}
        if p.scale:  # then some results exceed the greatest number, and others are denormal
            made["scale"] = np.exp2(rng.uniform(-12, 4, p.scales)).astype(np.float32)
        return made

    @property
    def narrow(self) -> DType:
        """The type of y."""
        known: Architecture = (
            architecture(self.arch) if self.arch else runtime.device_props().architecture
        )
        return self.problem.narrow(known)


def greatest_number(element: np.dtype[Any]) -> np.float32:
    """The greatest number of an 8-bit type."""
    every = np.arange(256, dtype=np.uint8).view(element).astype(np.float32)
    most: np.float32 = every[np.isfinite(every)].max()
    return most


def expected(case: QuantizeCase, inputs: Mapping[str, NDArray[Any]]) -> dict[str, Expected]:
    """The exact bits: scales, reciprocals and products in float32, rounded once more."""
    p, element = case.problem, case.narrow.numpy()
    most = greatest_number(element)
    x = inputs["x"].astype(np.float32)
    found = {}
    if p.scale:
        scale = inputs["scale"][:, None]
    else:
        greatest = _of_blocks(np.abs(x)) if p.per == BLOCKS else _of_rows(np.abs(x), p.per)
        scale = np.maximum(greatest / most, np.float32(LEAST_SCALE))
        found["out_scale"] = Expected(scale.reshape(p.scale_shape).astype(np.float64), 0.0)
        if p.per == BLOCKS:
            scale = scale.repeat(BLOCK, 0).repeat(BLOCK, 1)[: p.rows, : p.columns]
    quotient = np.clip(x * (np.float32(1) / scale), -most, most)
    return {"out": Expected(quotient.astype(element).astype(np.float64), 0.0), **found}


def _of_rows(sizes: NDArray[np.float32], per: str) -> NDArray[np.float32]:
    found: NDArray[np.float32] = sizes.max(axis=1 if per == "row" else None, keepdims=True)
    return found


def _of_blocks(sizes: NDArray[np.float32]) -> NDArray[np.float32]:
    rows, columns = sizes.shape
    whole = np.pad(sizes, ((0, -rows % BLOCK), (0, 0))).reshape(-1, BLOCK, columns // BLOCK, BLOCK)
    found: NDArray[np.float32] = whole.max(axis=(1, 3))
    return found


_WAYS = (("row", False), ("tensor", False), ("row", True), ("tensor", True))
_SIZES = (
    *(
        (1, 1),
        (3, 7),
        (2, 8),
        (2, 3),
        (5, 9),
        (9, 63),
        (33, 64),
        (17, 65),
        (4, 511),
        (3, 1025),
        (7, 1000),
    ),
    *((2, 4095), (3, 4096), (1, 8193), (1, 32769)),
)


def cases(row: KernelSpec | None) -> Iterator[QuantizeCase]:
    """Sizes around those of chunks, waves and tiles, or around the least and most of one kernel."""
    if row is None:
        for i, (rows, columns) in enumerate(_SIZES):
            for j, dtype in enumerate(("bfloat16", "float16", "float32")):
                to, (per, scale) = NARROW[(i + j) % 2], _WAYS[(i + j) % 4]
                yield QuantizeCase(QuantizeProblem(rows, columns, dtype, to, per, scale))
        for rows, columns in ((1, 128), (300, 256)):
            for dtype in ("bfloat16", "float16", "float32"):
                yield QuantizeCase(QuantizeProblem(rows, columns, dtype, per=BLOCKS))
        return
    least, tile = row.accepts["columns_of_row"][0], row.tile
    (to,) = row.accepts["to"]
    most = tile["columns"]
    for rows, columns in (
        *((1, least), (tile["rows"] + 1, most), (2 * tile["rows"] + 1, most - 1)),
        *((tile["rows"] + 2, max(least, most // 2 + 3)), (1, max(least, most // 2 - 1))),
        *((2, most + 5), (1, 2 * most)),
    ):
        for per, scale in _WAYS:
            problem = QuantizeProblem(rows, columns, row.dtype, to, per, scale)
            if not planning.mismatches(row, problem):
                yield QuantizeCase(problem, kernel=row.name, arch=row.arch)


def larger(on_gpu: bool) -> Iterator[QuantizeCase]:
    """A case with the rows of a long prompt."""
    for per in ("row", "tensor"):
        yield QuantizeCase(QuantizeProblem(8192 if on_gpu else 400, 4096, per=per))


OPERATION = Operation(
    name="quantize_fp8",
    title="the quantisation of rows to 8 bits",
    kernel_ops=(QUANTIZE_FP8, OF_BLOCKS, MAXIMA),
    plan_type=QuantizePlan,
    options=(
        Option("rows", int, REQUIRED, "Rows of x."),
        Option("columns", int, REQUIRED, "Elements per row."),
        Option("dtype", str, "bfloat16", "Element type of x: bfloat16, float16 or float32."),
        Option("to", str, "e4m3", "Element type of the result: the device's e4m3 or e5m2."),
        Option("per", str, "row", "A scale per row, tensor or block of 128 x 128."),
        Option("scale", bool, False, "The scale is given.", ("--scale",)),
    ),
    problem=QuantizeProblem,
    choices=planning.choices,
    best=planning.best,
    build=planning.build,
    reference=expected,
    planned=planned,
    cases=cases,
    larger=larger,
)
