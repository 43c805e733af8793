"""Products of MX types as callers make them: what is packed, scales, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import amdattn
from amdattn.arch.products import of_arch
from amdattn.device import manifest
from amdattn.dtypes import PACKED, as_dtype
from amdattn.errors import UnsupportedProblem
from amdattn.ops.gemm import mx, planning
from amdattn.ops.gemm.problem import MX, MX_BLOCK, MX_DTYPES, GemmProblem

Array = npt.NDArray[Any]
HAVING = {
    row.arch
    for row in manifest.kernels()
    if row.op == planning.GEMM and row.accepts["scales"] == [MX]
}
PROPS = amdattn.device_props()
HAS = PROPS.arch in HAVING
CHIP = PROPS.label if HAS else of_arch(next(iter(HAVING))).name
KINDS: dict[str, Any] = {"scale_a": MX, "scale_b": MX}
only_there = pytest.mark.skipif(not HAS, reason="the device has no matrix instructions with scales")


def block(x: Array, dtype: str) -> tuple[Array, int]:
    """32 numbers by the rule of the OCP's specification, with ml_dtypes' rounding."""
    element = as_dtype(dtype).numpy()
    greatest = float(ml_dtypes.finfo(element).max)
    most = float(np.abs(x).max())
    exponent = -127
    if most:
        exponent = int(np.floor(np.log2(most)) - np.floor(np.log2(greatest)))
    exponent = min(max(exponent, -127), 127)
    scaled = np.clip(x.astype("f8") * 2.0**-exponent, -greatest, greatest)
    return scaled.astype("f4").astype(element), exponent + 127


@pytest.mark.parametrize("dtype", MX_DTYPES)
@pytest.mark.parametrize("of_x", ["float32", "bfloat16", "float16"])
def test_quantised_as_the_specification_has_it(dtype: str, of_x: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((5, 96)) * 2.0 ** rng.integers(-12, 9, (5, 1))
    x[1, :32], x[2, 40], x[3, 95] = 0, np.nan, -np.inf
    x = x.astype(as_dtype(of_x).numpy())
    y, scale = amdattn.quantize_mx(x, dtype)
    bits = as_dtype(dtype).bits
    assert y.shape == ((5, 96) if bits == 8 else (5, 96 * bits // 8))
    assert y.dtype.name == (dtype if bits == 8 else "uint8")
    assert (scale.shape, scale.dtype.name) == ((5, 3), "uint8")
    found = mx.unpacked(y, dtype)
    for i in range(5):
        for j in range(3):
            own = x[i, MX_BLOCK * j : MX_BLOCK * (j + 1)].astype("f4")
            if not np.isfinite(own).all():
                assert scale[i, j] == 255
                continue
            best, exponent = block(own, dtype)
            assert scale[i, j] == exponent
            got = found[i, MX_BLOCK * j : MX_BLOCK * (j + 1)]
            assert (got.astype("f4") == best.astype("f4")).all()


@pytest.mark.parametrize("dtype", [one.name for one in PACKED])
def test_packed_bits_follow_each_other(dtype: str) -> None:
    """The first element in the lowest bits: 32 of them are the bytes that a lane holds."""
    bits = as_dtype(dtype).bits
    codes = np.random.default_rng(1).integers(0, 2**bits, (3, 64), np.uint8)
    rows = mx.packed(codes.view(as_dtype(dtype).numpy()))
    assert rows.shape == (3, 64 * bits // 8)
    for i in range(3):
        number = int.from_bytes(rows[i].tobytes(), "little")
        assert [number >> bits * j & (2**bits - 1) for j in range(64)] == codes[i].tolist()
    assert (mx.unpacked(rows, dtype).view(np.uint8) == codes).all()


def test_quantised_extremes() -> None:
    """The least and the greatest numbers of float32 have scales; all is finite."""
    x = np.full((3, 32), 2.0**-149, np.float32)
    x[1] = np.finfo(np.float32).max
    x[2] = 0
    for dtype in MX_DTYPES:
        y, scale = amdattn.quantize_mx(x, dtype)
        values = mx.values(y, scale, dtype)
        assert scale[0, 0] == scale[2, 0] == 0 and scale[1, 0] < 255
        assert np.isfinite(values).all() and (values[2] == 0).all()
        assert np.abs(values[1] / x[1].astype("f8") - 1).max() < 0.3


def test_plans_for_a_chip_that_has_them() -> None:
    for dtype in MX_DTYPES:
        text = amdattn.explain_gemm(2048, 4096, 4096, device=CHIP, dtype=dtype, **KINDS)
        assert "_mx_" in text and "scale_a=mx scale_b=mx" in text
    ours = GemmProblem(10, 20, 256, "float4_e2m1fn", **KINDS)
    assert ours.input_shapes["a"] == (10, 128) and ours.input_shapes["scale_b"] == (20, 8)
    assert ours.nbytes == 30 * (128 + 8) + 2 * 200 and ours.out_dtype == "bfloat16"


def test_malformed_problems() -> None:
    for options, text in (
        ({"dtype": "float4_e2m1fn"}, "scale_a=None must be 'mx' with dtype='float4_e2m1fn'"),
        ({"dtype": "float8_e4m3fn", "scale_a": MX}, "either both must be 'mx' or neither"),
        (
            {"dtype": "float8_e4m3fn", "b_dtype": "float8_e5m2", **KINDS},
            "b_dtype='float8_e5m2' must be 'float8_e4m3fn' like dtype, with 'mx' scales",
        ),
        ({"dtype": "bfloat16", **KINDS}, "scale_a='mx' is for 8-bit types"),
    ):
        with pytest.raises(ValueError, match=text):
            GemmProblem(8, 8, 128, **options)


@pytest.mark.skipif(HAS, reason="the device has them")
@pytest.mark.parametrize("dtype", MX_DTYPES)
def test_other_devices_refuse_them_by_name(dtype: str) -> None:
    y, scale = amdattn.quantize_mx(np.ones((4, 128), np.float32), dtype)
    of_bits = {} if as_dtype(dtype).bits == 8 else {"dtype": dtype}
    for call in (amdattn.gemm_nt, amdattn.gemm):
        with pytest.raises(UnsupportedProblem, match=rf"dtype={dtype} is not built .*scale_a=mx"):
            call(y, y, scale_a=scale, scale_b=scale, **of_bits)


def refused(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_calls_that_are_refused_by_name() -> None:
    x, gemm_nt = np.ones((3, 128), np.float32), amdattn.gemm_nt
    a, of_a = amdattn.quantize_mx(x)
    f, of_f = amdattn.quantize_mx(x, "float4_e2m1fn")
    g, _ = amdattn.quantize_mx(x, "float6_e2m3fn")
    both: dict[str, Any] = {"scale_a": of_a, "scale_b": of_a}
    four: dict[str, Any] = {"scale_a": of_f, "scale_b": of_f, "dtype": "float4_e2m1fn"}
    six = {**four, "dtype": "float6_e2m3fn"}
    for call, text in (
        (lambda: gemm_nt(a, a, scale_a=of_a), r"scale_b=None must be uint8 of \(3, 4\)"),
        (
            lambda: gemm_nt(a, a, scale_a=of_a, scale_b=of_a[:, :2]),
            r"scale_b has shape \(3, 2\); it must be \(3, 4\)",
        ),
        (
            lambda: gemm_nt(a, a, scale_a=of_a, scale_b=of_a.astype("f4")),
            "scale_b has dtype float32; it must be uint8 or float8_e8m0fnu",
        ),
        (lambda: gemm_nt(f, f, **{**four, "dtype": None}), "a has dtype uint8; dtype=None must be"),
        (lambda: gemm_nt(f, f, **{**four, "dtype": "int8"}), "dtype='int8' is for a and b with"),
        (lambda: gemm_nt(a, a, **four), "a has dtype float8_e4m3fn; it must be uint8, with"),
        (lambda: gemm_nt(g[:, :95], g[:, :95], **six), "rows of float6_e2m3fn must be whole elem"),
        (lambda: gemm_nt(f, f, dtype="float4_e2m1fn"), r"scale_a=None must be uint8 of \(3, 4\)"),
        (
            lambda: gemm_nt(a[:, :0], a[:, :0], scale_a=of_a[:, :0], scale_b=of_a[:, :0]),
            "k=0 must be a multiple of 128, and not 0",
        ),
        (
            lambda: gemm_nt(a, a.astype("f4").astype(ml_dtypes.float8_e5m2), **both),
            "b_dtype='float8_e5m2' must be 'float8_e4m3fn'",
        ),
        (lambda: amdattn.quantize_mx(x, "int8"), "dtype='int8' must be one of float8_e4m3fn"),
        (lambda: amdattn.quantize_mx(x[:, :31]), r"x has shape \(3, 31\); its last axis must be"),
        (lambda: amdattn.quantize_mx(x.astype("f8")), "x has dtype float64; it must be bfloat16"),
    ):
        refused(call, ValueError, text)


# -- on a device that has them ---------------------------------------------------------------------


def near(out: Any, best: Array) -> None:
    wide = np.asarray(out if isinstance(out, np.ndarray) else out.numpy()).astype("f8")
    assert np.abs(wide - best).max() <= 1.1 * 2.0**-8 * np.abs(best).max()


@only_there
@pytest.mark.parametrize("dtype", MX_DTYPES)
def test_products_of_quantised_arrays(dtype: str) -> None:
    """On the host and on the device; scales of ml_dtypes' type, elements of it, any strides."""
    rng = np.random.default_rng(4)
    x, w = (rng.standard_normal((rows, 384), np.float32) for rows in (70, 45))
    (a, of_a), (b, of_b) = (amdattn.quantize_mx(one, dtype) for one in (x, w))
    best = mx.values(a, of_a, dtype) @ mx.values(b, of_b, dtype).T
    of_bits: dict[str, Any] = {} if as_dtype(dtype).bits == 8 else {"dtype": dtype}
    scales = {"scale_a": of_a, "scale_b": of_b}
    near(amdattn.gemm_nt(a, b, **scales, **of_bits), best)
    e8m0 = {name: one.view(ml_dtypes.float8_e8m0fnu) for name, one in scales.items()}
    near(amdattn.gemm(a, b, **e8m0, **of_bits), best)
    near(amdattn.gemm(np.asfortranarray(a), b, **scales, **of_bits), best)
    elements = [mx.unpacked(one, dtype) for one in (a, b)]
    near(amdattn.gemm_nt(*elements, **scales), best)
    on_device = [amdattn.quantize_mx(amdattn.asarray(one), dtype) for one in (x, w)]
    assert all(isinstance(one, amdattn.DeviceArray) for pair in on_device for one in pair)
    (a, of_a), (b, of_b) = on_device
    near(amdattn.gemm_nt(a, b, scale_a=of_a, scale_b=of_b, **of_bits), best)
    stacked = amdattn.gemm(
        *(np.stack([one.numpy()] * 2) for one in (a, b)),
        scale_a=np.stack([of_a.numpy()] * 2),
        scale_b=np.stack([of_b.numpy()] * 2),
        **of_bits,
    )
    near(stacked[1], best)


