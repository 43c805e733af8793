"""Merging partial attention results as an operation: options, cases, expected results."""

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
from amdattn.ops.merge import planning
from amdattn.ops.merge.merge_state import MergePlan, planned
from amdattn.ops.merge.planning import MERGE_STATE, STRIDE_BYTES
from amdattn.ops.merge.problem import MergeProblem

# The largest relative error of one rounding, and of one operation in float32.
_ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}
_LEAST = {"bfloat16": 2.0**-134, "float16": 2.0**-25, "float32": 2.0**-150}  # half of a denormal
_FLOAT32 = 2.0**-24
_OF_WEIGHTS = 16  # operations in float32: exponential, sum, reciprocal, products


@dataclass(frozen=True)
class MergeCase(Case[MergeProblem]):
    """Normally distributed parts. Each row has keys in some; in the others its o is NaN."""

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """Random host arrays by operand; equal seeds give equal arrays."""
        p, rng = self.problem, np.random.default_rng(seed)
        lse = 3 * rng.standard_normal((p.num_parts, p.batch, p.num_heads, p.seqlen), np.float32)
        lse[1:][rng.random(lse[1:].shape) < 0.2] = -np.inf
        o = rng.standard_normal((*lse.shape, p.head_dim), np.float32)
        o[lse == -np.inf] = np.nan
        if self.variant != "bhsd":
            o = o.swapaxes(2, 3)
        return {"o": np.ascontiguousarray(o.astype(as_dtype(p.dtype).numpy())), "lse": lse}


def expected(case: MergeCase, inputs: Mapping[str, NDArray[Any]]) -> dict[str, Expected]:
    """Results in float64, and their error: one rounding, and float32 arithmetic."""
    p, lse = case.problem, inputs["lse"].astype(np.float64)
    greatest = lse.max(axis=0)
    total = greatest + np.log(np.exp(lse - greatest).sum(axis=0))
    weights = np.exp(lse - total)[..., None]
    if case.variant != "bhsd":
        weights = weights.swapaxes(2, 3)
    o = np.where(weights == 0, 0, inputs["o"].astype(np.float64))
    out, size = (o * weights).sum(axis=0), (np.abs(o) * weights).sum(axis=0)
    operations = p.num_parts + _OF_WEIGHTS
    rounded = _ROUNDING[p.dtype] * np.abs(out) + _LEAST[p.dtype]
    return {
        "out": Expected(out, rounded + operations * _FLOAT32 * size),
        "lse_out": Expected(total, operations * _FLOAT32 * (1 + np.abs(total))),
    }


# num_parts, batch, seqlen, num_heads, times 16 bytes of a row.
_SIZES = (
    *((1, 1, 1, 1, 1), (2, 1, 63, 2, 8), (3, 2, 65, 1, 16), (4, 1, 2, 64, 3), (5, 3, 7, 5, 32)),
    *((6, 2, 1, 8, 8), (7, 1, 129, 1, 4), (8, 70, 1, 1, 8), (9, 1, 31, 3, 16), (17, 2, 3, 4, 5)),
    *((64, 1, 1, 2, 8), (257, 1, 2, 1, 2)),
)


def cases(row: KernelSpec | None) -> Iterator[MergeCase]:
    """Sizes around those of waves and tiles; numbers of parts around those loaded at once."""
    if row is None:
        for i, (parts, batch, seqlen, heads, chunks) in enumerate(_SIZES):
            for dtype in ("bfloat16", "float16", "float32"):
                dim = chunks * STRIDE_BYTES // as_dtype(dtype).itemsize
                problem = MergeProblem(parts, batch, seqlen, heads, dim, dtype)
                yield MergeCase(problem, ("bshd", "bhsd")[i % 2])
        return
    first, last, step = row.accepts["head_dims"]
    chunks = row.tile["chunks"]
    dims = last, min(last, 8 * step), last // 2, 3 * step, first
    each = [(num_parts, dims[num_parts % 5]) for num_parts in (*range(1, 10), 15, 18, 35)]
    for num_parts, dim in (*each, (4, last // 2), (9, last // 2)):  # rows of several lanes
        rows = 2 * planning.tile_rows(row, MergeProblem(1, 1, 1, 1, dim, row.dtype))
        problem = MergeProblem(num_parts, 1, min(rows, chunks // 2) + 1, 2, dim, row.dtype)
        yield MergeCase(problem, "bshd", kernel=row.name)
    yield MergeCase(MergeProblem(3, 2, 1, 65, last // 2, row.dtype), "bhsd", kernel=row.name)


def larger(on_gpu: bool) -> Iterator[MergeCase]:
    """A case with the parts of a long prompt."""
    for dtype in ("bfloat16", "float32"):
        problem = MergeProblem(4, 1, 8192 if on_gpu else 200, 32, 128, dtype)
        yield MergeCase(problem, "bshd")


OPERATION = Operation(
    name="merge_state",
    title="the merge of partial attention results",
    kernel_ops=(MERGE_STATE,),
    plan_type=MergePlan,
    options=(
        Option("num_parts", int, REQUIRED, "Sets of keys."),
        Option("batch", int, 1, "Sequences."),
        Option("seqlen", int, REQUIRED, "Queries per sequence."),
        Option("num_heads", int, REQUIRED, "Heads of the queries."),
        Option("head_dim", int, REQUIRED, "Elements per row."),
        Option("dtype", str, "bfloat16", "bfloat16, float16 or float32."),
    ),
    problem=MergeProblem,
    choices=planning.choices,
    build=planning.build,
    reference=expected,
    planned=planned,
    cases=cases,
    larger=larger,
)
