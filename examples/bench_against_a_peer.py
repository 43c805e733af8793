"""`gemm_nt` beside another kernel of the same product, given as a code object.

    python examples/bench_against_a_peer.py [FILE.hsaco]

FILE has a kernel `dot` of the arguments below; without it a plain one is compiled on the spot. Both
are held against float64; then `amdattn bench` models them (on a GPU: measures them).
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np

import amdattn
from amdattn.compiler import build

M, N, K = 4, 256, 512
SOURCE = """
#include <hip/hip_runtime.h>
static __device__ float wide(unsigned short x) { return __builtin_bit_cast(float, x << 16); }
// A wave an element of out: lanes sum every 64th product, then each other's.
extern "C" __global__ __launch_bounds__(64) void dot(const unsigned short* a,
                                                     const unsigned short* b, float* out) {
  a += blockIdx.x / 256 * 512, b += blockIdx.x % 256 * 512;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < 512; i += 64) sum += wide(a[i]) * wide(b[i]);
  for (int mask = 32; mask > 0; mask /= 2) sum += __shfl_xor(sum, mask);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
"""
ARGUMENTS = f"a in bfloat16[{M}, {K}]; b in bfloat16[{N}, {K}]; out out float32[{M}, {N}]"


def launched(code_object: bytes, a: amdattn.DeviceArray, b: amdattn.DeviceArray) -> np.ndarray:
    """What the peer computes."""
    from hip import hip  # that of the device that amdattn has bound

    out = amdattn.empty((M, N), "float32")
    module = hip.hipModuleLoadData(code_object)[1]
    function = hip.hipModuleGetFunction(module, b"dot")[1]
    arguments = tuple(ctypes.c_void_p(array.address) for array in (a, b, out))
    hip.hipModuleLaunchKernel(function, M * N, 1, 1, 64, 1, 1, 0, None, None, arguments)
    return out.numpy()


def main() -> int:
    """Compare both with float64, then their times; the exit code."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((rows, K)).astype(ml_dtypes.bfloat16) for rows in (M, N))
    expected = a.astype(np.float64) @ b.astype(np.float64).T
    on_device = amdattn.asarray(a), amdattn.asarray(b)
    with tempfile.TemporaryDirectory() as folder:
        peer = Path(sys.argv[1] if len(sys.argv) > 1 else f"{folder}/dot.hsaco")
        if len(sys.argv) == 1:
            peer.with_suffix(".hip").write_text(SOURCE)
            peer.write_bytes(build(peer.with_suffix(".hip")).code_object)
        ours = amdattn.gemm_nt(*on_device, out_dtype="float32").numpy()
        results = {"gemm_nt": ours, peer.name: launched(peer.read_bytes(), *on_device)}
        errors = {name: float(np.abs(x - expected).max()) for name, x in results.items()}
        print(*(f"{name}: largest error {x:.1e}" for name, x in errors.items()), sep="\n")
        sys.stdout.flush()
        given = f"bench gemm --m {M} --n {N} --k {K} --out-dtype float32 --grid {M * N}".split()
        given += ["--workgroup", "64", "--peer", f"object={peer}", "--args", ARGUMENTS]
        done = subprocess.run([sys.executable, "-m", "amdattn.cli", *given], check=False)
    return 0 if max(errors.values()) < 1e-3 and done.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
