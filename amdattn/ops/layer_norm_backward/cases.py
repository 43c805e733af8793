"""Gradients of rows normalised with all options, as an operation: options, cases, results."""

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
from amdattn.ops.layer_norm.reference import dropped, kept
from amdattn.ops.layer_norm_backward import planning
from amdattn.ops.layer_norm_backward.execution import LayerNormBackwardPlan, planned
from amdattn.ops.layer_norm_backward.planning import NORM_BACKWARD
from amdattn.ops.layer_norm_backward.problem import LayerNormBackwardProblem
from amdattn.ops.norm.cases import TINY
from amdattn.ops.norm_backward.planning import COLUMN_SUMS

# The largest relative error of one rounding, and half of a denormal.
_ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
_LEAST = {"bfloat16": 2.0**-134, "float16": 2.0**-25}
_OF_SUMS = 2.0**-16  # for float32 sums of some hundreds of products in a lane, and of lanes
_FLOAT32 = 2.0**-24


@dataclass(frozen=True)
class LayerNormBackwardCase(Case[LayerNormBackwardProblem]):
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
        found: dict[str, NDArray[Any]] = {
            name: (rng.standard_normal(shape, np.float32) * factors.get(name, 1)).astype(dtype)
            for name, (shape, dtype) in kinds.items()
        }
        if p.draws:
            found["state"] = rng.integers(1, 2**60, 2, np.int64).view(np.int32)
        return found


def expected(
    case: LayerNormBackwardCase, inputs: Mapping[str, NDArray[Any]]
) -> dict[str, Expected]:
    """Results in float64, and their error: one rounding, and float32 arithmetic."""
    p = case.problem
    dout, weight = (inputs[name].astype(np.float64) for name in ("dout", "weight"))
    stays = np.ones((p.all_rows, p.columns), np.bool_)
    h = inputs["x"]
    if p.draws:
        state = (inputs["state"].view(np.int64) - np.array([0, p.behind])).view(np.int32)
        stays = kept(p.forward, state)
        if not p.residual:
            h = dropped(p.forward, {"x": h, "state": state})
    rows = h.astype(np.float64)
    apart = rows if p.rms else rows - rows.mean(-1, keepdims=True)
    scale = 1 / np.sqrt((apart**2).mean(-1, keepdims=True) + np.float64(np.float32(p.eps)))
    n, g = apart * scale, dout * weight
    mean = np.float64(0) if p.rms else g.mean(-1, keepdims=True)
    of_mean = np.float64(0) if p.rms else np.abs(g).mean(-1, keepdims=True)
    dh = (g - mean - n * (g * n).mean(-1, keepdims=True)) * scale
    size = np.abs(g) + of_mean + (np.abs(n) + 1) * np.abs(g * n).mean(-1, keepdims=True)
    size = size * scale
    if p.residual:
        dsum = inputs["dresidual_out"].astype(np.float64)
        dh, size = dh + dsum, size + np.abs(dsum)
    factor = np.where(stays, p.forward.kept, 0)

    def rounded(x: NDArray[np.float64], of: NDArray[np.float64]) -> Expected:
        slack = _OF_SUMS * of + np.where(of > 0, _LEAST[p.dtype], 0)
        return Expected(x, _ROUNDING[p.dtype] * np.abs(x) + slack)

    found = {"dx": rounded(dh * factor, size * factor)}
    if p.splits:
        found["dresidual"] = rounded(dh, size)
    products = [dout * (n + 0), dout][: 1 + p.bias]
    of_rows = np.stack([x.reshape(p.groups, p.rows, p.columns) for x in products], 1)
    sizes = [np.abs(dout) * (np.abs(n) + 1), np.abs(dout)][: 1 + p.bias]
    all_sizes = np.stack([x.reshape(p.groups, p.rows, p.columns) for x in sizes], 1)
    allowed = (_OF_SUMS + p.rows * _FLOAT32) * all_sizes.sum(axis=2)
    return {**found, "dparameters": Expected(of_rows.sum(axis=2), allowed)}


