"""How times of whole products follow from two simulated depths."""

from __future__ import annotations

import pytest

from amdattn.arch.architectures import architecture
from benchmarks.performance_model.hipkittens import ARCH, DEPTHS, VARIANTS, Cost


def test_cost_of_two_depths() -> None:
    cost = Cost.of((1000 + 2.0 * DEPTHS[0], 1000 + 2.0 * DEPTHS[1]))
    assert (cost.base, cost.clk) == pytest.approx((1000, 2))


def test_rounds_and_launch() -> None:
    variant = VARIANTS[-1]
    rows, columns = variant.tile
    cost = Cost(0.0, 2 * rows * columns / 4096)  # the matrix units never wait
    assert cost.use(variant) == pytest.approx(1)
    shape = (16 * rows, 16 * columns, 1 << 20)  # one round
    peak = 256 * 4096 * 2 / 1000
    us = 2 * shape[0] * shape[1] * shape[2] / peak / 1e6
    launch = architecture(ARCH).launch_us
    assert cost.tflops(variant, shape, 2.0) == pytest.approx(peak * us / (us + launch))
    half = cost.tflops(variant, (17 * rows, 16 * columns, 1 << 20), 2.0)
    assert half == pytest.approx(peak * 17 / 32, rel=1e-3)