@only_there
def test_on_the_device_scales_are_dwords() -> None:
    a, of_a = (amdattn.asarray(one) for one in amdattn.quantize_mx(np.ones((3, 128), np.float32)))
    wide = amdattn.asarray(np.full((3, 9), 127, np.uint8))
    refused(
        lambda: amdattn.gemm_nt(a, a, scale_a=wide[:, 1:5], scale_b=of_a),
        ValueError,
        "scale_a has address .*, which must be a multiple of 4 bytes",
    )
    refused(
        lambda: amdattn.gemm_nt(a, a, scale_a=wide[:, :4], scale_b=of_a),
        ValueError,
        "scale_a has row stride 0x9, which must be a multiple of 4 bytes",
    )
    refused(
        lambda: amdattn.gemm(a, a, layout="nn", scale_a=of_a, scale_b=of_a),
        ValueError,
        "must be",
    )
    y, scale = amdattn.quantize_mx(np.ones((3, 160), np.float32))
    refused(
        lambda: amdattn.gemm_nt(y, y, scale_a=scale, scale_b=scale),
        UnsupportedProblem,
        "k=160 is not built .have multiples of 128.",
    )


@only_there
def test_nothing_along_an_axis() -> None:
    a, of_a = amdattn.quantize_mx(np.ones((3, 128), np.float32), "float6_e3m2fn")
    options: dict[str, Any] = {"dtype": "float6_e3m2fn"}
    out = amdattn.gemm_nt(a[:0], a, scale_a=of_a[:0], scale_b=of_a, **options)
    assert out.shape == (0, 3) and out.dtype.name == "bfloat16"
