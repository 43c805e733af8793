"""Hostile code objects give an error or a run that ends: no crash, no hang, no read beyond."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from amdattn.arch.products import of_arch
from amdattn.device.virtual_library import library_path
from tests.support.fuzz import seeds
from tests.support.paths import ROOT
from tests.support.vdev_library import CPUS

SMOKE = 200


@pytest.mark.parametrize("checked", [0, 1], ids=["fast", "checked"])
@pytest.mark.parametrize("arch", CPUS)
@pytest.mark.parametrize("count", [SMOKE, pytest.param(10 * SMOKE, marks=pytest.mark.slow)])
def test_mutated_code_objects(arch: str, checked: int, count: int, tmp_path: Path) -> None:
    folder = tmp_path / "seeds"
    folder.mkdir()
    for name, image in seeds.compiled(arch):
        (folder / name).write_bytes(image)
    arguments = [str(library_path()), str(tmp_path), "1", str(count), str(checked)]
    arguments.append(of_arch(arch).name)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.fuzz.drive", *arguments],
        capture_output=True,
        cwd=ROOT,
        text=True,
        check=False,
        timeout=count / 2,
    )
    assert done.returncode == 0, f"{tmp_path / 'current'}: {done.stderr}"
    counts = json.loads(done.stdout)
    assert counts["refused"] > count / 10
    assert counts["completed"] > count / 20
    assert counts["launched"] > counts["completed"]
    assert (counts["reported"] > 0) == bool(checked)


@pytest.mark.slow
@pytest.mark.parametrize("arch", CPUS)
def test_campaign(arch: str, tmp_path: Path) -> None:
    """200 000 inputs of libFuzzer; `python -m tests.support.fuzz.campaign` runs more."""
    pytest.importorskip("atheris")
    from tests.support.fuzz import campaign

    result = campaign.run(tmp_path, runs=200_000, jobs=2, arch=arch)
    assert not result.crashes
    assert result.counts["inputs"] >= 200_000
