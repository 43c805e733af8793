"""The kernels for MX types: ends of k and of tiles, scales and numbers that are none, every end.

Where the tests run on a device that has none of them, some run in a process on one that has.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import amdattn
from amdattn.arch.products import of_arch
from amdattn.device import manifest
from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import as_dtype
from amdattn.ops.gemm import mx, planning
from amdattn.ops.gemm.cases import GemmCase, expected, mx_scales, products
from amdattn.ops.gemm.execution import GemmPlan
from amdattn.ops.gemm.problem import MX, MX_BLOCK, GemmProblem
from tests.support.attention.family import Guarded
from tests.support.gemm_family import ENDS_OF_A_TILE
from tests.support.kernel_sweep import run_on
from tests.support.paths import ROOT

Array = npt.NDArray[Any]
_EVERY = [
    row for row in manifest.kernels() if row.op == planning.GEMM and row.accepts["scales"] == [MX]
]
_HERE = amdattn.device_props().arch
ROWS = {row.name: row for row in _EVERY if row.arch == _HERE}
# Two of a width differ in the matrix instruction only.
_LIKE_OTHERS = ("_e5m2_", "_e3m2_")
NAMES = [
    pytest.param(name, marks=pytest.mark.slow if any(x in name for x in _LIKE_OTHERS) else ())
    for name in ROWS
]
_NO_NUMBER = 255  # of scales


elsewhere = pytest.mark.skipif(bool(ROWS), reason="the device has them")


@elsewhere
def test_some_cases_on_a_device_that_has_them() -> None:
    """Against float64, and checked under two schedules without a finding."""
    found = run_on(
        _EVERY[0].arch, "--every=1", "--cases=2", "--checked", "--names=*_mx_*", timeout=300
    )
    assert found["wrong"] == []
    assert set(found["launched"]) == {row.name for row in _EVERY}


@elsewhere
@pytest.mark.slow
def test_all_of_this_on_a_device_that_has_them() -> None:
    chip = of_arch(_EVERY[0].arch)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__],
        env=os.environ | {"AMDATTN_DEVICE": f"virtual:{chip.arch}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def problem_of(row: KernelSpec, m: int, n: int, k: int, **options: Any) -> GemmProblem:
    return GemmProblem(m, n, k, row.dtype, scale_a=MX, scale_b=MX, **options)


def run(row: KernelSpec, problem: GemmProblem, inputs: dict[str, Any]) -> Array:
    """The result from inside a larger buffer, of which the rest must stay as it was."""
    props = amdattn.device_props()
    plan = GemmPlan.of(planning.plan_gemm(problem, props, [row]))
    given = {
        name: x if isinstance(x, amdattn.DeviceArray) else amdattn.asarray(x)
        for name, x in inputs.items()
    }
    if problem.of_rows:
        return plan.run(**given).numpy()
    out = Guarded(problem.out_shape, as_dtype(problem.out_dtype).numpy(), 8)
    amdattn.synchronize()
    plan.run(given.pop("a"), given.pop("b"), out.inner, **given)
    amdattn.synchronize()
    return out.taken()


def hold(out: Array, problem: GemmProblem, inputs: dict[str, Array]) -> None:
    found = expected(GemmCase(problem), inputs)["out"]
    error = np.abs(out.astype("f8") - found.values).max()
    assert error <= found.tolerance, f"{error / found.tolerance:.3g} of what is allowed"


def check(name: str, m: int, n: int, k: int, **options: Any) -> None:
    problem = problem_of(ROWS[name], m, n, k, **options)
    inputs = GemmCase(problem).inputs(m + n + k)
    hold(run(ROWS[name], problem, inputs), problem, inputs)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [128, 256, 384, 512, 640, 768, 896, 1024, 1152, 1408, 2176])
def test_every_length_of_k(name: str, k: int) -> None:
    """Steps of all scales that are loaded at once, and more; half of one at the end."""
    tile = ROWS[name].tile
    check(name, tile["m"] + 3, tile["n"] - 5, k, bias=k % 256 == 0)


@pytest.mark.parametrize("name", NAMES)
def test_sizes_around_tiles(name: str) -> None:
    m, n = ROWS[name].tile["m"], ROWS[name].tile["n"]
    for further_m, further_n in ((0, 0), (1, 8), (-1, 9), (5, n + 1)):
        check(name, m + further_m, n + further_n, 384)
    check(name, 1, 1, 640)
    check(name, 3 * m + 40, 1, 128)


@pytest.mark.parametrize("options", ENDS_OF_A_TILE, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_every_end_of_a_tile(name: str, options: dict[str, Any]) -> None:
    m, n = ROWS[name].tile["m"], ROWS[name].tile["n"]
    for columns in (n // 2 + 16, n // 2 + 13, n + 7):
        check(name, m // 2 + 7, columns, 384, bias=True, **options)
    check(name, 33, 45, 256, adds="residual", **options)


@pytest.mark.parametrize("name", NAMES)
def test_several_products_of_a_launch(name: str) -> None:
    """Each has the bits of a launch of its own."""
    row = ROWS[name]
    for options in ({"batch": 3}, {"groups": 4}):
        problem = problem_of(row, 300, 140, 640, bias=True, **options)
        inputs = GemmCase(problem).inputs(7)
        out = run(row, problem, inputs)
        alone = [
            run(row, problem_of(row, len(one["a"]), 140, 640, bias=True), one)
            for one in products(problem, inputs)
        ]
        assert out.tobytes() == np.concatenate(alone).tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_equal_bits_and_no_findings(name: str) -> None:
    row = ROWS[name]
    m, n = row.tile["m"], row.tile["n"]
    for problem in (
        problem_of(row, m + 3, n + 24, 1152),
        problem_of(row, 70, 93, 384, activation="silu_and_mul"),
    ):
        inputs = GemmCase(problem).inputs(3)
        first = run(row, problem, inputs)
        for seed in (1, 2):
            amdattn.virtual.set_option("seed", seed)
            try:
                with amdattn.virtual.check():
                    again = run(row, problem, inputs)
            finally:
                amdattn.virtual.set_option("seed", 0)
            assert again.tobytes() == first.tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_scales_that_are_none_and_the_greatest_and_least(name: str) -> None:
    """255 makes its row or column NaN, also of zeros; 0 and 254 are powers of 2 as others are."""
    row = ROWS[name]
    problem = problem_of(row, 261, 133, 640, out_dtype="float32")
    inputs = GemmCase(problem).inputs(5)
    usual = run(row, problem, inputs)
    of_a, of_b = inputs["scale_a"], inputs["scale_b"]
    of_a[3, 7] = of_a[260, 19] = of_b[90, 0] = _NO_NUMBER
    inputs["a"][9], of_a[9, 12] = 0, _NO_NUMBER
    of_a[20], of_b[40] = 0, 0
    of_a[30], of_b[50] = 254, 254
    out = run(row, problem, inputs)
    nan = np.isnan(out)
    assert nan[[3, 9, 260]].all() and nan[:, 90].all()
    others = np.delete(np.arange(261), [3, 9, 20, 30, 260])
    columns = np.delete(np.arange(133), [40, 50, 90])
    assert (out[np.ix_(others, columns)] == usual[np.ix_(others, columns)]).all()
    a, b = (mx.values(inputs[x], inputs[f"scale_{x}"], row.dtype) for x in "ab")
    best = a @ b.T
    greatest = np.finfo(np.float32).max
    for i, j in ((20, 3), (20, 50), (30, 40), (77, 40), (20, 40)):
        size = (np.abs(a[i]) * np.abs(b[j])).sum()
        assert abs(out[i, j] - best[i, j]) <= 2.0**-18 * size + 2.0**-149, (i, j)
    for i, j in ((30, 50), (30, 3)):  # sums of parts may be infinite, or no numbers, on the way
        assert abs(best[i, j]) < greatest or not np.isfinite(out[i, j])


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if "float8" in row.dtype])
def test_numbers_that_are_none(name: str) -> None:
    """NaN of both 8-bit types, and infinities of that which has them, reach rows and columns."""
    row = ROWS[name]
    problem = problem_of(row, 130, 140, 384, out_dtype="float32")
    inputs = GemmCase(problem).inputs(5)
    inputs["a"][3, 17], inputs["b"][139, 383] = np.nan, np.nan
    if "e5m2" in row.dtype:
        inputs["a"][5, 40] = np.inf
    out = run(row, problem, inputs)
    with np.errstate(invalid="ignore"):
        best = expected(GemmCase(problem), inputs)["out"].values
    assert (np.isnan(out) == np.isnan(best)).all() and np.isnan(out[3]).all()
    assert (np.isinf(out) == np.isinf(best)).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_row_does_not_depend_on_the_others(name: str) -> None:
    row = ROWS[name]
    m = row.tile["m"]
    problem = problem_of(row, m + 9, 140, 384)
    inputs = GemmCase(problem).inputs(6)
    whole = run(row, problem, inputs)
    rest = {x: inputs[x][m:] if x in ("a", "scale_a") else inputs[x] for x in inputs}
    assert run(row, problem_of(row, 9, 140, 384), rest).tobytes() == whole[m:].tobytes()
    inputs["scale_a"][:m] = _NO_NUMBER
    assert run(row, problem, inputs)[m:].tobytes() == whole[m:].tobytes()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [128, 384, 640])
def test_operands_and_scales_inside_of_others(name: str, k: int) -> None:
    """Beside rows of scales are such that are no numbers, behind k too; rows lie apart."""
    row = ROWS[name]
    problem = problem_of(row, 261, 133, k, out_dtype="float32")
    inputs = GemmCase(problem).inputs(8)
    best = run(row, problem, inputs)
    apart = {}
    for operand, further in (("a", 12), ("b", 64), ("scale_a", 4), ("scale_b", 16)):
        rows, length = inputs[operand].shape
        wide = np.full((rows + 1, length + further), 0xFF, np.uint8)
        wide[:-1, 4 : 4 + length] = inputs[operand].view(np.uint8)
        data = amdattn.asarray(wide.view(inputs[operand].dtype))
        apart[operand] = data[:rows, 4 : 4 + length]
    assert (run(row, problem, apart) == best).all()


def test_scales_are_of_their_own_elements() -> None:
    """Each of a row's scales multiplies its 32 elements, of each row of a fragment."""
    for row in ROWS.values():
        k = 512
        problem = problem_of(row, 64, k // MX_BLOCK, k, out_dtype="float32")
        rng = np.random.default_rng(1)
        one = np.ones((64, k), np.float32)
        element = as_dtype(row.dtype).numpy()
        a = one.astype(element)
        b = (np.arange(k) // MX_BLOCK == np.arange(k // MX_BLOCK)[:, None]).astype("f4")
        inputs = {
            "a": mx.packed(a) if problem.is_packed else a,
            "b": mx.packed(b.astype(element)) if problem.is_packed else b.astype(element),
            "scale_a": mx_scales(rng, (64, k // MX_BLOCK)),
            "scale_b": np.full((k // MX_BLOCK, k // MX_BLOCK), 127, np.uint8),
        }
        out = run(row, problem, inputs)
        assert (out == MX_BLOCK * 2.0 ** (inputs["scale_a"].astype("f8") - 127)).all(), row.name
