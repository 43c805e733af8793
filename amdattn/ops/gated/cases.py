"""An activation times a factor as an operation: options, cases, and expected results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import as_dtype
from amdattn.op.operation import Case, Expected, Operation
from amdattn.op.options import REQUIRED, Option
from amdattn.ops.gated import planning
from amdattn.ops.gated.gated import GatedPlan, planned
from amdattn.ops.gated.planning import GATED_ACTIVATION
from amdattn.ops.gated.problem import ACTIVATIONS, GatedProblem
from amdattn.ops.gemm.cases import activated

# The largest relative error of one rounding, and half of the least number.
_ROUNDING = {"bfloat16": (2.0**-8, 2.0**-134), "float16": (2.0**-11, 2.0**-25)}
_OF_ACTIVATION = 2.0**-17  # relative: exponentials, quotients and fits in float32
_LEAST_OF_FLOAT32 = 2.0**-149


@dataclass(frozen=True)
class GatedCase(Case[GatedProblem]):
    """Normally distributed gates and factors."""

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """Random host arrays by operand; equal seeds give equal arrays."""
        problem, rng = self.problem, np.random.default_rng(seed)
        shape = *problem.shape, problem.columns
        element = as_dtype(problem.dtype).numpy()
        made = {name: rng.standard_normal(shape, np.float32) for name in ("gate", "up")}
        return {
            "gate": (2 * made["gate"]).astype(element),  # far into both ends of an activation
            "up": made["up"].astype(element),
        }


def expected(case: GatedCase, inputs: Mapping[str, NDArray[Any]]) -> dict[str, Expected]:
    """Results in float64, and their error: one rounding, and float32 arithmetic."""
    gate, up = (inputs[name].astype(np.float64) for name in ("gate", "up"))
    of_result, least = _ROUNDING[case.problem.dtype]
    with np.errstate(invalid="ignore", over="ignore"):
        factor = activated(case.problem.activation, gate)
        out = factor * up
        error = (of_result + _OF_ACTIVATION) * np.abs(out) + least
        error += _LEAST_OF_FLOAT32 * np.abs(up)
    return {"out": Expected(out, np.where(np.isfinite(error), error, 0.0))}


_SIZES = (
    *((1, 1), (3, 2), (2, 7), (5, 8), (9, 9), (33, 63), (31, 64), (65, 65), (3, 127), (2, 1025)),
    *((7, 1000), (4, 4095), (3, 4096), (1, 8193)),
)


def cases(row: KernelSpec | None) -> Iterator[GatedCase]:
    """Sizes around those of chunks, waves and workgroups; for one kernel, every activation."""
    if row is None:
        for i, (rows, columns) in enumerate(_SIZES):
            for dtype in _ROUNDING:
                activation = list(ACTIVATIONS)[i % len(ACTIVATIONS)]
                yield GatedCase(GatedProblem((rows,), columns, dtype, activation))
        return
    tile: int = row.tile["chunks"]
    for activation in ACTIVATIONS:
        for rows, columns in ((1, 1), (tile + 1, 8), (3, 8 * tile + 5), (tile // 2, 20), (7, 261)):
            problem = GatedProblem((rows,), columns, row.dtype, activation)
            yield GatedCase(problem, kernel=row.name)


def larger(on_gpu: bool) -> Iterator[GatedCase]:
    """A case with the rows of a long prompt."""
    for dtype in _ROUNDING:
        yield GatedCase(GatedProblem((8192 if on_gpu else 100,), 14336, dtype))


def _problem(rows: int, **options: Any) -> GatedProblem:
    return GatedProblem((rows,), **options)


OPERATION = Operation(
    name="gated_activation",
    title="a gated activation",
    kernel_ops=(GATED_ACTIVATION,),
    plan_type=GatedPlan,
    options=(
        Option("rows", int, REQUIRED, "Rows of the gate."),
        Option("columns", int, REQUIRED, "Columns of the result, of the gate and of the factor."),
        Option("dtype", str, "bfloat16", "bfloat16 or float16."),
        Option("activation", str, "silu", "silu, gelu or gelu_tanh."),
        Option("in_place", bool, False, "Write the result to an operand.", ("--in-place",)),
    ),
    problem=_problem,
    choices=planning.choices,
    build=planning.build,
    reference=expected,
    planned=planned,
    cases=cases,
    larger=larger,
)
