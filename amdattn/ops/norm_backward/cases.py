"""Gradients of RMS normalisation as an operation: options, cases, expected results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import FLOAT32, as_dtype
from amdattn.op.operation import Case, Expected, Operation
from amdattn.op.options import REQUIRED, Option
from amdattn.ops.norm.cases import PARTS, TINY
from amdattn.ops.norm_backward import planning
from amdattn.ops.norm_backward.execution import NormBackwardPlan, planned
from amdattn.ops.norm_backward.planning import COLUMN_SUMS, RMS_NORM_BACKWARD
from amdattn.ops.norm_backward.problem import NormBackwardProblem

# The largest relative error of one rounding, and half of a denormal.
_ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
_LEAST = {"bfloat16": 2.0**-134, "float16": 2.0**-25}
_OF_SUMS = 2.0**-16  # for float32 sums of some hundreds of products in a lane, and of lanes
_FLOAT32 = 2.0**-24


@dataclass(frozen=True)
class NormBackwardCase(Case[NormBackwardProblem]):
    """Normally distributed rows and gradients.

    Attributes
    ----------
    scale : float
        A factor of the rows.
    """

    scale: float = 1.0

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """Random host arrays by operand; equal seeds give equal arrays."""
        p, rng = self.problem, np.random.default_rng(seed)
        element, rows = as_dtype(p.dtype).numpy(), (p.all_rows, p.columns)
        kinds: dict[str, tuple[tuple[int, ...], Any]] = {
            "dout": (rows, element),
            "x": (rows, element),
            "weight": ((p.columns,), p.weight_element.numpy()),
        }
        kinds |= {"dresidual_out": (rows, element)} if p.residual else {}
        factors = {"x": np.float32(self.scale)}
        return {
            name: (rng.standard_normal(shape, np.float32) * factors.get(name, 1)).astype(dtype)
            for name, (shape, dtype) in kinds.items()
        }


def expected(case: NormBackwardCase, inputs: Mapping[str, NDArray[Any]]) -> dict[str, Expected]:
    """Results in float64, and their error: one rounding, and float32 arithmetic."""
    p = case.problem
    dout, x, weight = (inputs[name].astype(np.float64) for name in ("dout", "x", "weight"))
    scale = 1 / np.sqrt((x**2).mean(-1, keepdims=True) + np.float64(np.float32(p.eps)))
    n, g = x * scale, dout * weight
    dx = (g - n * (g * n).mean(-1, keepdims=True)) * scale
    size = (np.abs(g) + np.abs(n) * np.abs(g * n).mean(-1, keepdims=True)) * scale
    if p.residual:
        dsum = inputs["dresidual_out"].astype(np.float64)
        dx, size = dx + dsum, size + np.abs(dsum)
    of_weight = (dout * n).reshape(p.groups, p.rows, p.columns)
    of_rows = (_OF_SUMS + p.rows * _FLOAT32) * np.abs(of_weight).sum(axis=1)
    return {
        "dx": Expected(dx, _ROUNDING[p.dtype] * np.abs(dx) + _LEAST[p.dtype] + _OF_SUMS * size),
        "dweight": Expected(of_weight.sum(axis=1), of_rows),
    }


# Groups, rows, columns.
_SIZES = (
    *((1, 1, 1), (2, 3, 2), (1, 2, 7), (3, 5, 8), (1, 65, 9), (1, 33, 63), (2, 31, 128)),
    *((1, 65, 129), (3, 3, 512), (1, 7, 1000), (1, 4, 2049), (2, 3, 4096), (1, 2, 8191)),
    *((1, 2, 16384), (1, 1, 16385)),
)


def cases(row: KernelSpec | None) -> Iterator[NormBackwardCase]:
    """Sizes around those of chunks, waves and tiles, or around the least and most of one kernel."""
    if row is None:
        for i, (groups, rows, columns) in enumerate(_SIZES):
            for dtype in ("bfloat16", "float16"):
                for weights in (None, FLOAT32.name)[: 1 + (i % 3 == 0)]:
                    yield NormBackwardCase(
                        NormBackwardProblem(
                            *(groups, rows, columns, dtype, i % 2 == 0),
                            weight_dtype=weights,
                        )
                    )
        return
    least, most = row.accepts["columns"]
    tile = row.tile["rows"]
    of_kernel = [
        (residual, *size, 1.0, 1e-5)
        for residual in (False, True)
        for size in dict.fromkeys(
            (
                *((1, 1, least), (2, tile + 1, most), (1, 2 * tile + 1, most - 1)),
                # Parts of the last chunk, just after a step and just before its end.
                *((1, tile + 2, min(most, max(least, most // 2 + n))) for n in PARTS[residual]),
                *((3, 1, max(least, most // 2 - n)) for n in PARTS[residual]),
            )
        )
    ]
    for columns in (most, max(least, most - 1)):
        of_kernel.append((False, 1, 1, columns, TINY[row.dtype], 0.0))
    for residual, groups, rows, columns, scale, eps in of_kernel:
        problem = NormBackwardProblem(
            *(groups, rows, columns, row.dtype, residual, eps),
            weight_dtype=row.params["weight_dtype"],
        )
        yield NormBackwardCase(problem, kernel=row.name, scale=scale)


def larger(on_gpu: bool) -> Iterator[NormBackwardCase]:
    """A case with the rows of a long sequence: several for each block."""
    for dtype in ("bfloat16", "float16"):
        rows = 8192 if on_gpu else 700
        yield NormBackwardCase(NormBackwardProblem(1, rows, 4096, dtype, residual=True))


OPERATION = Operation(
    name="rms_norm_backward",
    title="the gradients of RMS normalisation",
    kernel_ops=(RMS_NORM_BACKWARD, COLUMN_SUMS),
    plan_type=NormBackwardPlan,
    options=(
        Option("groups", int, 1, "Groups of rows, each with a gradient of the weight."),
        Option("rows", int, REQUIRED, "Rows of a group."),
        Option("columns", int, REQUIRED, "Elements per row."),
        Option("dtype", str, "bfloat16", "bfloat16 or float16."),
        Option("residual", bool, False, "Add a gradient of the sum.", ("--residual",)),
        Option("eps", float, 1e-6, "Epsilon that is added to the mean square."),
        Option(
            "weight_dtype", str | None, None, "Element type of the weight: float32; default: dtype."
        ),
    ),
    problem=NormBackwardProblem,
    choices=planning.choices,
    best=planning.best,
    build=planning.build,
    reference=expected,
    planned=planned,
    cases=cases,
    larger=larger,
)
