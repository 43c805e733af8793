"""The kernels for few rows of 8-bit operands: sizes, scales, ends, parts, order of waves."""

from __future__ import annotations

import numpy as np
import pytest

import amdattn
from amdattn.dtypes import as_dtype
from amdattn.ops.gemm import grids
from amdattn.ops.gemm.problem import GemmProblem
from tests.support.gemm_family import FEW_ROWS_OF_8_BITS, Call, operands, planned

ARCH = amdattn.device_props().architecture
NAMES = [row.name for row in FEW_ROWS_OF_8_BITS]
WITH_FACTORS = [
    row.name for row in FEW_ROWS_OF_8_BITS if "silu_and_mul" in row.accepts["activation"]
]
# Those of other types differ in the matrix instruction only.
SOME = [
    pytest.param(name, marks=() if "_e4m3_m" in name or "any" in name else pytest.mark.slow)
    for name in NAMES
]
# Around tiles (16, 32, 64), lines (128) and rounds of lines.
SHAPES = [
    (1, 1, 16),
    (3, 5, 128),
    (16, 16, 144),
    (17, 33, 272),
    (5, 130, 2048),
    (65, 70, 2064),
    (64, 64, 1040),
]
ROWS = {"scale_a": "row", "scale_b": "row"}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_every_member(name: str, shape: tuple[int, int, int]) -> None:
    Call(*shape, name).check()


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("_any")])
def test_any_length_of_k(name: str) -> None:
    for m, n, k in ((1, 1, 1), (2, 3, 7), (5, 17, 65), (18, 20, 515), (33, 40, 1031)):
        Call(m, n, k, name, ROWS).check()


@pytest.mark.parametrize("kinds", [("row", "row"), ("tensor", "row"), (None, "tensor")], ids=str)
@pytest.mark.parametrize("name", SOME)
def test_scales(name: str, kinds: tuple[str | None, str | None]) -> None:
    """Of all or of each row, beside alpha and bias, by every end of a tile."""
    scales = dict(zip(("scale_a", "scale_b"), kinds, strict=True))
    for out_dtype in ("bfloat16", "float16", "float32"):
        options = {**scales, "out_dtype": out_dtype, "alpha": 0.7}
        for m, n in ((67, 50), (9, 144)):
            Call(m, n, 400, name, options).check()


@pytest.mark.parametrize("columns", [4, 12, 20, 28])
def test_widths_of_tiles(columns: int) -> None:
    """Of which the last is cut: columns of a tile have their own scales and bias."""
    for name, widest in (("m8n8", 8), ("m16n16k1", 16), ("m32n32k1", 32)):
        if widest // 2 <= columns <= widest:
            options = {"split_k": 1, **ROWS}
            Call(21, 8 * columns - 7, 272, f"gemm_nt_e4m3_{name}", options, columns=columns).check()


@pytest.mark.parametrize("splits", [2, 3, 6])
@pytest.mark.parametrize("name", NAMES)
def test_parts_along_k(name: str, splits: int) -> None:
    """In their order, and as they come."""
    for more in ({}, {"deterministic": False}):
        call = Call(35, 50, 1360, name, {"split_k": splits, **ROWS, **more})
        assert call.plan().splits == splits
        call.check()


@pytest.mark.parametrize(
    "activation", ["silu", "silu_and_mul", "gelu_tanh_and_mul", "gelu_and_mul"]
)
@pytest.mark.parametrize("name", SOME)
def test_activations(name: str, activation: str) -> None:
    """Factors have scales and a bias of their own."""
    if name not in WITH_FACTORS:  # whose other activation is the plain one
        activation = activation.removesuffix("_and_mul")
    for m, n, k, options in (
        (3, 1, 144, {}),
        (17, 7, 272, {"out_dtype": "float32", "alpha": -0.5}),
        (35, 50, 1040, {"split_k": 3}),
    ):
        Call(m, n, k, name, {"activation": activation, **ROWS, **options}).check()


@pytest.mark.parametrize("name", SOME)
def test_equal_bits_and_no_findings(name: str) -> None:
    """Whatever the order of waves and workgroups; outputs are NaN before."""
    for options in (ROWS, {**ROWS, "split_k": 3, "out_dtype": "float32"}):
        call = Call(37, 75, 784, name, options)
        call.hold_bits_and_checks(call.run())


