"""Plans of products and of attention calls are those of listed_plans.txt, with every figure.

The planners' constants were fitted to the performance model: one that changes by a percent decides
no test of what is best, but it does decide plans. So the list has plans with all that they say,
where every constant counts: all kinds of kernels, whole devices and partitions, splits, masks.
Whoever changes a constant sees here what follows, and lists it with

    python -m tests.ops.test_plans_as_listed
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import amdattn
from tests.support.paths import TESTS

LISTED = Path(__file__).with_name("listed_plans.txt")

ATTENTION: tuple[tuple[tuple[int, ...], str, dict[str, Any]], ...] = (
    ((1, 1, 1, 1, 1, 128), "MI300X", {}),
    ((1, 300, 4096, 32, 8, 128), "MI300X", {"causal": True}),
    ((2, 8192, 8192, 24, 24, 128), "MI300X", {}),
    ((1, 1, 4096, 32, 8, 128), "MI325X", {"sinks": True}),
    ((3, 65, 129, 4, 2, 128), "MI300X:CPX", {"num_splits": 3, "return_lse": True}),
    ((1, 1024, 1024, 64, 8, 64), "MI300X", {"window_size": (127, 0), "sinks": True}),
    ((1, 64, 4096, 64, 8, 64), "MI308X", {"window_size": (127, 0)}),
    ((2, 9000, 9000, 64, 8, 64), "MI300X", {"window_size": (127, 0), "sinks": True}),
    ((1, 1500, 1500, 20, 20, 64), "MI300A", {}),
    ((1, 2048, 2048, 128, 128, 192), "MI300X", {"causal": True, "head_dim_v": 128}),
    ((1, 700, 600, 8, 4, 256), "MI300X:DPX", {"softcap": 30.0, "top_left": True, "causal": True}),
    ((1, 5000, 6000, 16, 4, 128), "MI300X", {"window_size": (1000, 200), "dtype": "float16"}),
    ((2, 33, 130, 3, 3, 72), "MI300X", {"head_dim_v": 40, "gather": "kv"}),
    ((3, 120, 100, 2, 1, 128), "MI300X", {"total_q": 200, "total_kv": 220, "causal": True}),
    ((3, 120, 100, 2, 1, 128), "MI300X", {"total_q": 200, "total_kv": 220, "gather": "k"}),
    ((4, 8192, 8192, 64, 64, 128), "MI300X", {"num_splits": 8}),
    ((4, 3000, 8192, 64, 64, 128), "MI300X", {"num_splits": 5, "causal": True}),
    ((2, 8192, 8192, 24, 24, 128), "MI355X", {}),
    ((1, 300, 4096, 32, 8, 128), "MI355X", {"causal": True}),
    ((10, 2048, 2048, 16, 16, 128), "MI355X", {"causal": True}),
    ((1, 1024, 1024, 64, 8, 64), "MI350X", {"window_size": (127, 0), "sinks": True}),
    ((1, 1, 4096, 32, 8, 128), "MI355X:CPX", {"sinks": True}),
)
GEMM: tuple[tuple[tuple[int, int, int], str, dict[str, Any]], ...] = (
    ((1, 1, 8), "MI300X", {}),
    ((1, 4096, 4096), "MI300X", {}),
    ((5, 8192, 8192), "MI300X", {"bias": True}),
    ((16, 14336, 4096), "MI325X", {}),
    ((16, 512, 16384), "MI300X", {}),
    ((16, 512, 16384), "MI300X", {"deterministic": False, "out_dtype": "float32"}),
    ((64, 4096, 14336), "MI300A", {"alpha": 0.5}),
    ((300, 5120, 8192), "MI300X:CPX", {"deterministic": False}),
    ((512, 512, 1024), "MI300X", {"dtype": "float16", "split_k": 2}),
    ((2000, 4000, 4096), "MI308X", {}),
    ((7, 999, 4096), "MI300X", {"activation": "silu_and_mul", "bias": True}),
    ((24, 100, 131), "MI300X", {"aligned": False}),
    ((33, 2560, 2047), "MI300X:QPX", {"aligned": False, "activation": "silu"}),
    ((1, 4096, 4096), "MI355X", {}),
    ((16, 512, 16384), "MI355X", {}),
    ((64, 4096, 14336), "MI350X:DPX", {"alpha": 0.5}),
)


def described() -> Iterator[str]:
    """Every plan: its call, what it says of itself, and what its launches are given."""
    for plan_of, calls in ((amdattn.plan_attention, ATTENTION), (amdattn.plan_gemm, GEMM)):
        for sizes, device, options in calls:
            plan: Any = plan_of(*sizes, device=device, **options)  # type: ignore[operator]
            yield f"# {plan_of.__name__}{sizes} on {device} {options or ''}".rstrip()
            for line in plan.explain().splitlines():
                if not line.startswith("code object"):  # hashes change with the kernels
                    yield line.rstrip()
            for i, launch in enumerate(plan.launches):
                yield f"arguments {i}: " + ", ".join(f"{name}={x}" for name, x in launch.args)
            yield ""


def test_plans_are_those_that_are_listed() -> None:
    for found, listed in zip(
        "\n".join(described()).split("\n\n"), LISTED.read_text().split("\n\n"), strict=True
    ):
        assert found.split("\n") == listed.split("\n")


if __name__ == "__main__":
    os.environ["AMDATTN_GEMM_TABLE"] = str(
        TESTS / "support" / "no_tuned_gemm.json"
    )  # not what the user has tuned
    sys.stdout.write(f"{LISTED}: {LISTED.write_text(chr(10).join(described()))} characters\n")
