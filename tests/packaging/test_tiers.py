"""Tiers of tests: every test is of one, and a fast test that launches or starts a Python fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import tiers
from tests.support.paths import ROOT, TESTS

PLANTED = """
import subprocess, sys
import numpy as np, pytest
import amdattn

x = np.ones((1, 64, 1, 64), np.float16)

@pytest.fixture
def launched():
    return amdattn.flash_attn_func(x, x, x)

@pytest.fixture(scope="module")
def launched_once():
    return amdattn.flash_attn_func(x, x, x)

@pytest.mark.fast
def test_planned():
    assert amdattn.plan_attention(1, 64, 64, 1, 1, 64, device="MI300X").launches

@pytest.mark.fast
def test_launch():
    amdattn.flash_attn_func(x, x, x)

@pytest.mark.fast
def test_device_launch():
    a = amdattn.asarray(x)
    amdattn.flash_attn_func(a, a, a)  # nobody waits for it

@pytest.mark.fast
def test_fixture(launched):
    pass

@pytest.mark.fast
def test_wide_fixture(launched_once):
    pass

@pytest.mark.fast
def test_process():
    subprocess.run([sys.executable, "-c", ""], check=True)

@pytest.mark.fast
def test_compiler():
    subprocess.run([sys.executable, "-m", "ziglang", "version"], check=True)

@pytest.mark.device
def test_marked():
    amdattn.flash_attn_func(x, x, x)

def test_unmarked(launched):
    pass
"""
FAILING = ("launch", "device_launch", "fixture", "wide_fixture", "process")


def run(file: Path) -> str:
    """What pytest says of a file outside of this folder."""
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(file.parent)]
    done = subprocess.run(
        [*command, "-p", "tests.support.tiers", "-p", "no:randomly", "-rA", "--tb=line", str(file)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=file.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_fast_tests_that_launch_fail(tmp_path: Path) -> None:
    file = tmp_path / "test_planted.py"
    file.write_text(PLANTED)
    said = run(file)
    bad = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    wrong = {line.split("::test_")[1].split()[0] for line in bad}
    assert wrong == set(FAILING), said
    assert "test_wide_fixture is of the fast tier, and 1 kernels were launched" in said


def test_a_test_of_two_tiers_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "test_planted.py"
    file.write_text("import pytest\n@pytest.mark.fast\n@pytest.mark.device\ndef test(): pass\n")
    assert "::test is marked fast and device" in run(file)


def test_entries_exist() -> None:
    named = [
        TESTS / folder / f"test_{module}.py" if module else TESTS / folder
        for folder, modules in tiers.FAST.items()
        for module in modules
    ]
    assert [path for path in named if not path.exists()] == []


@pytest.mark.parametrize(
    ("name", "tier"),
    [
        ("arch/test_chips.py", "fast"),
        ("virtual_device/isa/test_new.py", "fast"),
        ("virtual_device/hip/test_stream.py", "device"),
        ("test_user_files.py", "fast"),
        ("test_energy.py", "device"),
        ("ops/gemm/test_new.py", "device"),
        ("op/test_new.py", "device"),
    ],
)
def test_rule(name: str, tier: str) -> None:
    assert tiers.tier_of(TESTS / name) == tier


def test_every_test_has_a_tier(request: pytest.FixtureRequest) -> None:
    """Also those that are selected beside this one."""
    for item in request.session.items:
        assert any(item.get_closest_marker(tier) for tier in tiers.TIERS), item.nodeid
