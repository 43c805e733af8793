"""The planner's member and splits beside all others, by the performance model."""

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.device import manifest, runtime
from amdattn.ops.gemm import planning
from amdattn.ops.gemm.execution import GemmPlan
from amdattn.ops.gemm.problem import GemmProblem

CLOCK_MHZ = 2100  # of kernels that wait for memory, as planning assumes
SPLITS = (1, 2, 3, 4, 6, 8)
QUICK = [(1, 640, 2880), (64, 128, 2880)]
SLOW = [
    *((m, n, 7168) for n in (2112, 2560, 5120) for m in (1, 32, 128)),
    *((m, n, 2880) for n in (128, 640, 5120) for m in (16, 64, 128)),
    *((m, 2880, 4096) for m in (8, 64, 128)),
    (16, 2880, 2048),
]


def cycles(plan):
    problem = plan.problem
    some = np.random.default_rng(0).standard_normal(1 << 16).astype(ml_dtypes.bfloat16)
    a, b = (amdattn.asarray(np.resize(some, (rows, problem.k))) for rows in (problem.m, problem.n))
    out, workspace = amdattn.empty((problem.m, problem.n)), plan.new_workspace()
    with amdattn.virtual.profile(clock_mhz=CLOCK_MHZ) as profile:
        plan.run(a, b, out, workspace=workspace)
        runtime.synchronize()
    return profile.launches[0].cycles


def others(m, n, k):
    """Plans of every member with every number of splits that keeps a few steps for each part, in
    the width that the planner prefers."""
    props = amdattn.device_props()
    found = planning.choices(GemmProblem(m, n, k), props, manifest.kernels())
    kernels = {choice.kernel: None for choice in found.items}
    for kernel in kernels:
        if kernel.tile["m"] > max(16, 2 * m - 1):
            continue
        tiles = np.prod(planning.tiles(GemmProblem(m, n, k), kernel, kernel.tile["n"]))
        for splits in SPLITS:
            if splits == 1 or (tiles * splits <= 800 and k >= 256 * splits):
                problem = GemmProblem(m, n, k, split_k=splits)
                yield GemmPlan.of(planning.plan_gemm(problem, props, [kernel]))


@pytest.mark.parametrize(
    "shape", [*QUICK, *(pytest.param(s, marks=pytest.mark.slow) for s in SLOW)]
)
def test_choice_is_near_the_best(shape):
    by_estimate = planning.plan_gemm(
        GemmProblem(*shape), amdattn.device_props(), manifest.kernels()
    )
    chosen = cycles(GemmPlan.of(by_estimate))
    best = min(map(cycles, others(*shape)))
    print(f"{shape}: {chosen} clk chosen, {best} clk best, both modelled")
    assert chosen <= 1.1 * best
