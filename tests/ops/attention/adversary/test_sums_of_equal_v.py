"""V of one sign whose sums overflow: all that P's rounding adds to a row is taken from it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.adversary.bar import truth
from tests.support.adversary.launches import Kernel, Launch, kernels

OVERFLOWING = [k for k in kernels() if k.takes_any and k.dtype == "bfloat16" and not k.is_narrow]


@pytest.mark.parametrize("kernel", OVERFLOWING, ids=[kernel.name for kernel in OVERFLOWING])
def test_rows_are_as_long_as_they_should_be(kernel: Kernel) -> None:
    """The mean error of a row's columns, in unit roundoffs, over rows: plain has 0.07.

    Most of it is the rounding of O itself.
    """
    columns = kernel.head_dim, min(kernel.head_dim, kernel.head_dim_v)
    launch = Launch(np.random.default_rng(1), kernel, 64, 64, (2, 1), columns)
    if kernel.is_capped:
        launch.options["softcap"] = 20.0
    launch.resize(num_splits=1)
    launch.v = 2.8e38 * launch.rng.uniform(0.9, 1, launch.v.shape)
    out, _, (q, k, v, sinks) = launch.results()
    exact = truth(q, k, v, sinks, launch.rules).best.out
    assert np.isfinite(out).all()
    of_rows = (out / exact - 1).mean(-1) / launch.rules.unit
    assert of_rows.std() < 0.1
