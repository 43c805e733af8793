"""A sink takes weight from the keys, but no direction: O is not too small or great on average."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.adversary.bar import truth
from tests.support.adversary.launches import Kernel, Launch, kernels

TAKES_ANY = [kernel for kernel in kernels() if kernel.takes_any]


def mean_scale(kernel: Kernel, above: float | None) -> float:
    """By how much O is too long, in unit roundoffs, as a mean over rows."""
    launch = Launch(np.random.default_rng(5), kernel, 64, 100, (2, 1), (kernel.head_dim,) * 2)
    launch.dims = (
        kernel.head_dim,
        min(kernel.head_dim, kernel.head_dim_v),
    )
    launch.__post_init__()
    if kernel.is_capped:
        launch.options["softcap"] = 20.0
    launch.resize(num_splits=1)
    launch.q *= 0.3
    if above is not None:
        launch.sinks = np.full(2, above)
        launch.v *= np.exp(above)
    out, _, inputs = launch.results()
    exact = truth(*inputs, launch.rules).best.out
    scale = (out.astype(np.float64) * exact).sum(-1) / (exact * exact).sum(-1) - 1
    return float(scale.mean() / launch.rules.unit)


def by_default(kernel: Kernel) -> bool:
    """Rounding to nearest even of every shape; the other roundings at the main head size."""
    return kernel.mode == "rtne" or "_d128_" in kernel.name or kernel.is_narrow


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(kernel, id=kernel.name, marks=() if by_default(kernel) else pytest.mark.slow)
        for kernel in TAKES_ANY
    ],
)
def test_a_sink_leaves_no_bias(kernel: Kernel) -> None:
    without = mean_scale(kernel, None)
    for above in (9.0, 40.0) if kernel.dtype == "bfloat16" else (7.0,):
        assert abs(mean_scale(kernel, above) - without) < 0.4
