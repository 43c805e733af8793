"""The kernels of layer_norm, kernel by kernel: float64, every number, and what is not written."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.device import manifest
from amdattn.op.comparison import judge
from amdattn.ops import registry
from amdattn.ops.layer_norm.cases import LayerNormCase
from amdattn.ops.layer_norm.layer_norm import LayerNormPlan
from amdattn.ops.layer_norm.planning import NORM
from amdattn.ops.layer_norm.problem import LayerNormProblem
from tests.support import shipped
from tests.support.framed import Framed

OPERATION = registry.operation("layer_norm")
KERNELS = {row.name: row for row in shipped.shipped(NORM)}
TYPES = (ml_dtypes.bfloat16, np.float16)


def plan_of(case: LayerNormCase) -> LayerNormPlan:
    plan = OPERATION.plan_case(case, amdattn.device_props(), manifest.kernels())
    assert isinstance(plan, LayerNormPlan)
    return plan


def results_of(case: LayerNormCase, inputs: dict[str, Any]) -> dict[str, Any]:
    """By name, rows in the midst of poison; the state behind the run besides."""
    plan = plan_of(case)
    apart = {"x": 3, "residual": 5, "weight": 1, "bias": 1}
    given = {
        name: Framed(x, apart=apart[name]).inner if name in apart else amdattn.asarray(x)
        for name, x in inputs.items()
    }
    written: dict[str, Framed] = {}
    for name in plan.result_names:
        spec = plan.specs()[name]
        if spec.present:
            framed = 0 if name == "out_scale" else 4 + len(written)
            written[name] = Framed(spec.shape, spec.dtype.numpy(), apart=framed)
    plan.run(**given, **{name: framed.inner for name, framed in written.items()})
    found = {name: framed.taken() for name, framed in written.items()}
    return found | ({"state": given["state"].numpy()} if "state" in given else {})


def check(case: LayerNormCase) -> None:
    inputs = case.inputs(5)
    found = results_of(case, inputs)
    wanted = OPERATION.reference(case, inputs)
    assert found.keys() == wanted.keys()
    for name, must in wanted.items():
        result = judge(found[name], must.values, must.tolerance, 0.0)
        assert result, f"{case.title}: {name}: {result.reason}"


def some(name: str) -> Iterator[LayerNormCase]:
    """Every fourth case of a kernel, others of the next one."""
    found = list(OPERATION.cases(KERNELS[name]))
    for case in found[list(KERNELS).index(name) % 4 :: 4]:
        assert isinstance(case, LayerNormCase)
        yield case


@pytest.mark.parametrize("name", KERNELS)
def test_results(name: str) -> None:
    for case in some(name):
        check(case)


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_results_of_every_case(name: str) -> None:
    for case in OPERATION.cases(KERNELS[name]):
        assert isinstance(case, LayerNormCase)
        check(case)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("columns", [5, 64, 1000, 4096, 4097])
def test_a_great_mean_does_not_cancel(columns: int, dtype: Any) -> None:
    """Of a mean of 1000 and differences of a unit in the last place; and of none at all."""
    rng = np.random.default_rng(columns)
    step = 4 if dtype == ml_dtypes.bfloat16 else 0.5
    x = (1000 + step * rng.integers(0, 2, (3, columns))).astype(dtype)
    x[1] = 1000
    # What a residual adds is exact here: a mean of 1000, a standard deviation of 0.01.
    name = "bfloat16" if dtype == ml_dtypes.bfloat16 else "float16"
    problem = LayerNormProblem((3,), columns, name, bias=True)
    case = LayerNormCase(problem)
    inputs = {**case.inputs(1), "x": x}
    out = results_of(case, inputs)["out"].astype(np.float64)
    must = OPERATION.reference(case, inputs)["out"]
    assert judge(out, must.values, must.tolerance, 0.0)
    np.testing.assert_array_equal(out[1], inputs["bias"].astype(np.float64))


def test_not_a_number_and_infinities_make_their_row_nan() -> None:
    for columns in (7, 1000, 4096):
        case = LayerNormCase(LayerNormProblem((4,), columns, bias=True, residual=True))
        inputs = case.inputs(2)
        x = inputs["x"]
        x[0, columns // 2], x[2, columns - 1] = np.nan, np.inf
        out = results_of(case, inputs)["out"].astype(np.float32)
        assert np.isnan(out[[0, 2]]).all() and np.isfinite(out[[1, 3]]).all()


def test_the_same_bits_every_time_and_in_place() -> None:
    options: dict[str, Any] = {"bias": True, "residual": True, "dropout_p": 0.3}
    for columns in (63, 1001, 4096):
        problem = LayerNormProblem((5,), columns, **options)
        case = LayerNormCase(problem)
        inputs = case.inputs(3)
        found = [results_of(case, inputs) for _ in range(2)]
        over = plan_of(LayerNormCase(dataclasses.replace(problem, in_place=True)))
        given = {name: amdattn.asarray(x) for name, x in inputs.items()}
        over.run(**given, out=given["x"], residual_out=given["residual"])
        found.append({"out": given["x"].numpy(), "residual_out": given["residual"].numpy()})
        for other in found[1:]:
            for name in ("out", "residual_out"):
                assert (found[0][name].view(np.uint16) == other[name].view(np.uint16)).all()
