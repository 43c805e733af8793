"""Tokens of logits under JAX's transformations; rows are independent of each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from amdattn.jax.rules import Axes, Rules, specs_of
from amdattn.ops.sample.problem import SampleProblem


def _axes(problem: SampleProblem, variant: str) -> dict[str, Axes]:
    rows: Axes = (("rows",),)
    return {
        **{"logits": (*rows, ("columns",)), "tokens": (*rows, ("history",))},
        **{"state": (*rows, ("words",)), "out": rows},
    }


def _lengths(problem: SampleProblem) -> dict[str, int]:
    counts = {"rows": problem.rows, "columns": problem.columns, "history": problem.history}
    return {**counts, "words": 4}


def _resized(problem: SampleProblem, factors: Mapping[str, int]) -> SampleProblem:
    return dataclasses.replace(problem, rows=factors.get("rows", problem.rows))


RULES: dict[str, Rules] = {
    "sample": Rules(
        specs=specs_of("sample"),
        axes=_axes,
        independent=("rows",),
        lengths=_lengths,
        resized=_resized,
    ),
}
