"""Processes of their own that drive the virtual device through hip-python."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

from tests.support.paths import ROOT

PREAMBLE = """
import ctypes, os, sys, time
sys.path.insert(0, {root!r})
from tests.support import hip_runtime
hip = hip_runtime.Runtime({library!r}, {device!r})
"""


def run(hip: Any, body: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run `body` after PREAMBLE, with the library of `hip`."""
    preamble = PREAMBLE.format(root=str(ROOT), library=hip.path, device=hip.device_path)
    return subprocess.run(
        [sys.executable, "-c", preamble + textwrap.dedent(body)],
        capture_output=True,
        check=False,
        text=True,
        timeout=timeout,
    )
