"""Plans of gradients of RMS normalisation: blocks of rows, sums in one order, refusals."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from amdattn.ops import registry
from amdattn.ops.norm_backward.cases import NormBackwardCase
from amdattn.ops.norm_backward.execution import planned
from amdattn.ops.norm_backward.planning import blocks
from amdattn.ops.norm_backward.problem import NormBackwardProblem
from tests.support.shipped import props

OPERATION = registry.operation("rms_norm_backward")


def same_bits(one: Any, other: Any) -> None:
    for x, y in zip(one, other, strict=True):
        np.testing.assert_array_equal(x.view(f"u{x.itemsize}"), y.view(f"u{y.itemsize}"))


@pytest.mark.parametrize(
    ("groups", "rows", "columns"), [(1, 3000, 24), (3, 333, 200), (1, 700, 600)]
)
def test_many_rows_in_blocks(groups: int, rows: int, columns: int) -> None:
    """Several rows of a block, sums of blocks in a second launch; the same bits every time."""
    problem = NormBackwardProblem(groups, rows, columns, residual=True)
    few = dataclasses.replace(props(), num_cus=2 * props().num_xcds)
    plan = planned(problem, few)
    kernel = plan.launches[0].kernel
    assert 1 < blocks(kernel, problem, few) < rows // kernel.tile["rows"]
    assert [launch.kernel.op for launch in plan.launches] == list(OPERATION.kernel_ops)
    case = NormBackwardCase(problem)
    inputs = case.inputs(5)
    must = OPERATION.reference(case, inputs)
    found = plan.run(**inputs)
    same_bits(found, plan.run(**inputs))
    for result, x in zip(must.values(), found, strict=True):
        assert (np.abs(x.astype(np.float64) - result.values) <= result.tolerance).all()
    # What a row has does not depend on the others.
    alone = planned(dataclasses.replace(problem, groups=1, rows=2), few)
    part = {name: x[-2:] if x.ndim == 2 else x for name, x in inputs.items()}
    same_bits((found[0][-2:],), alone.run(**part)[:1])


def test_what_no_kernel_takes_is_said() -> None:
    with pytest.raises(NotImplementedError, match=r"columns=70000 is not built"):
        planned(NormBackwardProblem(1, 1, 70000), props())
    with pytest.raises(ValueError, match="groups=0"):
        NormBackwardProblem(0, 1, 8)
