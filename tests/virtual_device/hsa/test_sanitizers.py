"""The HSA face under sanitizers: its other tests pass, and nothing is reported."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from amdattn.device import x86_level
from build_scripts.virtual_device import ROOT
from tests.support import sanitized_device

OTHERS = sorted(str(path) for path in Path(__file__).parent.glob("test_*.py"))
OTHERS.remove(__file__)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="the sanitizers' runtimes are gcc's")
@pytest.mark.parametrize("kind", sanitized_device.FLAGS)
def test_sanitizer(kind: str, tmp_path: Path) -> None:
    objects, level = ROOT / "build" / "virtual_device", x86_level.runnable_levels()[-1]
    if not (objects / level).is_dir():
        pytest.skip(f"build the virtual device's level {level} here first")
    library = sanitized_device.build(kind, tmp_path, level, objects)
    # ThreadSanitizer does not know all places where the kernel puts memory at random.
    start = ["setarch", "-R"] if kind == "thread" else []
    done = subprocess.run(
        [*start, sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:randomly", "-s", *OTHERS],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | sanitized_device.environment(kind, library),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert "Sanitizer" not in done.stderr + done.stdout
    assert done.returncode == 0, done.stdout[-4000:]
