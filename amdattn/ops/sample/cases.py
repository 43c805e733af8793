"""Tokens of logits as an operation: options, cases, and expected results."""

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
from amdattn.ops.sample import planning
from amdattn.ops.sample.planning import SAMPLE
from amdattn.ops.sample.problem import SampleProblem
from amdattn.ops.sample.reference import drawn, noise
from amdattn.ops.sample.sample import SamplePlan, planned

_DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class SampleCase(Case[SampleProblem]):
    """Normally distributed logits with a standard deviation of 3.

    Attributes
    ----------
    of : {"", "near", "alike", "extreme"}
        "near": the two best scores of each 1024 columns are 1e-4 apart; "alike": most logits are
        one of two numbers; "extreme": logits are infinite or NaN.
    """

    of: str = ""

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """Random host arrays by operand; equal seeds give equal arrays."""
        p, rng = self.problem, np.random.default_rng(seed)
        logits = 3 * rng.standard_normal((p.rows, p.columns), np.float32)
        if self.of == "alike":
            logits[:] = rng.random(logits.shape) < 0.75
            logits[:, ::97] = -3
        elif self.of == "extreme":
            _make_extreme(logits)
        found: dict[str, NDArray[Any]] = {"logits": logits.astype(as_dtype(p.dtype).numpy())}
        if p.history:
            found["tokens"] = rng.integers(-2, p.columns + 2, (p.rows, p.history), np.int32)
        if p.draws:
            found["state"] = rng.integers(0, 2**40, (p.rows, 2), np.int64).view(np.int32)
        if self.of == "near":
            found["logits"] = self._with_near(logits, found)
        return found

    def _with_near(
        self, logits: NDArray[np.float32], inputs: Mapping[str, NDArray[Any]]
    ) -> NDArray[np.float32]:
        """Make two logits of each 1024 columns nearly equal, the last one and an early one."""
        p = self.problem
        best = -20.0 if p.columns % 2 and p.history < 99 else 30.0
        logits += best - 30
        for x, state, i in zip(logits, inputs["state"].view(np.int64), range(p.rows), strict=True):
            of_noise = noise(int(state[0]), int(state[1]), p.columns)
            for n, first in enumerate(range(0, p.columns, 1024)):
                one, other = min(first + 1024, p.columns) - 1, first + 4 + n
                x[one] = best if n == 1 else best - 10
                x[other] = x[one] + (of_noise[one] - of_noise[other] + 1e-4) / p.scale
                if n != 1 and p.history:
                    inputs["tokens"][i, 2 * n : 2 * n + 2] = one, other
                    x[[one, other]] *= p.repetition_penalty ** (1 if best > 0 else -1)
        if p.history:
            tokens = inputs["tokens"]
            tokens[(tokens == 2047) | (tokens == 1029)] = -1
        return logits


def _make_extreme(logits: NDArray[np.float32]) -> None:
    """Give rows, in turn, no change, an infinite logit, and some NaN."""
    logits[::3] = -np.inf
    logits[::3, ::2] = np.nan
    logits[1::3, -1] = np.inf
    logits[2::3, ::3] = np.nan
    logits[2::3, 1::3] = -np.inf


def expected(case: SampleCase, inputs: Mapping[str, NDArray[Any]]) -> dict[str, Expected]:
    """The same token, and the offsets after the call."""
    found = {"out": Expected(drawn(case.problem, inputs).astype(np.float64), 0.0)}
    if case.problem.draws:
        state = (inputs["state"].view(np.int64) + np.array([0, 1])).view(np.int32)
        found["state"] = Expected(state.astype(np.float64), 0.0)
    return found


