"""Checked mode and the performance model of a program that knows of neither, by the environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PROGRAM = """
import ctypes, struct
from tests.support.hip_runtime import code_object
from tests.support.hsa_runtime import Hsa, Queue, dispatch
hsa = Hsa()
assert hsa.lib.hsa_init() == 0
print(hsa.text(hsa.gpu, 0xA009))
cpu, gpu = hsa.visited("hsa_iterate_agents")
_, kernel = hsa.kernel(code_object("fill"))
out = hsa.made("hsa_amd_memory_pool_allocate", hsa.pool(gpu, 4), 4096, 0)
args = hsa.made("hsa_amd_memory_pool_allocate", hsa.pool(cpu, 3), 4096, 0)
ctypes.memmove(args, struct.pack("<QI", out, 7), 12)
queue, done = Queue(hsa), hsa.signal()
queue.submit(dispatch(kernel, args, done))
assert hsa.wait(done) == 0
"""


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    variables = {k: v for k, v in os.environ.items() if not k.startswith("AMDATTN_DEVICE")}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=variables | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("device", ["MI300X", "MI308X", "MI300X:CPX"])
def test_the_device(device: str) -> None:
    done = run(AMDATTN_DEVICE=f"virtual:{device}")
    assert done.stdout.strip() == f"AMD Instinct {device.partition(':')[0]}", done.stderr


def test_findings_and_profiles(tmp_path: Path) -> None:
    findings, profiles = tmp_path / "findings.json", tmp_path / "profiles.json"
    done = run(AMDATTN_FINDINGS=str(findings), AMDATTN_OPTIONS="seed=3,max_errors=10")
    assert done.returncode == 0, done.stderr
    (launch,) = json.loads(findings.read_text())["launches"]
    assert launch["kernel"] == "k"
    done = run(AMDATTN_PROFILES=str(profiles), AMDATTN_OPTIONS="clock_mhz=2100")
    assert done.returncode == 0, done.stderr
    (launch,) = json.loads(profiles.read_text())
    assert launch["kernel"] == "k" and launch["cycles"] > 0


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("AMDATTN_DEVICE", "virtual:MI999", "AMDATTN_DEVICE=virtual:MI999: no such device"),
        ("AMDATTN_OPTIONS", "sed=3", "AMDATTN_OPTIONS: no such option or value: sed=3"),
        ("AMDATTN_OPTIONS", "seed=", "no such option or value: seed="),
        ("AMDATTN_OPTIONS", "seed=3,clock_mhz=fast", "no such option or value: clock_mhz=fast"),
    ],
)
def test_what_is_wrong_is_said(name: str, value: str, message: str) -> None:
    done = run(**{name: value})
    assert done.returncode != 0
    assert message in done.stderr
