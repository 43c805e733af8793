"""Gradients of RMS normalisation, kernel by kernel: against float64, and plain arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn.device import manifest
from amdattn.ops import registry
from amdattn.ops.norm_backward.cases import NormBackwardCase
from amdattn.ops.norm_backward.planning import RMS_NORM_BACKWARD
from amdattn.ops.norm_backward.problem import NormBackwardProblem
from tests.support.shipped import props, shipped

OPERATION = registry.operation("rms_norm_backward")
KERNELS = {row.name: row for row in shipped(RMS_NORM_BACKWARD)}
# Those of float16 differ in the conversions only.
BF16_FIRST = [
    pytest.param(name, marks=[] if "_bf16_" in name else pytest.mark.slow) for name in KERNELS
]
OF_PLAIN = 2.0  # the error that is allowed, in what plain float32 arithmetic has
_ULP = 2.0**-23  # of dweight: below this, relative to its greatest, no error counts


def run(case: NormBackwardCase, inputs: dict[str, Any], **given: Any) -> tuple[Any, Any]:
    plan: Any = OPERATION.plan_case(case, props(), manifest.kernels())
    arrays = {name: amdattn.asarray(x) for name, x in inputs.items()} | given
    dx, dweight = plan.run(**arrays)
    return dx.numpy(), dweight.numpy()


def plain(problem: NormBackwardProblem, inputs: dict[str, Any]) -> tuple[Any, Any]:
    """Operands and results of their types, everything between in float32."""
    dout, x, weight = (inputs[name].astype(np.float32) for name in ("dout", "x", "weight"))
    mean = np.mean(x * x, -1, keepdims=True, dtype=np.float32)
    scale = 1 / np.sqrt(mean + np.float32(problem.eps))
    n, g = x * scale, dout * weight
    dx = (g - n * np.mean(g * n, -1, keepdims=True, dtype=np.float32)) * scale
    if problem.residual:
        dx = dx + inputs["dresidual_out"].astype(np.float32)
    of_rows = (dout * n).reshape(problem.groups, problem.rows, problem.columns)
    return dx.astype(inputs["x"].dtype), of_rows.sum(axis=1, dtype=np.float32)


def same_bits(one: Any, other: Any) -> None:
    for x, y in zip(one, other, strict=True):
        np.testing.assert_array_equal(x.view(f"u{x.itemsize}"), y.view(f"u{y.itemsize}"))


@pytest.mark.parametrize("name", KERNELS)
def test_results(name: str) -> None:
    """Every case of the kernel: as near to float64 as its arithmetic allows, and as plain's is."""
    wrong: dict[str, list[list[Any]]] = {"dx": [[], []], "dweight": [[], []]}
    for case in OPERATION.cases(KERNELS[name]):
        assert isinstance(case, NormBackwardCase)
        inputs = case.inputs(1)
        must = OPERATION.reference(case, inputs)
        found = zip(must, run(case, inputs), plain(case.problem, inputs), strict=True)
        for result, ours, theirs in found:
            values = must[result].values
            each = [np.abs(x.astype(np.float64) - values) for x in (ours, theirs)]
            assert (each[0] <= must[result].tolerance).all(), (case.title, result)
            size = np.abs(values).max() or 1.0
            for of, errors in zip(wrong[result], each, strict=True):
                of.append(errors.ravel() / size)
    for result, both in wrong.items():
        ours, theirs = map(np.concatenate, both)
        least = _ULP if result == "dweight" else 0.0
        for measure in (np.max, lambda x: np.sqrt(np.mean(np.square(x)))):
            assert measure(ours) <= OF_PLAIN * max(measure(theirs), least), (name, result)


@pytest.mark.parametrize("name", BF16_FIRST)
def test_checked_and_between_gaps(name: str) -> None:
    """No finding; rows with gaps at odd addresses, what lies between them stays as it is."""
    kernel = KERNELS[name]
    least, most = kernel.accepts["columns"]
    columns = max(least, most - 3 if most < 8192 else most // 2 + 3)
    problem = NormBackwardProblem(
        *(2, kernel.tile["rows"] + 1, columns, kernel.dtype, True),
        weight_dtype=kernel.params["weight_dtype"],
    )
    case = NormBackwardCase(problem, kernel=name)
    inputs = case.inputs(2)
    must = run(case, inputs)
    apart: dict[str, Any] = {}
    for i, of in enumerate(("dout", "x", "dresidual_out")):
        whole = np.full((problem.all_rows, columns + 3 + i), np.nan).astype(inputs[of].dtype)
        whole[:, 1 : 1 + columns] = inputs[of]
        apart[of] = amdattn.asarray(whole)[:, 1 : 1 + columns]
    around = amdattn.asarray(np.full((problem.all_rows, columns + 5), 7, inputs["x"].dtype))
    with amdattn.virtual.check():
        found = run(case, inputs, **apart, dx=around[:, 2 : 2 + columns])
    same_bits(found, must)
    beside = np.delete(around.numpy(), np.s_[2 : 2 + columns], axis=1)
    assert (beside.astype(np.float32) == 7).all()


@pytest.mark.parametrize("columns", [7, 100, 513, 4099, 20000])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_no_numbers_and_zeroes(dtype: str, columns: int) -> None:
    """A NaN or an infinity is where it is in float64; rows of zeros have finite gradients."""
    case = NormBackwardCase(NormBackwardProblem(1, 19, columns, dtype))
    inputs = case.inputs(3)
    last = columns - 1
    inputs["x"][3] = 0
    inputs["dout"][4] = 0
    inputs["x"][5, last], inputs["x"][6, 2], inputs["x"][7] = np.nan, np.inf, 0
    inputs["dout"][8, last], inputs["dout"][9, 1] = np.nan, -np.inf
    inputs["dout"][7, 3] = np.inf
    with np.errstate(all="ignore"):
        must = OPERATION.reference(case, inputs)
    for result, given in zip(must.values(), run(case, inputs), strict=True):
        found, values = given.astype(np.float64), result.values
        np.testing.assert_array_equal(np.isnan(found), np.isnan(values))
        infinite = np.isinf(values)
        np.testing.assert_array_equal(np.isinf(found), infinite)
        np.testing.assert_array_equal(found[infinite], values[infinite])


def test_eps_of_zero() -> None:
    """Small rows count; one of zeros has no gradient that is a number."""
    case = NormBackwardCase(NormBackwardProblem(1, 5, 40, eps=0.0))
    inputs = case.inputs(4)
    inputs["x"][1] = 0
    inputs["x"][2] = (inputs["x"][2].astype(np.float32) * 1e-18).astype(inputs["x"].dtype)
    inputs["dout"][2] = (inputs["dout"][2].astype(np.float32) * 1e-18).astype(inputs["x"].dtype)
    with np.errstate(all="ignore"):
        must = OPERATION.reference(case, inputs)["dx"].values
    dx, _ = run(case, inputs)
    assert np.isnan(dx[1].astype(np.float32)).all()
    others = [0, 2, 3, 4]
    scale = np.abs(must[others]).max(axis=1, keepdims=True)
    assert (np.abs(dx[others].astype(np.float64) - must[others]) <= 2.0**-7 * scale).all()
