"""The package on AMD's own HIP runtime, which runs on the virtual device.

`python -m build_scripts.amd_runtime` brings that runtime; without it nothing of it is tested.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from build_scripts import amd_runtime
from tests.support.paths import ROOT

PYTHON = amd_runtime.python_of(amd_runtime.TARGET)
AMD = f"amd:{amd_runtime.TARGET / 'lib'}"

pytestmark = [
    pytest.mark.oracles,
    pytest.mark.skipif(
        not amd_runtime.is_whole(amd_runtime.TARGET), reason="AMD's HIP runtime was not brought"
    ),
    pytest.mark.timeout(900),
]


def run(python: str, *arguments: str, **environment: str) -> str:
    cache = {"AMD_COMGR_CACHE_DIR": str(amd_runtime.TARGET / "cache")}
    done = subprocess.run(
        [python, *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | cache | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def digests(python: str, **environment: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        run(python, "-m", "tests.support.selftest_digests", **environment)
    )
    return found


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_the_same_results(arch: str) -> None:
    """Every case of the selftest holds, bit for bit as on the virtual device's own runtime."""
    device = f"virtual:{arch}"
    theirs = digests(str(PYTHON), AMDATTN_DEVICE=device, AMDATTN_RUNTIME=AMD)
    assert theirs["library"] == str(amd_runtime.TARGET / "lib" / amd_runtime.LIBRARY)
    ours = digests(sys.executable, AMDATTN_DEVICE=device, AMDATTN_RUNTIME="amdattn")
    assert {name: reason for name, (_, reason) in theirs["cases"].items() if reason} == {}
    assert theirs["cases"] and theirs["cases"] == ours["cases"]
