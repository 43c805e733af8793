"""Rows in 8 bits under JAX: the device for which programs are planned determines the types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amdattn.jax.lowering_device import traced_props
from amdattn.jax.rules import Axes, Rules
from amdattn.op.plan import Plan
from amdattn.op.workspace import WorkspaceLayout
from amdattn.ops.quantize.problem import QuantizeProblem
from amdattn.ops.quantize.quantize_fp8 import QuantizePlan


def _specs(problem: QuantizeProblem, variant: str) -> Any:
    unplanned: Plan[Any] = Plan(problem, traced_props(), (), WorkspaceLayout(), ())
    return QuantizePlan.of(unplanned).specs(variant)


def _axes(problem: QuantizeProblem, variant: str) -> dict[str, Axes]:
    specs = _specs(problem, variant)
    return {
        name: tuple((f"{name}{i}",) for i in range(len(spec.shape))) for name, spec in specs.items()
    }


def _lengths(problem: QuantizeProblem) -> dict[str, int]:
    return {}


def _resized(problem: QuantizeProblem, factors: Mapping[str, int]) -> QuantizeProblem:
    return problem


RULES = {"quantize_fp8": Rules(_specs, _axes, (), _lengths, _resized)}
