"""Block-scaled products that Triton compiles for gfx950 are right: its layouts are not ours."""

import os
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

pytest.importorskip("triton")

pytestmark = pytest.mark.oracles


def test_block_scaled_products():
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.peers.triton_scaled"],
        env=os.environ | {"AMDATTN_DEVICE": "virtual:gfx950"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) == 18
    used = [instructions for _, _, _, instructions, _ in lines]
    assert used[:9] == ["v_mfma_scale_f32_16x16x128_f8f6f4"] * 9
    assert used[9:] == ["v_mfma_scale_f32_32x32x64_f8f6f4"] * 9
    assert all(float(error) < 1e-6 for *_, error in lines), done.stdout
