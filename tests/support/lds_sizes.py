"""Launches with much LDS on the product of one architecture, in a process that plays it.

`python -m tests.support.lds_sizes gfx950 SIZE...` prints, as JSON, of each dynamic size HIP's error
of a launch and whether the last dwords held, and how many workgroups a CU takes of it.
`--image=FILE` is the kernel, compiled: a process may lack the compiler.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from build_scripts.toolchain import LLVM22, compile_hip
from tests.support.paths import ROOT, TESTS

IMAGE = "--image="
SOURCE = TESTS / "virtual_device" / "hip" / "lds_sizes.hip"


def launches(arch: str, sizes: Sequence[int]) -> dict[str, Any]:
    """What the process prints."""
    command = [sys.executable, "-m", "tests.support.lds_sizes", arch, *map(str, sizes)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    import tests.conftest  # noqa: F401  (chooses the virtual device)

    arch, *sizes = (word for word in sys.argv[1:] if not word.startswith(IMAGE))
    images = [word.removeprefix(IMAGE) for word in sys.argv[1:] if word.startswith(IMAGE)]
    os.environ["AMDATTN_DEVICE"] = f"virtual:{arch}"
    from tests.support.gpu import Gpu

    gpu = Gpu()
    hip = gpu.hip
    code = Path(images[0]).read_bytes() if images else compile_hip(SOURCE, LLVM22, arch).code_object
    module = gpu.call("hipModuleLoadData", code)
    function = gpu.call("hipModuleGetFunction", module, b"last_dwords")
    zeros = np.zeros(64, np.uint32)
    found = {}
    for size in map(int, sizes):
        out = gpu.upload(zeros)
        arguments = (ctypes.c_uint64(out), ctypes.c_uint32(size))
        (error,) = hip.hipModuleLaunchKernel(
            function, 1, 1, 1, 64, 1, 1, size, None, None, arguments
        )
        held = None
        if int(error) == 0:
            assert gpu.finish() == 0, gpu.report
            values = gpu.download(out, zeros)
            held = bool((values[0] - values == 4 * np.arange(64)).all())
        resident = gpu.call(
            "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor", function, 64, size
        )
        found[size] = [int(error), held, int(resident), gpu.report if int(error) else ""]
        gpu.call("hipFree", out)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
