"""Plans of products: the least estimate of all choices, without estimating all of them."""

from __future__ import annotations

import random

import pytest

import amdattn
from amdattn.arch.props import KNOWN_DEVICES, as_device_props
from amdattn.ops.gemm import execution, planning
from amdattn.ops.gemm.cost import clock_of, estimator, floor
from amdattn.ops.gemm.execution import GemmPlan
from amdattn.ops.gemm.problem import GemmProblem

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("device", ["MI300X", "MI355X", "MI308X:DPX"])
def test_a_choice_is_the_least_of_all(device: str) -> None:
    """A plan does not estimate what is certainly not near the least, and chooses the same."""
    props, rows = as_device_props(device), amdattn.kernels()
    drawn = random.Random(0)
    for _ in range(60):
        m, n, k = (drawn.randint(1, drawn.choice((8, 100, 20000))) for _ in range(3))
        problem = GemmProblem(
            *(m, n, 8 * k, drawn.choice(("bfloat16", "float16"))),
            activation=drawn.choice((None, "silu", "silu_and_mul")),
            deterministic=drawn.random() < 0.7,
            aligned=drawn.random() < 0.8,
            split_k=drawn.choice((0, 0, 3)),
        )
        every = planning.choices(problem, props, rows)
        assert planning.choose(problem, props, rows) == planning.least_estimated(every.items)
        plan = execution.planned(problem, props, None)
        assert plan == GemmPlan.of(planning.plan_gemm(problem, props, rows))  # reasons, too


def test_the_floor_is_of_bytes_or_of_matrix_units() -> None:
    """By calculation: a product of many rows is limited by its multiplications, not its bytes."""
    flops_per_us = 304 * 2048 * 2.1e3
    assert floor(GemmProblem(4096, 6144, 4096), KNOWN_DEVICES["MI300X"]) == (
        pytest.approx(2 * 4096 * 6144 * 4096 / flops_per_us),
        "matrix units at 2.1 GHz",
    )
    assert floor(GemmProblem(1, 8192, 8192), KNOWN_DEVICES["MI300X"])[1] == "bytes through HBM"


def test_all_kernels_are_compared_at_one_clock() -> None:
    """The greatest where bytes bound a product, the sustained one where matrix units do."""
    props, rows = KNOWN_DEVICES["MI300X"], amdattn.kernels()
    for m, clock_ghz in ((16, 2.1), (300, 2.1), (512, 1.2), (4096, 1.2)):
        problem = GemmProblem(m, 4096, 4096)
        assert clock_of(problem, props) == clock_ghz
        every = planning.choices(problem, props, rows).items
        assert {choice.cost.clock_ghz for choice in every} == {clock_ghz}
        best = planning.choose(problem, props, rows)
        assert best.cost.us == pytest.approx(best.cost.clk / clock_ghz / 1000)


@pytest.mark.parametrize("device", ["MI300X", "MI355X"])
def test_memory_takes_more_clk_at_a_greater_clock(device: str) -> None:
    """And no more time: what is not memory takes the same clk."""
    props, problem = KNOWN_DEVICES[device], GemmProblem(768, 4096, 2048)
    taking = [kernel for kernel in amdattn.kernels() if kernel.name.startswith("gemm_nt_bf16_")]
    for kernel in taking:
        if kernel.arch == props.arch and kernel.accepts["pointer_align_bytes"] > 2:
            columns = kernel.tile["n"]
            slow, fast = (
                estimator(problem, kernel, props, clock_ghz).estimate(1, columns).clk
                for clock_ghz in (props.sustained_clock_ghz, props.peak_clock_ghz)
            )
            ratio = props.peak_clock_ghz / props.sustained_clock_ghz
            assert slow < fast < slow * ratio, kernel.name


@pytest.mark.parametrize("device", ["MI300X", "MI355X"])
def test_odd_sides_take_longer(device: str) -> None:
    """Rows that begin within cache lines, and results that are stored one by one."""
    props, rows = KNOWN_DEVICES[device], amdattn.kernels()
    whole, of_k, of_n = (
        {one.kernel.name: one.cost.clk for one in planning.choices(problem, props, rows).items}
        for problem in (
            GemmProblem(2048, 4096, 4096, split_k=1),
            GemmProblem(2048, 4096, 4088, split_k=1),
            GemmProblem(2048, 4095, 4096, split_k=1),
        )
    )
    tiles = [name for name in whole if "_t" in name.removeprefix("gemm_nt")]
    assert tiles and all(whole[name] < of_n[name] for name in tiles)
    assert all(of_k[name] > 0.99 * whole[name] for name in tiles)  # as much where the L2 can
    assert any(of_k[name] > 1.02 * whole[name] for name in tiles)


# Of several rounds of workgroups on an XCD: clk as modelled at the clock, in GHz.
ROUNDS = (
    ("MI300X", (512, 6144, 4096), 2.1, "gemm_nt_bf16_m64n64", 64, 86_497),
    ("MI300X", (549, 5274, 6592), 2.1, "gemm_nt_bf16_m64n64", 60, 133_698),
    ("MI300X", (384, 14336, 4096), 1.2, "gemm_nt_bf16_m64n64", 60, 128_877),
    ("MI300X", (3072, 1536, 1536), 2.1, "gemm_nt_bf16_m64n32", 32, 165_002),
    ("MI355X", (512, 6144, 4096), 2.4, "gemm_nt_bf16_m64n64", 64, 66_696),
)


@pytest.mark.parametrize(("device", "sizes", "clock_ghz", "name", "columns", "clk"), ROUNDS)
def test_rounds_of_few_rows(
    device: str, sizes: tuple[int, int, int], clock_ghz: float, name: str, columns: int, clk: int
) -> None:
    """Each brings A, that the L2 does not hold, once more, and begins and ends by itself."""
    props = KNOWN_DEVICES[device]
    kernel = next(one for one in amdattn.kernels() if (one.name, one.arch) == (name, props.arch))
    of_kernel = estimator(GemmProblem(*sizes), kernel, props, clock_ghz)
    assert of_kernel.estimate(1, columns).clk == pytest.approx(clk, rel=0.1)


@pytest.mark.parametrize("rows", [256, 512])
def test_rows_that_fill_up_the_tiles_of_groups_count(rows: int) -> None:
    """Of large tiles more: what MI300X takes least for is modelled to be 128 x 128 for both."""
    props, groups = KNOWN_DEVICES["MI300X"], 64
    problem = GemmProblem(groups * rows, 4096, 2048, "bfloat16", groups=groups)
    assert planning.choose(problem, props, amdattn.kernels()).kernel.tile == {"m": 128, "n": 128}
    # A group of few rows has a tile, however few.
    few = GemmProblem(2 * groups, 4096, 2048, "bfloat16", groups=groups)
    one_each = GemmProblem(groups, 4096, 2048, "bfloat16", groups=groups)
    for choice in planning.choices(few, props, amdattn.kernels()).items:
        of_one = estimator(one_each, choice.kernel, props, choice.cost.clock_ghz)
        assert of_one.estimate(1, choice.columns).clk == pytest.approx(choice.cost.clk, rel=1e-2)
