"""Processes that bind a fake HIP runtime (fake_hip.c), and fakes of what is around it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.paths import ROOT

SOURCE = Path(__file__).with_name("fake_hip.c")

# hip-python 6.4 as far as it differs: no name for two attributes. Before anything else.
HIP_PYTHON_6_4 = """
class Older:
    def __init__(self, attributes):
        self._attributes = attributes
    def __getattr__(self, name):
        if name in ("hipDeviceAttributeNumberOfXccs", "hipDeviceAttributePciChipId"):
            raise AttributeError(name)
        return getattr(self._attributes, name)
from amdattn.device.runtime.hip_python import import_hip_python
bindings = import_hip_python().hip
bindings.hipDeviceAttribute_t = Older(bindings.hipDeviceAttribute_t)
"""


def build(root: Path, macros: Mapping[str, object], name: str = "libamdhip64.so") -> Path:
    """A fake ROCm installation with the given macros."""
    (root / "lib").mkdir()
    flags = [f"-D{key}={value}" for key, value in macros.items()]
    compiler = [sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", "-O1"]
    subprocess.run([*compiler, *flags, str(SOURCE), "-o", str(root / "lib" / name)], check=True)
    return root


def run(code: str, **environment: object) -> tuple[int, list[str], str]:
    """Exit status, lines and errors of a Python process without an installed ROCm."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("ROCM_")}
    env.pop("AMDATTN_DEVICE", None)
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), env.get("PYTHONPATH", "")])
    env["ROCM_PATH"] = "/nonexistent"
    env.update({key: str(value) for key, value in environment.items()})
    child = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    return child.returncode, child.stdout.splitlines(), child.stderr


def topology(root: Path, *nodes: Mapping[str, int]) -> str:
    """A fake of KFD's folder of nodes; returns code that makes amdattn read it."""
    for i, node in enumerate(({"cpu_cores_count": 64, "simd_count": 0}, *nodes)):
        (root / str(i)).mkdir()
        lines = [f"{key} {value}" for key, value in node.items()]
        (root / str(i) / "properties").write_text("\n".join(lines) + "\n")
    return (
        "import pathlib; from amdattn.device.runtime import kfd; "
        f"kfd.NODES = pathlib.Path({str(root)!r})\n"
    )