_OPTIONS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 0.0, "repetition_penalty": 2.0, "history": 7},
    {},
    {"temperature": 0.7, "top_k": 5},
    {"top_p": 0.8},
    {"temperature": 1.5, "min_p": 0.05},
    {"top_k": 40, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.3, "history": 300},
    {"top_k": 1},
)
# Cases whose tokens show which ones may be drawn: many nearly equal ones, or few of many rows.
_FLAT: tuple[tuple[int, int, dict[str, Any]], ...] = (
    (8, 1000, {"temperature": 30.0, "top_k": 5}),
    (8, 1300, {"temperature": 30.0, "top_p": 0.3}),
    (8, 1300, {"temperature": 30.0, "top_k": 90, "top_p": 0.4}),
    (8, 1000, {"temperature": 30.0, "min_p": 0.85}),
    (40, 5, {}),
    (40, 6, {"top_p": 0.9, "repetition_penalty": 2.0, "history": 3}),
    (40, 8, {"repetition_penalty": 2.0, "history": 2}),
    (40, 8, {"top_k": 3, "repetition_penalty": 2.0, "history": 2}),
    (8, 1024, {"top_k": 5, "repetition_penalty": 2.0, "history": 12}),
    (40, 7, {"min_p": 0.1, "repetition_penalty": 0.5, "history": 3}),
)
_NEAR = ((2900, 0), (2901, 300), (2902, 0), (2903, 12), (3072, 12))  # columns, previous tokens
# Cases in which most of a row is in the list of tokens that may be drawn.
_LISTED: tuple[dict[str, Any], ...] = (
    {"top_k": 5},
    {"top_p": 0.8},
    {"top_k": 3000, "top_p": 0.9, "min_p": 0.01},
)


def cases(row: KernelSpec | None) -> Iterator[SampleCase]:
    """Sizes around those of blocks, waves and workgroups."""
    dtypes = _DTYPES if row is None else (row.dtype,)
    for dtype in dtypes:
        for i, options in enumerate(_OPTIONS):
            for columns in (1, 65, 4095 + i) if i % 2 else (63, 64, 1000):
                problem = SampleProblem(1 + columns % 3, columns, dtype, **options)
                yield SampleCase(problem, kernel="" if row is None else row.name)
        if row is None:
            continue
        for options in (*_OPTIONS[::2], *_OPTIONS[3::4]):
            problem = SampleProblem(3, 1100 + len(options), dtype, **options)
            yield SampleCase(problem, kernel=row.name, of="extreme")
        for rows, columns, options in _FLAT:
            yield SampleCase(SampleProblem(rows, columns, dtype, **options), kernel=row.name)
        for options in _LISTED:
            problem = SampleProblem(2, 4100, dtype, **options)
            yield SampleCase(problem, kernel=row.name, of="alike")
        for columns, history in _NEAR if dtype == "float32" else ():
            options = {"repetition_penalty": 1.3, "history": history} if history else {}
            problem = SampleProblem(2, columns, dtype, **options)
            yield SampleCase(problem, kernel=row.name, of="near")


def larger(on_gpu: bool) -> Iterator[SampleCase]:
    """A case with the vocabulary of a model."""
    problem = SampleProblem(8 if on_gpu else 1, 128256 if on_gpu else 32000, "float32")
    yield SampleCase(problem)


OPERATION = Operation(
    name="sample",
    title="the sampling of tokens from logits",
    kernel_ops=(SAMPLE,),
    plan_type=SamplePlan,
    options=(
        Option("rows", int, REQUIRED, "Rows of the logits."),
        Option("columns", int, REQUIRED, "Columns of the logits: the vocabulary."),
        Option("dtype", str, "float32", "float32, bfloat16 or float16."),
        Option("temperature", float, 1.0, "Temperature of the softmax; 0: the greatest logit."),
        Option("top_k", int, 0, "Draw from this many greatest logits; 0: all."),
        Option("top_p", float, 1.0, "Draw from the greatest logits with this total probability."),
        Option("min_p", float, 0.0, "Least probability relative to the greatest."),
        Option("repetition_penalty", float, 1.0, "Penalty of the tokens so far."),
        Option("history", int, 0, "Number of tokens so far."),
    ),
    problem=SampleProblem,
    choices=planning.choices,
    build=planning.build,
    reference=expected,
    planned=planned,
    cases=cases,
    larger=larger,
)
