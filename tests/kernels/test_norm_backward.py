"""Gradients of rows normalised with all options, kernel by kernel, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn.device import manifest
from amdattn.op.comparison import judge
from amdattn.ops import registry
from amdattn.ops.layer_norm_backward.cases import LayerNormBackwardCase
from amdattn.ops.layer_norm_backward.planning import NORM_BACKWARD
from amdattn.ops.layer_norm_backward.problem import LayerNormBackwardProblem
from tests.support.framed import Framed
from tests.support.shipped import props, shipped

OPERATION = registry.operation("layer_norm_backward")
KERNELS = {row.name: row for row in shipped(NORM_BACKWARD)}


def results_of(case: LayerNormBackwardCase, inputs: dict[str, Any]) -> dict[str, Any]:
    """By name, rows in the midst of poison."""
    plan: Any = OPERATION.plan_case(case, props(), manifest.kernels())
    given = {
        name: Framed(x, apart=3 + i).inner if x.ndim == 2 else amdattn.asarray(x)
        for i, (name, x) in enumerate(inputs.items())
    }
    written = {
        name: Framed((spec.shape), spec.dtype.numpy(), apart=5)
        for name in ("dx", "dresidual")
        if (spec := plan.specs()[name]).present
    }
    found = plan.run(**given, **{name: framed.inner for name, framed in written.items()})
    taken = {name: framed.taken() for name, framed in written.items()}
    return {**taken, "dparameters": found[2].numpy()}


def check(case: LayerNormBackwardCase) -> None:
    inputs = case.inputs(3)
    found, wanted = results_of(case, inputs), OPERATION.reference(case, inputs)
    assert found.keys() == wanted.keys()
    for name, must in wanted.items():
        result = judge(found[name], must.values, must.tolerance, 0.0)
        assert result, f"{case.title}: {name}: {result.reason}"


@pytest.mark.parametrize("name", KERNELS)
def test_results(name: str) -> None:
    first = list(KERNELS).index(name) % 3
    for case in list(OPERATION.cases(KERNELS[name]))[first::3]:
        assert isinstance(case, LayerNormBackwardCase)
        check(case)


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_results_of_every_case(name: str) -> None:
    for case in OPERATION.cases(KERNELS[name]):
        assert isinstance(case, LayerNormBackwardCase)
        check(case)


def test_the_same_bits_every_time() -> None:
    options: dict[str, Any] = {"bias": True, "residual": True, "dropout_p": 0.3}
    case = LayerNormBackwardCase(LayerNormBackwardProblem(1, 40, 1000, **options))
    inputs = case.inputs(1)
    first, second = (results_of(case, inputs) for _ in range(2))
    for name, x in first.items():
        words = f"u{x.itemsize}"
        np.testing.assert_array_equal(x.view(words), second[name].view(words))
