"""The gathering of rows as an operation: options, cases, and expected results."""

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
from amdattn.ops.embedding import planning
from amdattn.ops.embedding.embedding import EmbeddingPlan, planned
from amdattn.ops.embedding.planning import EMBEDDING
from amdattn.ops.embedding.problem import EmbeddingProblem

_TYPES = ("bfloat16", "float16", "float32")


@dataclass(frozen=True)
class EmbeddingCase(Case[EmbeddingProblem]):
    """A normally distributed table, and random indices that include the first and last row."""

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """Random host arrays by operand; equal seeds give equal arrays."""
        p, rng = self.problem, np.random.default_rng(seed)
        table = rng.standard_normal((p.table_rows, p.columns), np.float32)
        indices = rng.integers(0, p.table_rows, p.rows, np.int32)
        indices[:1], indices[-1:] = p.table_rows - 1, 0
        return {
            "table": table.astype(as_dtype(p.dtype).numpy()),
            "indices": indices.reshape(p.shape),
        }


def expected(case: EmbeddingCase, inputs: Mapping[str, NDArray[Any]]) -> dict[str, Expected]:
    """The exact elements."""
    return {"out": Expected(inputs["table"].astype(np.float64)[inputs["indices"]], 0.0)}


_SIZES = (
    *((1, 1, 1), (3, 2, 5), (5, 7, 2), (4, 8, 9), (17, 9, 30), (33, 63, 4), (31, 64, 100)),
    *((65, 127, 7), (2, 1025, 3), (7, 1000, 11), (4, 4095, 5), (3, 4096, 40), (2, 9000, 3)),
)


def cases(row: KernelSpec | None) -> Iterator[EmbeddingCase]:
    """Sizes around those of chunks, waves and tiles, or around those of one kernel."""
    if row is None:
        for i, (rows, columns, table_rows) in enumerate(_SIZES):
            for dtype in (_TYPES[i % 3], _TYPES[(i + 1) % 3]):
                yield EmbeddingCase(EmbeddingProblem((rows,), columns, table_rows, dtype))
        return
    tile_rows, tile_bytes = row.tile["rows"], row.tile["columns"]
    for i, dtype in enumerate(_TYPES):
        columns = tile_bytes // as_dtype(dtype).itemsize
        for rows, count in (
            *((1, 1), (tile_rows + 1, columns), (tile_rows, columns - 1), (3, columns + 3)),
            *((2 * tile_rows + 1, columns // 2 + 5), (2, 3 * columns)),
        ):
            yield EmbeddingCase(EmbeddingProblem((rows,), count, 5 + i, dtype), kernel=row.name)


def larger(on_gpu: bool) -> Iterator[EmbeddingCase]:
    """A case with the tokens of a long prompt."""
    for dtype in _TYPES:
        rows, table_rows = (8192, 128000) if on_gpu else (500, 1000)
        yield EmbeddingCase(EmbeddingProblem((rows,), 4096, table_rows, dtype))


def _problem(rows: int, **options: Any) -> EmbeddingProblem:
    return EmbeddingProblem((rows,), **options)


OPERATION = Operation(
    name="embedding",
    title="the gathering of embedding rows",
    kernel_ops=(EMBEDDING,),
    plan_type=EmbeddingPlan,
    options=(
        Option("rows", int, REQUIRED, "Number of indices."),
        Option("columns", int, REQUIRED, "Elements per row."),
        Option("table_rows", int, REQUIRED, "Rows of the table."),
        Option("dtype", str, "bfloat16", "bfloat16, float16 or float32."),
    ),
    problem=_problem,
    choices=planning.choices,
    best=planning.best,
    build=planning.build,
    reference=expected,
    planned=planned,
    cases=cases,
    larger=larger,
)
