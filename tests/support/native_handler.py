"""Native code of the JAX side, compiled for tests."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

NATIVE = ROOT / "amdattn" / "jax" / "native"


def compile_c(sources: list[Path], target: Path, *flags: str) -> ctypes.CDLL:
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu.2.28", "-std=c11"]
    command = [*zig, "-O2", "-fPIC", "-shared", *flags, "-o", str(target), *map(str, sources)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(target))