# Groups, rows, columns.
_SIZES = (
    *((1, 1, 1), (2, 3, 2), (1, 2, 7), (3, 5, 8), (1, 65, 9), (1, 33, 63), (2, 31, 128)),
    *((1, 65, 129), (3, 3, 512), (1, 7, 1000), (1, 4, 2049), (2, 3, 4096), (1, 2, 8191)),
    (1, 2, 16384),
)
_OPTIONS: tuple[dict[str, Any], ...] = (
    {"bias": True},
    {"bias": True, "residual": True, "dropout_p": 0.1},
    {"dropout_p": 0.5, "behind": 0},
    {"residual": True},
    {"rms": True, "dropout_p": 0.25, "residual": True},
)


def cases(row: KernelSpec | None) -> Iterator[LayerNormBackwardCase]:
    """Sizes around those of chunks, waves and tiles, or around the least and most of one kernel."""
    if row is None:
        for i, sizes in enumerate(_SIZES):
            for j, dtype in enumerate(("bfloat16", "float16")):
                options = {**_OPTIONS[(2 * i + j) % len(_OPTIONS)]}
                options["weight_dtype"] = FLOAT32.name if i % 3 == 0 else None
                yield LayerNormBackwardCase(LayerNormBackwardProblem(*sizes, dtype, **options))
        return
    least, most = row.accepts["columns"]
    tile = row.tile["rows"]
    weights: dict[str, Any] = {"weight_dtype": row.params["weight_dtype"]}
    for i, options in enumerate(_OPTIONS):
        # Every number of columns in the last chunk; the last columns of a step that is not the
        # last.
        of_kernel = (
            *((1, 1, least), (2, tile + 1, most), (1, 2 * tile + 1, max(least, most - 1 - i))),
            (1, tile + 2, min(most, max(least, most // 2 + 1 + i))),
            (3, 1, max(least, most // 2 - 1 - i)),
        )
        # Rows that fill a kernel and rows that do not, with every option.
        for sizes in dict.fromkeys((of_kernel[i], of_kernel[(i + 1) % 5], *of_kernel[1:])):
            facts = {**options, **weights}
            problem = LayerNormBackwardProblem(*sizes, row.dtype, **facts)
            yield LayerNormBackwardCase(problem, kernel=row.name)
    for columns in (most, max(least, most - 1)):
        facts = {**weights, "eps": 0.0}
        problem = LayerNormBackwardProblem(1, 1, columns, row.dtype, **facts)
        yield LayerNormBackwardCase(problem, kernel=row.name, scale=TINY[row.dtype])


def larger(on_gpu: bool) -> Iterator[LayerNormBackwardCase]:
    """A case with the rows of a long sequence: several for each block."""
    for dtype in ("bfloat16", "float16"):
        rows = 8192 if on_gpu else 700
        options: dict[str, Any] = {"bias": True, "residual": True, "dropout_p": 0.1}
        yield LayerNormBackwardCase(LayerNormBackwardProblem(1, rows, 4096, dtype, **options))


OPERATION = Operation(
    name="layer_norm_backward",
    title="the gradients of layer normalisation",
    kernel_ops=(NORM_BACKWARD, COLUMN_SUMS),
    plan_type=LayerNormBackwardPlan,
    options=(
        Option("groups", int, 1, "Groups of rows, each with gradients of weight and bias."),
        Option("rows", int, REQUIRED, "Rows of a group."),
        Option("columns", int, REQUIRED, "Elements per row."),
        Option("dtype", str, "bfloat16", "bfloat16 or float16."),
        Option("bias", bool, False, "The bias has a gradient.", ("--bias",)),
        Option("residual", bool, False, "Add a gradient of the sum.", ("--residual",)),
        Option("eps", float, 1e-5, "Epsilon that is added to the variance."),
        Option(
            "weight_dtype", str | None, None, "Element type of the weight: float32; default: dtype."
        ),
        Option("dropout_p", float, 0.0, "Probability that an element of x was dropped."),
        Option("rms", bool, False, "No mean was subtracted.", ("--rms",)),
        Option("behind", int, 1, "Calls that have advanced the state since."),
    ),
    problem=LayerNormBackwardProblem,
    choices=planning.choices,
    best=planning.best,
    build=planning.build,
    reference=expected,
    planned=planned,
    cases=cases,
    larger=larger,
)
