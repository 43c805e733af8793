"""A kernel of your own, compiled with pip's clang, launched through hip-python, and checked.

    python examples/check_your_kernel.py

It sums blocks of 256 numbers in LDS. Without the barrier a GPU would mostly get it right; checked
mode reports the race with its lines. With the barrier there is no finding, and the sums are right.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console

import amdattn
from amdattn.compiler import build

SOURCE = """
#include <hip/hip_runtime.h>

extern "C" __global__ __launch_bounds__(256) void sum(const float* x, float* sums) {
  __shared__ float part[256];
  part[threadIdx.x] = x[blockIdx.x * 256 + threadIdx.x];
  for (int half = 128; half > 0; half /= 2) {
#ifdef FIXED
    __syncthreads();
#endif
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}
"""
BLOCKS = 8


def launch(code_object: bytes, x: amdattn.DeviceArray, sums: amdattn.DeviceArray) -> None:
    """As any script launches a kernel through hip-python."""
    from hip import hip  # that of the device that amdattn has bound

    module = hip.hipModuleLoadData(code_object)[1]
    function = hip.hipModuleGetFunction(module, b"sum")[1]
    arguments = ctypes.c_void_p(x.address), ctypes.c_void_p(sums.address)
    hip.hipModuleLaunchKernel(function, BLOCKS, 1, 1, 256, 1, 1, 0, None, None, arguments)
    amdattn.synchronize()
    hip.hipModuleUnload(module)


def main() -> int:
    """Compile both, check both; the exit code."""
    console = Console()
    host = np.random.default_rng(0).standard_normal((BLOCKS, 256), np.float32)
    x, sums = amdattn.asarray(host), amdattn.empty((BLOCKS,), "float32")
    found = {}
    for name, defines in (("without a barrier", ()), ("with barriers", ("FIXED",))):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "sum.hip"
            source.write_text(SOURCE)
            code_object = build(source, defines=defines).code_object
        with amdattn.virtual.check(raise_on=None, read_only={"x": x}) as check:
            launch(code_object, x, sums)
        found[name] = {finding.kind for finding in check.errors}
        console.rule(f"{name}: {len(check.errors)} errors")
        for finding in check.errors[:2]:
            console.print(str(finding), markup=False, highlight=False)
    error = np.abs(sums.numpy() - host.astype(np.float64).sum(axis=1)).max()
    console.print(f"largest error of the sums {error:.1e}")
    right = "lds_race" in found["without a barrier"] and not found["with barriers"]
    return 0 if right and error < 256 * 2.0**-20 else 1


if __name__ == "__main__":
    sys.exit(main())
