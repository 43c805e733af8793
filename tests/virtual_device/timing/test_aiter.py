"""Exact counts of AITER's assembled kernel; AMDATTN_AITER_DIR names a checkout of ROCm/aiter."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.performance_model.kernels import ROUND_MODES, AiterForward, Loop, loop
from benchmarks.performance_model.published import AITER_LDS, AITER_RTNA_LOOP, MFMA_CLK, VALU_CLK

pytestmark = pytest.mark.skipif(
    "AMDATTN_AITER_DIR" not in os.environ, reason="AMDATTN_AITER_DIR is not set"
)


@pytest.fixture(scope="module")
def loops() -> dict[str, Loop]:
    directory = Path(os.environ["AMDATTN_AITER_DIR"])
    return {mode: loop(AiterForward(directory, mode), 1) for mode in ROUND_MODES}


@pytest.mark.parametrize("mode", ROUND_MODES)
def test_counts(loops: dict[str, Loop], mode: str) -> None:
    cost = loops[mode]
    issues_of_simd = MFMA_CLK["aiter"] // 32
    valu_of_wave = (cost.valu - 4 * issues_of_simd) / 2
    assert cost.mfma == MFMA_CLK["aiter"]
    assert valu_of_wave == VALU_CLK["aiter"][mode] + 4  # one instruction more than was published
    assert cost.lds == AITER_LDS
    assert cost.lds_conflict == 0


def test_loops(loops: dict[str, Loop]) -> None:
    assert loops["rtna"].clk == pytest.approx(AITER_RTNA_LOOP, rel=0.05)
    assert loops["rtz"].clk < loops["rtna"].clk < loops["rtne"].clk
