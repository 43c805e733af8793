"""The decode GEMM family: every member against float64, at sizes that fit nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest

import amdattn
from amdattn.ops.gemm import planning
from amdattn.ops.gemm.execution import GemmPlan
from amdattn.ops.gemm.problem import GemmProblem
from tests.support.gemm_family import (
    KERNELS,
    NAMES,
    SMALL,
    SOME_NAMES,
    SOME_SPLITTING,
    SOME_WITH_WIDTHS,
    SPLITTING,
    WITH_FACTORS,
    Call,
    operands,
    planned,
)
from tests.support.problems import products

# Around tiles (16, 32, 64), lines (64) and rounds of lines (2 waves x 8 in flight).
SHAPES = [
    (1, 1, 8),
    (3, 5, 64),
    (16, 16, 72),
    (17, 33, 136),
    (5, 130, 1024),
    (65, 70, 1032),
    (64, 64, 2056),
]
UNALIGNED = [(1, 1, 1), (2, 3, 7), (5, 17, 65), (18, 20, 515), (33, 40, 1031)]


def aligned(name: str) -> bool:
    return not name.endswith("_any")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_every_member(name: str, shape: tuple[int, int, int]) -> None:
    Call(*shape, name).check()


@pytest.mark.parametrize("name", SOME_WITH_WIDTHS)
def test_every_width_of_tiles(name: str) -> None:
    """Tiles of fewer columns than they hold: whole ones and the rest of n."""
    (row,) = (row for row in KERNELS if row.name == name)
    for columns in range(max(row.tile["n"] // 2, 4), row.tile["n"] + 1, 4):
        for rest in (0, 1, 4):
            n = 8 * columns + rest - (8 if rest else 0)
            Call(21, n, 136, name, {"split_k": 1}, columns=columns).check()


@pytest.mark.parametrize("shape", UNALIGNED, ids=str)
@pytest.mark.parametrize("name", [name for name in NAMES if not aligned(name)])
def test_any_length_of_k(name: str, shape: tuple[int, int, int]) -> None:
    Call(*shape, name).check()


@pytest.mark.parametrize("splits", [2, 3, 6])
@pytest.mark.parametrize("name", SPLITTING)
def test_parts_along_k(name: str, splits: int) -> None:
    call = Call(35, 50, 1352, name, {"split_k": splits})
    assert call.plan().splits == splits
    call.check()


@pytest.mark.parametrize("name", SOME_SPLITTING)
def test_parts_that_are_added_as_they_come(name: str) -> None:
    for splits in (1, 2, 6):
        call = Call(35, 50, 1352, name, {"split_k": splits, "deterministic": False})
        assert call.plan().splits == splits
        call.check()


@pytest.mark.parametrize("out_dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_types_bias_and_alpha(dtype: str, with_bias: bool, out_dtype: str) -> None:
    options = {"dtype": dtype, "out_dtype": out_dtype, "alpha": -0.375}
    for n in (48, 50):  # whole tiles, and elements one by one
        Call(7, n, 200, "", options, with_bias).check()


@pytest.mark.parametrize("out_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("activation", ["silu", "gelu_tanh", "gelu"])
def test_activations(activation: str, out_dtype: str) -> None:
    options = {"activation": activation, "out_dtype": out_dtype, "alpha": 0.25}
    for name in (SMALL, "gemm_nt_bf16_m64n64", "gemm_nt_fp16_any"):
        call = Call(19, 50, 72, name, {**options, "split_k": 2})
        out = call.check().astype(np.float32)
        assert out.min() < -0.01 and out.max() > 2


@pytest.mark.parametrize("activation", ["silu_and_mul", "gelu_tanh_and_mul", "gelu_and_mul"])
@pytest.mark.parametrize("name", [one for one in SOME_NAMES if one.values[0] in WITH_FACTORS])
def test_factors(name: str, activation: str) -> None:
    """Half of the rows of b are of the gate; every n that is no multiple of anything."""
    for m, n, k, options in (
        (3, 1, 72, {}),
        (17, 7, 136, {"out_dtype": "float32", "alpha": -0.5}),
        (35, 50, 1032, {"split_k": 3}),
        (66, 64, 264, {"split_k": 2, "deterministic": False}),
    ):
        if "split_k" in options and name not in SPLITTING:
            continue
        call = Call(m, n, k, name, {"activation": activation, **options}, with_bias=n > 7)
        call.check()
    strided = Call(19, 21, 136, name, {"activation": activation}, with_bias=False)
    a, b = strided.inputs()
    wide = np.full((42, 140), np.nan, b.dtype)
    wide[:, 2:138] = b
    strided.hold(strided.run(a, amdattn.asarray(wide)[:, 2:138]), a, b)


def test_factors_through_the_api() -> None:
    call = Call(5, 40, 96, options={"activation": "silu_and_mul"})
    a, b, bias = call.inputs()
    call.hold(amdattn.gemm_nt(a, b, bias=bias, activation="silu_and_mul"), a, b, bias)
    assert "2 n" in GemmProblem.__doc__ and call.plan().problem.b_rows == 80
    far = GemmProblem(1, 2**16, 2**15, activation="silu_and_mul")
    assert not far.reaches_factors(2**15) and far.reaches_factors(2**13)
    plan = GemmPlan.of(planning.plan_gemm(far, amdattn.device_props(), KERNELS))
    with pytest.raises(ValueError, match=r"which puts factors .* plan with aligned=False"):
        operand = amdattn.empty((1, 2**15)), amdattn.empty((2**17, 2**15))
        plan.run(*operand)


def test_activations_far_out() -> None:
    """Where the exponential overflows or vanishes."""
    a = np.eye(8, dtype=operands(1, 1, 1)[0].dtype)
    x = np.array([-300, -40, -9, -4, 4, 9, 40, 300])
    for activation in ("silu", "gelu_tanh", "gelu"):
        b = (np.ones((16, 1)) * x).astype(a.dtype)
        got = amdattn.gemm_nt(a, b, activation=activation, out_dtype="float32")
        call = Call(8, 16, 8, options={"activation": activation, "out_dtype": "float32"})
        with np.errstate(over="ignore"):
            call.hold(got, a, b)


@pytest.mark.parametrize("out_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("activation", "lowest"), [("silu", -111.0), ("gelu_tanh", -15.0), ("gelu", -15.0)]
)
def test_activations_underflow(activation: str, lowest: float, out_dtype: str) -> None:
    """Down to the least denormal, and then to -0: as float64 rounded has it."""
    x = np.linspace(lowest, 0.6 * lowest, 256).astype(operands(1, 1, 1)[0].dtype)
    a, b = np.ones((1, 1), x.dtype), x[:, None]
    got = amdattn.gemm_nt(a, b, activation=activation, out_dtype=out_dtype)[0]
    exact = x.astype(np.longdouble)
    if activation == "gelu":
        tail = [math.erfc(-float(one) / math.sqrt(2)) for one in x]
        exact = exact * np.array(tail, np.longdouble) / 2
    else:
        cubic = 2 * math.sqrt(2 / math.pi) * (exact + 0.044715 * exact**3)
        exact = exact / (1 + np.exp(-(exact if activation == "silu" else cubic)))
    least = 2.0**-149 * (1 if out_dtype == "float32" else 2**16)
    # In float32 the exponent, of up to 100, is rounded before e is raised to it.
    relative = 2.0**-8 if out_dtype == "bfloat16" else 2.0**-15
    error = np.abs(got.astype(np.longdouble) - exact)
    assert (error <= relative * np.abs(exact) + 0.51 * least).all()
    assert np.signbit(got.astype(np.float32)).all()
    assert (got == 0).any() and (np.abs(got.astype(np.float64)) < 2.0**-126).sum() > 8


def test_results_are_rounded_once() -> None:
    """Over many shapes 99.9 % of the outputs are the exact result rounded once."""
    same = total = 0
    drawn = products(0, 12, (40, 160, 1000), lambda rng: {"split_k": int(rng.integers(0, 4))})
    for m, n, k, options in drawn:
        call = Call(m, n, k, "", options)
        out = call.check()
        same += int((out == call.rounded()).sum())
        total += out.size
    assert same >= 0.999 * total, f"{same} of {total}"


@pytest.mark.parametrize("name", SOME_NAMES)
def test_rows_at_any_distance(name: str) -> None:
    a, b, bias = operands(19, 21, 136, "float16" if "fp16" in name else "bfloat16")
    wide_a = np.full((19, 136 + 6), np.nan, a.dtype)
    wide_b = np.full((21, 2, 136 + 2), np.nan, b.dtype)
    wide_a[:, 4:140], wide_b[:, 1, :136] = a, b
    call = Call(19, 21, 136, name, {"split_k": 2 if name in SPLITTING else 1})
    device_a, device_b = amdattn.asarray(wide_a)[:, 4:140], amdattn.asarray(wide_b)[:, 1, :136]
    call.hold(call.run(device_a, device_b, amdattn.asarray(bias)), a, b, bias)


def test_the_path_follows_the_alignment() -> None:
    a, b, _ = operands(9, 20, 128)
    exact = Call(9, 20, 128, with_bias=False)
    for columns in (128, 129, 130):  # rows at odd distances, and at multiples of 4 bytes
        wide = amdattn.asarray(np.full((9, columns + 1), np.nan, a.dtype))
        for first in (0, 1):
            part = wide[:, first : first + 128]
            host = np.full((9, columns + 1), np.nan, a.dtype)
            host[:, first : first + 128] = a
            part = amdattn.asarray(host)[:, first : first + 128]
            got = amdattn.gemm_nt(part, amdattn.asarray(b)).numpy()
            exact.hold(got, a, b)
            exact.hold(amdattn.gemm_nt(host[:, first : first + 128], b), a, b)
    back = amdattn.asarray(np.ascontiguousarray(a[::-1]))[::-1]
    exact.hold(amdattn.gemm_nt(back, amdattn.asarray(b)).numpy(), a, b)
    assert planned(GemmProblem(9, 20, 128, aligned=False)).kernel.name.endswith("_any")
    assert not planned(GemmProblem(9, 20, 128)).kernel.name.endswith("_any")


@pytest.mark.parametrize("name", NAMES)
def test_special_values(name: str) -> None:
    """Infinities and NaN, whatever their payload, stay in their rows and columns."""
    a, b, _ = operands(18, 40, 136, "float16" if "fp16" in name else "bfloat16")
    a[3, 5], a[17, 135], b[7, 9] = np.inf, np.nan, -np.inf
    a.view(np.uint16)[11, 70], b.view(np.uint16)[30, 2] = 0x7FFF, 0xFFFF
    parts = ({"split_k": 2},) if name in SPLITTING else ()
    for options in ({}, {"out_dtype": "float32"}, *parts):
        call = Call(18, 40, 136, name, options, with_bias=False)
        out = call.run(a, b).astype(np.float64)
        with np.errstate(invalid="ignore"):
            expected = a.astype(np.float64) @ b.astype(np.float64).T
        assert (np.isnan(out) == np.isnan(expected)).all()
        assert (np.isposinf(out) == np.isposinf(expected)).all()
        assert (np.isneginf(out) == np.isneginf(expected)).all()


def test_refusals() -> None:
    a, b, bias = operands(3, 20, 64)
    for changed, error, message in (
        ({"b": b[:, :63]}, ValueError, r"b has shape \(20, 63\)"),
        ({"a": a[0]}, ValueError, "must have 2 dimensions"),
        ({"b": b.astype(np.float16)}, ValueError, "dtype float16; this call needs bfloat16"),
        ({"bias": bias[:5]}, ValueError, r"bias has shape \(5,\)"),
        ({"a": a.astype(np.float32), "b": b.astype(np.float32)}, ValueError, "dtype=float32"),
        ({"out_dtype": "int8"}, ValueError, "out_dtype=int8 is not built"),
        ({"activation": "relu"}, NotImplementedError, "activation=relu is not built"),
        ({"split_k": -1}, ValueError, "split_k=-1 must be in 0"),
        ({"split_k": 10**6}, NotImplementedError, "split_k=1000000 is not built"),
        ({"alpha": float("nan")}, ValueError, "alpha=nan must be finite"),
        ({"deterministic": 1}, TypeError, "deterministic=1"),
        (
            {"a": amdattn.asarray(a)[:, ::2], "b": amdattn.asarray(b[:, :32])},
            *(ValueError, "the last one must be 1"),
        ),
    ):
        with pytest.raises(error, match=message):
            amdattn.gemm_nt(**{"a": a, "b": b, **changed})
    device_a = amdattn.asarray(a)
    with pytest.raises(ValueError, match="out overlaps a in memory"):
        amdattn.gemm_nt(device_a, device_a, out=device_a[:, :3])
    plan = planned(GemmProblem(3, 20, 64, split_k=1), SMALL)
    with pytest.raises(ValueError, match=r"address .* must be a multiple of 4 bytes"):
        plan.run(amdattn.asarray(np.zeros((3, 66), a.dtype))[:, 1:65], amdattn.asarray(b))
    with pytest.raises(ValueError, match="bias was given"):
        plan.run(a, b, bias=bias)
    assert not amdattn.supports_gemm(1, 1, 8, device="MI300X", out_dtype="int8")
    assert amdattn.supports_gemm(1, 1, 8, device="MI300X")


def test_explanations() -> None:
    text = amdattn.explain_gemm(16, 2560, 7160, device="MI300X")
    for word in (
        "gemm_nt_bf16_m16n16k1",
        "160 workgroups",
        "160 of 16 x 16 results",
        "least estimated time",
        "no kernel takes",
    ):
        assert word in text
    text = amdattn.explain_gemm(16, 2560, 7168, device="MI300X")
    assert "tuned: gemm_nt_bf16_m" in text and "modelled at 2100 MHz" in text
    assert "split_k=3 was given" in amdattn.explain_gemm(1, 64, 4096, device="MI300X", split_k=3)


def test_every_kernel_is_covered() -> None:
    assert len(KERNELS) >= 24 and set(NAMES) >= {SMALL, "gemm_nt_fp16_any"}
