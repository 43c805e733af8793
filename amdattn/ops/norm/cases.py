"""RMS normalisation as an operation: options, cases, and expected results."""

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
from amdattn.ops.norm import planning
from amdattn.ops.norm.planning import RMS_NORM
from amdattn.ops.norm.problem import NormProblem
from amdattn.ops.norm.rms_norm import NormPlan, planned

# The largest relative error of one rounding.
_ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
PARTS = {False: (1, 3, 6), True: (2, 4, 5, 7)}  # columns of a chunk, without and with a residual
# A factor of rows with squares so small that roots without eps are scaled; float16 has none.
TINY = {"bfloat16": 2.0**-52, "float16": 1.0}
_OF_SUMS = 2.0**-15  # for float32 sums of some hundreds of squares in a lane, and of lanes


@dataclass(frozen=True)
class NormCase(Case[NormProblem]):
    """Normally distributed rows.

    Attributes
    ----------
    scale : float
        A factor of the rows.
    """

    scale: float = 1.0

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """Random host arrays by operand; equal seeds give equal arrays."""
        problem, rng = self.problem, np.random.default_rng(seed)
        elements = dict.fromkeys(("x", "residual"), as_dtype(problem.dtype).numpy())
        elements["weight"] = problem.weight_element.numpy()
        shapes = {"x": (*problem.shape, problem.columns), "weight": (problem.columns,)}
        shapes |= {"residual": shapes["x"]} if problem.residual else {}
        factors = {"weight": 1}
        return {
            name: (
                rng.standard_normal(shape, np.float32) * factors.get(name, np.float32(self.scale))
            ).astype(elements[name])
            for name, shape in shapes.items()
        }


def expected(case: NormCase, inputs: Mapping[str, NDArray[Any]]) -> dict[str, Expected]:
    """Results in float64, and their errors by rounding and float32 sums; the sum is exact."""
    x, weight = inputs["x"], inputs["weight"].astype(np.float64)
    found = {}
    if case.problem.residual:
        added = x.astype(np.float32) + inputs["residual"].astype(np.float32)
        x = added.astype(x.dtype)
        found["residual_out"] = Expected(x.astype(np.float64), 0.0)
    rows = x.astype(np.float64)
    mean = (rows**2).mean(axis=-1, keepdims=True)
    out = rows * weight / np.sqrt(mean + np.float64(np.float32(case.problem.eps)))
    allowed = (_ROUNDING[case.problem.dtype] + _OF_SUMS) * float(np.abs(out).max())
    return {"out": Expected(out, allowed), **found}


_SIZES = (
    *((1, 1), (3, 2), (2, 7), (5, 8), (9, 9), (33, 63), (31, 64), (65, 65), (3, 127), (2, 1025)),
    *((7, 1000), (4, 4095), (3, 4096), (2, 8193), (1, 16384), (1, 16385)),
)


def cases(row: KernelSpec | None) -> Iterator[NormCase]:
    """Sizes around those of chunks, waves and tiles, or around the least and most of one kernel."""
    if row is None:
        for i, (rows, columns) in enumerate(_SIZES):
            for dtype in ("bfloat16", "float16"):
                for weights in (None, FLOAT32.name)[: 1 + (i % 3 == 0)]:
                    of_rows: dict[str, Any] = {"residual": i % 2 == 0, "weight_dtype": weights}
                    yield NormCase(NormProblem((rows,), columns, dtype, **of_rows))
        return
    least, most = row.accepts["columns"]
    tile = row.tile["rows"]
    of_kernel = [
        (residual, *size, 1.0, 1e-5)
        for residual in row.accepts["residual"]
        for size in dict.fromkeys(
            (
                *((1, least), (tile + 1, most), (2 * tile + 1, most - 1)),
                # Parts of the last chunk, just after a step and just before its end.
                *((tile + 2, min(most, max(least, most // 2 + n))) for n in PARTS[residual]),
                *((1, max(least, most // 2 - n)) for n in PARTS[residual]),
            )
        )
    ]
    for columns in (most, max(least, most - 1)):
        of_kernel.append((row.accepts["residual"][0], 1, columns, TINY[row.dtype], 0.0))
    for residual, rows, columns, scale, eps in of_kernel:
        problem = NormProblem(
            *((rows,), columns, row.dtype, residual, eps), weight_dtype=row.params["weight_dtype"]
        )
        yield NormCase(problem, kernel=row.name, scale=scale)


def larger(on_gpu: bool) -> Iterator[NormCase]:
    """A case with the rows of a long prompt."""
    for dtype in ("bfloat16", "float16"):
        yield NormCase(NormProblem((8192 if on_gpu else 400,), 4096, dtype, residual=True))


def _problem(rows: int, **options: Any) -> NormProblem:
    return NormProblem((rows,), **options)


# Options that every normalisation has.
ROWS_OPTIONS = (
    Option("rows", int, REQUIRED, "Rows of x."),
    Option("columns", int, REQUIRED, "Elements per row."),
    Option("dtype", str, "bfloat16", "bfloat16 or float16."),
)
RESIDUAL_OPTION = Option(
    "residual",
    bool,
    False,
    "Add a residual before; the sum is also a result.",
    ("--residual",),
)
IN_PLACE_OPTION = Option(
    "in_place", bool, False, "Write a result to x or the residual.", ("--in-place",)
)

OPERATION = Operation(
    name="rms_norm",
    title="RMS normalisation",
    kernel_ops=(RMS_NORM,),
    plan_type=NormPlan,
    options=(
        *ROWS_OPTIONS,
        RESIDUAL_OPTION,
        Option("eps", float, 1e-6, "Epsilon that is added to the mean square."),
        IN_PLACE_OPTION,
        Option(
            "weight_dtype", str | None, None, "Element type of the weight: float32; default: dtype."
        ),
    ),
    problem=_problem,
    choices=planning.choices,
    build=planning.build,
    reference=expected,
    planned=planned,
    cases=cases,
    larger=larger,
)
