"""Defects of objects for MI355X, as docs/studies/found.md has them.

AMDATTN_AITER_DIR names a checkout of https://github.com/ROCm/aiter; nothing of it is copied here.
The device must be an MI355X (AMDATTN_DEVICE=virtual:gfx950): test_on_gfx950.py runs this module.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from amdattn import device_props, virtual
from amdattn.bench.kernels import Functions
from amdattn.ops.attention_backward.reference import Options, of_forward
from benchmarks.peers.aiter_backward import CodeObject
from tests.support.peers.found import checked
from tests.support.peers.found_kernels import mla_decode
from tests.support.peers.peer_device import Buffers, normal

DIRECTORY = os.environ.get("AMDATTN_AITER_DIR")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DIRECTORY, reason="AMDATTN_AITER_DIR names no aiter checkout"),
]
MLA = "hsa/gfx950/mla/mla_a16w16_qh64_qseqlen1_gqaratio64_v3.co"
# Mask, bits of sums of dQ: wait states that are missing, writes to LDS that follow no barrier.
BACKWARD = [
    (False, 16, {0x5EE4, 0x68D4, 0x72C4, 0x7CB4}, set()),
    (True, 16, {0x6370, 0x6FD4, 0x7C38, 0x889C}, {0x49C8, 0x49D0, 0x49D8, 0x49E0}),
    (True, 32, set(), {0x4988, 0x4990, 0x4998, 0x49A0}),
]


@pytest.fixture(scope="module", autouse=True)
def on_gfx950() -> None:
    if device_props().arch != "gfx950":
        pytest.skip("the device is no MI355X")


@pytest.mark.parametrize("late", [True, False])
def test_mla_of_64_heads(late: bool) -> None:
    path = Path(str(DIRECTORY)) / MLA
    if not path.exists():
        pytest.skip(f"{path} is not there")
    with Buffers() as buffers:
        problem = mla_decode(path, buffers, 1, 64)
        found, error = checked(problem, late_loads=late)
        assert error is None
        places = {one.pc for one in found if one.kind == "use_before_wait"}
        assert {0x341C, 0x3434, 0x344C} <= places
        assert np.isnan(problem.result()).all() == late
        assert late or problem.wrong(0.02) == 0


@pytest.mark.parametrize(("causal", "sums", "hazards", "races"), BACKWARD)
def test_backward(causal: bool, sums: int, hazards: set[int], races: set[int]) -> None:
    kernel = CodeObject.of(Path(str(DIRECTORY)), "gfx950", 128, causal, sums=sums)
    shape = (1, 2 * kernel.keys, 1, 128)
    rng = np.random.default_rng(1)
    options = Options(causal=causal, top_left=True)
    inputs = of_forward(*(normal(rng, *shape) for _ in range(4)), options)
    with virtual.check(raise_on=None) as log:
        kernel.run(inputs, Functions())
    found = [*log.errors, *log.counted]
    swaps = {one.pc for one in found if one.kind == "hazard" and "permlane" in str(one.producer)}
    assert swaps == hazards
    assert {one.pc for one in found if one.kind == "lds_race"} == races
