"""Modules of this folder again, in processes whose virtual device is an MI355X."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

DEVICE = "virtual:gfx950"


def on_gfx950(module: str, tier: str) -> None:
    """Run the tests of a tier of a module; none may be skipped for the device."""
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-m", tier, f"tests/peers/{module}.py"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "AMDATTN_DEVICE": DEVICE},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "passed" in done.stdout, done.stdout


@pytest.mark.oracles
@pytest.mark.parametrize("module", ["test_triton", "test_triton_library"])
def test_triton(module: str) -> None:
    pytest.importorskip("triton")
    on_gfx950(module, "oracles")


@pytest.mark.slow
@pytest.mark.skipif("AMDATTN_AITER_DIR" not in os.environ, reason="names no aiter checkout")
@pytest.mark.parametrize(
    "module", ["test_aiter_gfx950", "test_aiter_backward", "test_found_gfx950"]
)
def test_aiter(module: str) -> None:
    on_gfx950(module, "slow")


@pytest.mark.slow
@pytest.mark.skipif("AMDATTN_GFX950_DIR" not in os.environ, reason="names no code objects")
def test_objects() -> None:
    on_gfx950("test_objects_gfx950", "slow")