@pytest.mark.parametrize("name", SOME)
def test_a_row_does_not_depend_on_the_others(name: str) -> None:
    """Equal bits alone, and beside NaN; of a column likewise."""
    call = Call(70, 75, 400, name, {"split_k": 1})
    a, b, bias = call.inputs()
    whole = call.run()
    alone = Call(6, 75, 400, name, {"split_k": 1}).run(a[64:], b, bias)
    assert alone.tobytes() == whole[64:].tobytes()
    a[:64] = np.nan
    b[3] = np.nan
    out = call.run(a, b, bias)
    assert np.isnan(out[:64].astype("f4")).all() and np.isnan(out[:, 3].astype("f4")).all()
    others = [column for column in range(75) if column != 3]
    assert out[64:][:, others].tobytes() == whole[64:][:, others].tobytes()


@pytest.mark.parametrize("name", SOME)
def test_scales_that_are_no_usual_numbers(name: str) -> None:
    """0, infinite, NaN of any payload and denormal ones reach their rows and columns, no others."""
    (row,) = (row for row in FEW_ROWS_OF_8_BITS if row.name == name)
    types = row.dtype, row.accepts["b_dtype"][0]
    a, b = (np.abs(x.astype("f4")).astype(x.dtype) for x in operands(37, 40, 144, *types)[:2])
    of_a, of_b = np.ones(37, np.float32), np.ones(40, np.float32)
    of_a[:6] = 0, np.inf, -np.inf, np.nan, 2.0**-140, 2
    of_a.view(np.uint32)[[3, 9]] = 0x7FFFFFFF, 0xFF800001
    of_b[[5, 39]] = np.inf, np.nan
    of_b.view(np.uint32)[39] = 0x7FFFFFFF
    for out_dtype in ("bfloat16", "float16", "float32"):
        problem = GemmProblem(37, 40, 144, types[0], out_dtype, b_dtype=types[1], **ROWS)
        out = planned(problem, name).run(a, b, scale_a=of_a, scale_b=of_b).astype("f8")
        with np.errstate(invalid="ignore", over="ignore"):
            best = (a.astype("f8") @ b.astype("f8").T) * of_b * of_a[:, None]
        most = float(np.finfo(np.float32).max if out_dtype != "float16" else 65504)
        assert (np.isnan(out) == np.isnan(best)).all()
        assert (np.isinf(out) == (np.abs(best) > most)).all()
        finite = np.isfinite(out)
        bits = {"bfloat16": 8, "float16": 11, "float32": 20}[out_dtype]
        least = 2.0**-25 if out_dtype == "float16" else 2.0**-134
        error = np.abs(out[finite] - best[finite])
        assert (error <= 1.1 * 2.0**-bits * np.abs(best)[finite] + least).all()


def test_plans_of_few_rows_take_them() -> None:
    """As one row of decoding, in about half of the bytes; prompts take tiles, some with k odd."""
    for m in (1, 8, 64):
        plan = amdattn.plan_gemm(
            m, 4096, 4096, device=amdattn.device_props(), dtype=ARCH.fp8, scale_a="row"
        )
        assert not grids.has_windows(plan.kernel) and plan.splits == 1
    many = amdattn.plan_gemm(2048, 4096, 4096, device=amdattn.device_props(), dtype=ARCH.fp8)
    assert grids.has_windows(many.kernel)
    odd = amdattn.plan_gemm(300, 256, 129, device=amdattn.device_props(), dtype=ARCH.fp8)
    assert odd.kernel.name.endswith("_any")


def test_operands_on_the_device_at_multiples_of_four_bytes() -> None:
    """Rows that lie apart, and results and bias of every type beside them."""
    element = as_dtype(ARCH.fp8).numpy()
    wide = np.full((24, 196), np.nan, element)
    a, b, _ = operands(24, 33, 144, ARCH.fp8)
    wide[:, 4:148] = a
    part = amdattn.asarray(wide)[:, 4:148]
    Call(24, 33, 144, "gemm_nt_e4m3_m32n32k1", with_bias=False).hold(
        amdattn.gemm_nt(part, amdattn.asarray(b)).numpy(), a, b
    )
