"""Modules of this folder again, on AMD's own HIP runtime: kernels of others give the same bits.

`python -m build_scripts.amd_runtime` brings that runtime; without it nothing of it is tested.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from build_scripts import amd_runtime
from tests.support.paths import ROOT
from tests.support.peers.digests import PACKAGES

RUNTIME = {
    "AMDATTN_RUNTIME": f"amd:{amd_runtime.TARGET / 'lib'}",
    "AMD_COMGR_CACHE_DIR": str(amd_runtime.TARGET / "cache"),
}
# Their profiles are of every launch, and AMD's runtime copies by kernels of its own.
PROFILES = "loops"

pytestmark = [
    pytest.mark.oracles,
    pytest.mark.skipif(
        not amd_runtime.is_whole(amd_runtime.TARGET), reason="AMD's HIP runtime was not brought"
    ),
    pytest.mark.timeout(1800),
]


def digests(python: str, module: str, **environment: str) -> dict[str, Any]:
    done = subprocess.run(
        [
            *(python, "-m", "tests.support.peers.digests", "-k", f"not {PROFILES}"),
            f"tests/peers/{module}.py",
        ],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    found: dict[str, Any] = json.loads(
        next(line for line in reversed(done.stdout.splitlines()) if line.startswith("{"))
    )
    return found


def same(module: str, arch: str, *, bits: bool = True, **environment: str) -> None:
    environment["AMDATTN_DEVICE"] = f"virtual:{arch}"
    python = str(amd_runtime.python_of(amd_runtime.TARGET))
    theirs = digests(python, module, **environment, **RUNTIME)
    ours = digests(sys.executable, module, **environment, AMDATTN_RUNTIME="amdattn")
    assert theirs["library"] == str(amd_runtime.TARGET / "lib" / amd_runtime.LIBRARY)
    of_both = [
        {name: found if bits else found[0] for name, found in one["tests"].items()}
        for one in (theirs, ours)
    ]
    assert of_both[0] == of_both[1]
    assert any(outcome == "passed" for outcome, _ in theirs["tests"].values())


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_triton(arch: str) -> None:
    triton = pytest.importorskip("triton")
    same("test_triton", arch, **{PACKAGES: str(Path(triton.__file__).parent.parent)})


@pytest.mark.skipif("AMDATTN_AITER_DIR" not in os.environ, reason="names no aiter checkout")
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("module", ["test_paged_peers", "test_aiter_backward"])
def test_aiter(module: str, arch: str) -> None:
    same(module, arch)


@pytest.mark.skipif("AMDATTN_FLYDSL_DIR" not in os.environ, reason="names no compiled kernels")
def test_flydsl() -> None:
    device = os.environ.get("AMDATTN_DEVICE", "virtual:gfx942")
    # Its parts are added by atomics, in any order: results are close to float64, not the same bits.
    same("test_flydsl", device.removeprefix("virtual:"), bits=False)
