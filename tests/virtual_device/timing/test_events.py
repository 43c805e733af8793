"""Events tell the model's time while the model is on."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import amdattn
import amdattn.virtual
from amdattn.device import runtime

LAUNCH_US = 2.7  # marginal launch, virtual_device/arch/gfx942.cc


def test_elapsed_time_is_modelled() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (
        amdattn.asarray(rng.standard_normal((1, 200, 8, 128)).astype(ml_dtypes.bfloat16))
        for _ in range(3)
    )
    hip = runtime.get().hip
    _, start = hip.hipEventCreate()
    _, stop = hip.hipEventCreate()
    elapsed = []
    for _ in range(2):
        with amdattn.virtual.profile() as profile:
            hip.hipEventRecord(start, None)
            amdattn.flash_attn_func(q, k, v)
            amdattn.flash_attn_func(q, k, v)
            hip.hipEventRecord(stop, None)
            hip.hipEventSynchronize(stop)
            elapsed.append(hip.hipEventElapsedTime(start, stop)[1] * 1000)
        expected = sum(launch.microseconds() + LAUNCH_US for launch in profile.launches)
        assert elapsed[-1] == pytest.approx(expected, abs=2e-2)
    assert elapsed[0] == elapsed[1]  # the same input, the same time
