"""Plans of products: the least estimate of all choices, without estimating all of them."""

from __future__ import annotations

import random

import pytest

import amdattn
from amdattn.arch.props import KNOWN_DEVICES, as_device_props
from amdattn.ops.gemm import execution, planning
from amdattn.ops.gemm.cost import floor
from amdattn.ops.gemm.execution import GemmPlan
from amdattn.ops.gemm.problem import GemmProblem

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("device", ["MI300X", "MI355X", "MI308X:DPX"])
def test_a_choice_is_the_least_of_all(device: str) -> None:
    """A plan does not estimate what is certainly not near the least, and chooses the same."""
    props, rows = as_device_props(device), amdattn.kernels()
    drawn = random.Random(0)
    for _ in range(60):
        m, n, k = (drawn.randint(1, drawn.choice((8, 100, 20000))) for _ in range(3))
        problem = GemmProblem(
            *(m, n, 8 * k, drawn.choice(("bfloat16", "float16"))),
            activation=drawn.choice((None, "silu", "silu_and_mul")),
            deterministic=drawn.random() < 0.7,
            aligned=drawn.random() < 0.8,
            split_k=drawn.choice((0, 0, 3)),
        )
        every = planning.choices(problem, props, rows)
        assert planning.choose(problem, props, rows) == planning.least_estimated(every.items)
        plan = execution.planned(problem, props, None)
        assert plan == GemmPlan.of(planning.plan_gemm(problem, props, rows))  # reasons, too


def test_the_floor_is_of_bytes_or_of_matrix_units() -> None:
    """By calculation: a product of many rows is limited by its multiplications, not its bytes."""
    flops_per_us = 304 * 2048 * 2.1e3
    assert floor(GemmProblem(4096, 6144, 4096), KNOWN_DEVICES["MI300X"]) == (
        pytest.approx(2 * 4096 * 6144 * 4096 / flops_per_us),
        "matrix units at 2.1 GHz",
    )
    assert floor(GemmProblem(1, 8192, 8192), KNOWN_DEVICES["MI300X"])[1] == "bytes through HBM"
