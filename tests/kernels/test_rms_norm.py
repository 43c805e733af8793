"""RMS normalisation kernel by kernel: results against float64, and all that may not be written."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

import amdattn
from amdattn.device.manifest import KernelSpec
from amdattn.ops.norm.planning import grid, mismatches
from amdattn.ops.norm.problem import NormProblem
from amdattn.ops.norm.rms_norm import planned
from benchmarks.performance_model.micro_kernel import STORE_CLK
from tests.support.norm_family import KERNELS, Call

BAR = 2520  # clk, 1.2 us at 2.1 GHz
NAMES = list(KERNELS)
BF16 = [name for name in NAMES if "_bf16_" in name]
# Lanes of a row in a part of a wave, in a wave and in several; its own columns or all of them.
EVERY_KIND = [
    *(name for name in NAMES if name.endswith(("_c64_r8_l64", "_c2048_l128"))),
    *("rms_norm_fp16_c128_l64", "rms_norm_bf16_c4096_slice512_residual"),
]
WHOLE = [name for name in BF16 if KERNELS[name].accepts["in_place"]]
# Those of float16 differ in the conversions only.
BF16_FIRST = [pytest.param(name, marks=[] if name in BF16 else pytest.mark.slow) for name in NAMES]


def calls(kernel: KernelSpec, rows: tuple[int, ...], columns: tuple[int, ...]) -> Iterator[Call]:
    """Those of them that the kernel takes, with and without a residual."""
    least, most = kernel.accepts["columns"]
    for residual in kernel.accepts["residual"]:
        for i, count in enumerate(sorted({c for c in columns if least <= c <= most})):
            yield Call(kernel.name, rows[i % len(rows)], count, residual)


@pytest.mark.parametrize("name", NAMES)
def test_results(name: str) -> None:
    """Its greatest row and one less, its least, and others that end within a chunk."""
    kernel = KERNELS[name]
    most, tile_rows = kernel.accepts["columns"][1], kernel.tile["rows"]
    for call in calls(kernel, (tile_rows + 1, 1), (kernel.accepts["columns"][0], most - 1, most)):
        call.check()


@pytest.mark.parametrize("name", BF16_FIRST)
def test_checked(name: str) -> None:
    """No finding in checked mode: addresses that no load wants, rows with gaps, a row too many."""
    kernel = KERNELS[name]
    least, most = kernel.accepts["columns"]
    with amdattn.virtual.check():
        for residual in kernel.accepts["residual"]:
            whole = Call(name, kernel.tile["rows"] + 1, most, residual)
            whole.check()
            columns = max(least, most - 3 if most < 8192 else most // 2 + 3)
            ragged = dataclasses.replace(whole, columns=columns, pad=3, out_pad=1, offset=1)
            ragged.check()


@pytest.mark.parametrize("name", EVERY_KIND)
def test_weights_of_float32(name: str) -> None:
    """None is rounded; those that 16 bits hold give the bits of weights of 16 bits."""
    narrow = KERNELS[name.replace("_weight_fp32", "")]
    wide = KERNELS[narrow.name.replace("16_", "16_weight_fp32_", 1)]
    for call in calls(wide, (3,), (wide.accepts["columns"][1] - 1,)):
        x, weight, *residual = call.inputs()
        rounded = weight.astype(call.element)
        assert (weight != rounded).any()
        exact, _ = call.run(x, weight, *residual)
        found, _ = call.run(x, rounded.astype(np.float32), *residual)
        must, _ = dataclasses.replace(call, kernel=narrow.name).run(x, rounded, *residual)
        np.testing.assert_array_equal(found.view(np.uint16), must.view(np.uint16))
        assert (exact != found).any()


SIZES = (1, 2, 3, 7, 8, 9, 63, 64, 65, 127, 128, 129, 511, 512, 513, 1023, 1025, 2049)


def sized(columns: int) -> list[Call]:
    """Calls of every kernel that takes rows of so many columns; in each other numbers of rows."""
    return [
        call
        for i, kernel in enumerate(KERNELS.values())
        for call in calls(kernel, (SIZES[(columns + i) % 7],), (columns,))
    ]


@pytest.mark.parametrize("columns", SIZES)
def test_some_kernels_at_a_size(columns: int) -> None:
    """Powers of two, one less and one more."""
    for call in sized(columns)[columns % 11 :: 11]:
        call.check()


@pytest.mark.slow
@pytest.mark.parametrize("columns", SIZES)
def test_every_kernel_at_a_size(columns: int) -> None:
    for call in sized(columns):
        call.check()


@pytest.mark.parametrize("rows", [63, 65, 129])
@pytest.mark.parametrize("name", [name for name in BF16 if KERNELS[name].tile["rows"] > 1])
def test_rows_of_several_workgroups(name: str, rows: int) -> None:
    for call in calls(KERNELS[name], (rows,), (KERNELS[name].accepts["columns"][1] - 1,)):
        call.check()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_sizes(name: str) -> None:
    kernel = KERNELS[name]
    most = kernel.accepts["columns"][1]
    rng = np.random.default_rng(0)
    columns = tuple(map(int, rng.integers(1, most + 1, 24)))
    for call in calls(kernel, (1, 2, 3, 5, 31, 33), (*columns, *range(most - 20, most))):
        dataclasses.replace(call, offset=int(rng.integers(8)), pad=int(rng.integers(9))).check()


@pytest.mark.parametrize("name", WHOLE)
def test_in_place(name: str) -> None:
    """The same bits where out is x, and sum the residual."""
    most = KERNELS[name].accepts["columns"][1]
    for columns in (most, max(1, most - 3)):
        apart = Call(name, KERNELS[name].tile["rows"] + 1, columns, True)
        together = dataclasses.replace(apart, in_place=True)
        for one, other in zip(apart.run(), together.run(), strict=True):
            assert one is not None and other is not None
            np.testing.assert_array_equal(one.view(np.uint16), other.view(np.uint16))


@pytest.mark.parametrize("name", ["rms_norm_bf16_c64_r8_l64", "rms_norm_fp16_c1024_r2_l64"])
def test_rows_from_the_last_to_the_first(name: str) -> None:
    columns = KERNELS[name].accepts["columns"][1]
    Call(name, 11, columns - 1, True, pad=2, out_pad=5, backward=True).check()


@pytest.mark.parametrize("name", [name for name in BF16 if KERNELS[name].workgroup[0] > 64])
def test_the_same_bits_in_any_order(name: str) -> None:
    kernel = KERNELS[name]
    call = Call(name, 3, kernel.accepts["columns"][1], kernel.accepts["residual"][-1])
    first, first_sum = call.run()
    try:
        amdattn.virtual.set_option("seed", 7)
        second, second_sum = call.run()
    finally:
        amdattn.virtual.set_option("seed", 0)
    np.testing.assert_array_equal(first.view(np.uint16), second.view(np.uint16))
    if first_sum is not None and second_sum is not None:
        np.testing.assert_array_equal(first_sum.view(np.uint16), second_sum.view(np.uint16))


@pytest.mark.parametrize("where", ["x", "residual", "weight"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", EVERY_KIND)
def test_nan_and_infinities(name: str, value: float, where: str) -> None:
    """NaN makes its row NaN; an infinity itself NaN, and 0 of the rest of its row."""
    kernel = KERNELS[name]
    call = Call(name, 9, min(kernel.accepts["columns"][1], 513), True)
    x, weight, residual = call.inputs()
    last = call.columns - 1
    if where == "weight":
        weight[last] = value
    else:
        into = {"x": x, "residual": residual}[where]
        into[1, 0] = into[4, last] = into[8, last // 2] = value
    out, total = call.check(x, weight, residual)
    assert total is not None
    if where == "weight":
        assert np.isfinite(total.astype(np.float32)).all()
        assert not np.isfinite(out[:, last].astype(np.float32)).any()
    else:
        assert np.isnan(out[[1, 4, 8], [0, last, last // 2]].astype(np.float32)).all()
        assert np.isfinite(out[[0, 2, 3, 5, 6, 7]].astype(np.float32)).all()


def test_opposite_infinities_add_up_to_nan() -> None:
    call = Call("rms_norm_bf16_c64_r8_l64", 2, 64, True)
    x, weight, residual = call.inputs()
    x[0, 3], residual[0, 3] = np.inf, -np.inf
    out, total = call.check(x, weight, residual)
    assert total is not None
    assert np.isnan(total[0, 3]) and np.isnan(out[0].astype(np.float32)).all()


@pytest.mark.parametrize("bits", [0x7F81, 0x7FFF, 0xFFFF, 0xFF81])
def test_a_nan_of_any_payload_stays_one(bits: int) -> None:
    call = Call("rms_norm_bf16_c64_r8_l64", 3, 64, True)
    x, weight, residual = call.inputs()
    x.view(np.uint16)[1, 5] = bits
    call.check(x, weight, residual)


@pytest.mark.parametrize("eps", [0.0, 1e-42, 1e-6])
@pytest.mark.parametrize("size", [0.0, 1e-38, 5e-20, 1e-12, 1.0, 1e15])
def test_sizes_of_bfloat16(size: float, eps: float) -> None:
    """Squares that are denormal in float32 count; below, eps is all there is."""
    call = Call("rms_norm_bf16_c512_l64", 2, 300, False, eps=eps)
    x, weight = call.inputs()
    x = (np.where(np.abs(x) < 0.25, 0.25, x).astype(np.float64) * size).astype(x.dtype)
    if size in (0.0, 1e-38) and eps < 1e-40:
        out, _ = call.run(x, weight)  # float32 has 0 / 0, or infinity
        assert not np.isfinite(out[:, :3].astype(np.float32)).any() or eps
        return
    call.check(x, weight)


def test_squares_beyond_float32_give_zero() -> None:
    call = Call("rms_norm_bf16_c512_l64", 2, 300, False)
    x, weight = call.inputs()
    x[0, 17] = 1e30
    out, _ = call.check(x, weight)
    assert not out[0].astype(np.float32).any() and out[1].astype(np.float32).any()


def test_the_greatest_float16() -> None:
    call = Call("rms_norm_fp16_c1024_l64", 2, 1000, True)
    x, weight, residual = call.inputs()
    x[0] = 65504
    residual[0] = 0
    out, _ = call.check(x, np.ones_like(weight), residual)
    np.testing.assert_array_equal(out[0].astype(np.float32), 1)
    residual[0, 3] = 65504  # the sum is infinite
    call.check(x, weight, residual)


def test_a_sum_is_rounded_once() -> None:
    """1024.5 is a tie of float16: what float32 loses of the residual decides it."""
    call = Call("rms_norm_fp16_c64_r8_l64", 1, 64, True)
    _, weight, _ = call.inputs()
    x, residual = np.full((1, 64), 2049, np.float16), np.full((1, 64), 2.0**-24, np.float16)
    x[0, 1::2], residual[0, 1::2] = 2048, 1 + 2.0**-10
    call.check(x, weight, residual)


# ---- What the manifest says


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("weight_dtype", [None, "float32"])
@pytest.mark.parametrize("columns", [1, 7, 8, 9, 100, 8192, 65535, 65536])
def test_rows_of_any_length_have_a_kernel(
    columns: int, weight_dtype: str | None, residual: bool, dtype: str
) -> None:
    """Up to 65536 columns, in place or not."""
    mine = [kernel for kernel in KERNELS.values() if kernel.dtype == dtype]

    def takers(rows: int, columns: int) -> list[KernelSpec]:
        problem = NormProblem((rows,), columns, dtype, residual, weight_dtype=weight_dtype)
        return [kernel for kernel in mine if not mismatches(kernel, problem)]

    assert {True} <= {kernel.accepts["in_place"] for kernel in takers(3, columns)}
    assert not takers(3, 65537) and not takers(2**30 + 1, columns)


@pytest.mark.parametrize("name", NAMES)
def test_tiles_are_what_a_workgroup_writes(name: str) -> None:
    """Rows and columns beyond those of the grid stay as they were."""
    kernel = KERNELS[name]
    rows, columns = kernel.tile["rows"], kernel.tile["columns"]
    most = kernel.accepts["columns"][1]
    assert grid(kernel, NormProblem((rows,), most)) == (1, most // columns, 1)
    assert grid(kernel, NormProblem((rows + 1,), most))[0] == 2
    assert kernel.accepts["in_place"] == (columns == most)


# ---- Which one is taken


@pytest.mark.slow
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize(
    ("rows", "columns"),
    [(1, 64), (1, 100), (8, 1024), (2, 4096), (64, 1024), (512, 64), (512, 1024), (64, 8192)],
)
def test_the_preferred_kernel_is_about_the_fastest(rows: int, columns: int, residual: bool) -> None:
    """Of those that are not far too wide, by the performance model."""
    props, mine = amdattn.device_props(), [KERNELS[name] for name in BF16]
    problem = NormProblem((rows,), columns, residual=residual)
    taken = planned(problem, props).launches[0].kernel
    cycles = {
        kernel.name: Call(kernel.name, rows, columns, residual).cycles()
        for kernel in mine
        if not mismatches(kernel, problem) and kernel.accepts["columns"][1] <= 8 * columns
    }
    assert cycles[taken.name] <= 1.06 * min(cycles.values()), cycles


@pytest.mark.parametrize(
    ("columns", "residual", "most"),
    # The last one misses the bar since the model has waves wait for their stores.
    [(64, False, BAR), (64, True, BAR), (1024, False, BAR), (1024, True, BAR + STORE_CLK)],
)
def test_a_small_launch_is_within_the_bar(columns: int, residual: bool, most: int) -> None:
    """1.2 us beside the launch: benchmarks/rms_norm.py has all shapes."""
    problem = NormProblem((8,), columns, residual=residual)
    kernel = planned(problem, amdattn.device_props()).launches[0].kernel
    assert Call(kernel.name, 8, columns, residual).cycles() <= most
