"""Plans of gradients of layer normalisation: blocks of rows, masks of a state, refusals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from amdattn.ops import registry
from amdattn.ops.layer_norm_backward.cases import LayerNormBackwardCase
from amdattn.ops.layer_norm_backward.execution import planned
from amdattn.ops.layer_norm_backward.problem import LayerNormBackwardProblem
from tests.support.shipped import props

OPERATION = registry.operation("layer_norm_backward")


@pytest.mark.parametrize("dropout_p", [0.0, 0.3])
@pytest.mark.parametrize(("groups", "rows", "columns"), [(1, 1200, 24), (3, 133, 200)])
def test_many_rows_in_blocks(groups: int, rows: int, columns: int, dropout_p: float) -> None:
    """Sums of blocks in a second launch; the same bits every time."""
    problem = LayerNormBackwardProblem(
        groups, rows, columns, bias=True, residual=True, dropout_p=dropout_p
    )
    few = dataclasses.replace(props(), num_cus=2 * props().num_xcds)
    plan = planned(problem, few)
    assert [launch.kernel.op for launch in plan.launches] == list(OPERATION.kernel_ops)
    case = LayerNormBackwardCase(problem)
    inputs = case.inputs(5)
    must = OPERATION.reference(case, inputs)
    found, again = ([x for x in plan.run(**inputs) if x is not None] for _ in range(2))
    assert len(must) == len(found) == (3 if dropout_p else 2)
    for result, x, same in zip(must.values(), found, again, strict=True):
        assert (np.abs(x.astype(np.float64) - result.values) <= result.tolerance).all()
        assert x.tobytes() == same.tobytes()


def test_what_no_kernel_takes_is_said() -> None:
    with pytest.raises(NotImplementedError, match=r"columns=20000 is not built"):
        planned(LayerNormBackwardProblem(1, 1, 20000), props())
    with pytest.raises(ValueError, match="groups=0"):
        LayerNormBackwardProblem(0, 1, 8)
