"""Results with gaps between their rows: taken and left alone, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn.device import manifest
from amdattn.ops import registry
from amdattn.ops.norm_backward.execution import planned
from amdattn.ops.norm_backward.problem import NormBackwardProblem
from amdattn.report.kernels import OfKernel, held


def _has_rows(operation: Any, case: Any) -> bool:
    """Whether a result has several rows, between which there can be gaps."""
    plan = operation.plan_case(case, amdattn.device_props(), manifest.kernels())
    specs = plan.specs(case.variant or plan.default_variant).values()
    return any(
        spec.present and spec.role == "out" and max(spec.shape[:-1], default=1) > 1
        for spec in specs
    )


@pytest.mark.parametrize("name", [operation.name for operation in registry.operations()])
def test_what_is_between_rows_stays(name: str) -> None:
    operation = registry.operation(name)
    found = [case for case in list(operation.cases(None))[:30] if _has_rows(operation, case)]
    for case in found[:3]:
        result = held(OfKernel(operation, case))
        assert not result.wrong, (case.title, result.wrong)


def test_gaps_that_no_launch_is_told_of() -> None:
    plan = planned(NormBackwardProblem(3, 5, 64), amdattn.device_props())
    x = amdattn.empty((15, 64), "bfloat16")
    wide = amdattn.asarray(np.full((3, 80), 7, np.float32))
    with pytest.raises(ValueError, match=r"dweight has strides \(80, 1\); it must be without gaps"):
        plan.run(x, x, amdattn.empty((64,), "bfloat16"), dweight=wide[:, :64])
    assert (wide.numpy() == 7).all()
