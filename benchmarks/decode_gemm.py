"""Prints `gemm_nt` beside AITER's assembled split-K kernels, modelled, as Markdown.

    python benchmarks/decode_gemm.py [--aiter DIR] [--clock-mhz 2100] [--shapes M,N,K ...]

Every tile of AITER's that takes N is tried, with the number of splits that its launcher would
choose; the fastest is shown. Workgroups of one XCD are simulated, and AITER's of a tile wait for
each other: shapes whose tiles are no multiple of 8 spread over several XCDs and are left out (-).
"""

from __future__ import annotations

import argparse
import csv
import struct
from pathlib import Path

import ml_dtypes
import numpy as np

import amdattn
from amdattn import runtime
from amdattn.bench.kernels import Functions, Launch
from amdattn.plan.gemm_cost import floor_us

SHAPES = [
    *((m, n, 7168) for n in (2560, 2880, 5120, 7168) for m in (1, 8, 32, 128)),
    *((m, n, k) for n, k in ((128, 2880), (640, 2880), (2880, 4096)) for m in (1, 32, 128)),
]
_XCDS, _CUS = 8, 304
# Slots of 16 bytes: addresses of D, C, A, B; alpha, beta; strides in bytes of D, C, A, B, two each;
# M, N, K, splits; whether D is bfloat16; bias, whether there is one; semaphores. From the public
# launcher, csrc/py_itfs_cu/asm_gemm_a16w16.cu.
_SLOTS = "<" + "Q8x" * 4 + "f12x" * 2 + "I12x" * 8 + "I12x" * 5 + "Q8xI12xQ8x"


def arrays(m: int, n: int, k: int) -> tuple[amdattn.DeviceArray, amdattn.DeviceArray]:
    """Both inputs; what they hold does not matter for the time."""
    some = np.random.default_rng(0).standard_normal(1 << 16, np.float32).astype(ml_dtypes.bfloat16)
    return amdattn.asarray(np.resize(some, (m, k))), amdattn.asarray(np.resize(some, (n, k)))


def ours(m: int, n: int, k: int, clock_mhz: int) -> tuple[float, amdattn.GemmPlan]:
    """Modelled us, and the plan."""
    plan = amdattn.plan_gemm(m, n, k, device=amdattn.device_props())
    a, b = arrays(m, n, k)
    out, workspace = amdattn.empty((m, n)), plan.new_workspace()
    with amdattn.virtual.profile(clock_mhz=clock_mhz) as profile:
        plan.run(a, b, out, workspace=workspace)
        runtime.synchronize()
    return profile.launches[0].cycles / clock_mhz, plan


def aiter(
    directory: Path, m: int, n: int, k: int, clock_mhz: int, functions: Functions
) -> tuple[float, str] | None:
    """Modelled us of the fastest tile, and its name."""
    folder = directory / "hsa" / "gfx942" / "bf16gemm"
    with open(folder / "bf16gemm_fp32bf16.csv", newline="", encoding="utf-8") as file:
        rows = [
            row for row in csv.DictReader(file) if (row["bPreshuffle"], row["splitK"]) == ("0", "1")
        ]
    found = []
    for row in rows:
        tile_m, tile_n = int(row["tileM"]), int(row["tileN"])
        grid = n // tile_n, -(-m // tile_m)
        tiles = grid[0] * grid[1]
        if n % tile_n or tiles % _XCDS or tile_m > max(32, m):
            continue
        splits = max(2, min(_CUS // tiles, 16, k // int(row["subK"])))
        a, b = arrays(m, n, k)
        out, bias = amdattn.empty((m, n)), amdattn.empty(n, "float32")
        semaphores = amdattn.asarray(np.zeros(16 * 64, np.uint32))
        kernarg = struct.pack(
            _SLOTS,
            *(out.address, 0, a.address, b.address, 1.0, 0.0),
            *(0, 0, 2 * n, 0, 2 * k, 0, 2 * k, 0),
            *(m, n, k, splits, 1, bias.address, 0, semaphores.address),
        )
        image = (folder / row["co_name"]).read_bytes()
        launch = Launch(image, row["knl_name"], (*grid, splits), (256, 1, 1), kernarg)
        with amdattn.virtual.profile(clock_mhz=clock_mhz) as profile:
            launch.enqueue(functions)
            runtime.synchronize()
        us = profile.launches[0].cycles / clock_mhz
        found.append((us, f"{tile_m} x {tile_n}, {splits} splits"))
    return min(found, default=None)


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aiter", type=Path, help="a checkout of ROCm/aiter")
    parser.add_argument("--clock-mhz", type=int, default=2100)
    parser.add_argument("--shapes", nargs="*", help="M,N,K")
    options = parser.parse_args()
    given = options.shapes and [tuple(map(int, shape.split(","))) for shape in options.shapes]
    functions, clock, ratios = Functions(), options.clock_mhz, []
    print(f"us, modelled at {clock} MHz\n")
    print("| m, n, k | floor | gemm_nt | of floor | kernel | AITER | tile | ratio |")
    print("|---|--:|--:|--:|---|--:|---|--:|")
    for m, n, k in given or SHAPES:
        us, plan = ours(m, n, k, clock)
        floor = floor_us(plan.problem)
        peer = options.aiter and aiter(options.aiter, m, n, k, clock, functions)
        theirs = f"{peer[0]:.2f} | {peer[1]} | {peer[0] / us:.2f}" if peer else "- | - | -"
        ratios += [peer[0] / us] if peer else []
        name = plan.kernel.name.rpartition("_")[2]
        splits = plan.launches[0].grid[2]
        name += f", {splits} splits" * (splits > 1)
        print(
            f"| {m}, {n}, {k} | {floor:.2f} | {us:.2f} | {us / floor:.2f} | {name} | {theirs} |",
            flush=True,
        )
    if ratios:
        print(f"\nGeometric mean of {len(ratios)} ratios: {np.exp(np.mean(np.log(ratios))):.3f}")


if __name__ == "__main__":
    main()
