"""Scales of 128 numbers of a row: what comes out, and what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.ops.quantize.blocks import SHAPES
from amdattn.ops.quantize.cases import QuantizeCase, expected
from amdattn.ops.quantize.problem import BLOCKS, QuantizeProblem

BLOCK, SQUARE = SHAPES


def numbers(rows: int, columns: int, dtype: Any = ml_dtypes.bfloat16) -> Any:
    rng = np.random.default_rng([rows, columns])
    grown = np.exp2(rng.uniform(-9, 9, (rows, columns // 128))).repeat(128, 1)
    return (rng.standard_normal((rows, columns)) * grown).astype(dtype)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32])
@pytest.mark.parametrize(("rows", "columns"), [(1, 128), (3, 256), (70, 384), (129, 2048)])
def test_blocks_are_as_rows(rows: int, columns: int, dtype: Any) -> None:
    """On the host of any strides, and on the device."""
    x = numbers(rows, columns, dtype)
    wanted, scales = amdattn.quantize_fp8(x.reshape(-1, 128))
    greatest = np.abs(x.astype("f4").reshape(rows, -1, 128)).max(2)
    most = float(ml_dtypes.finfo(wanted.dtype).max)
    for given in (x, np.asfortranarray(x), amdattn.asarray(x)):
        y, scale = amdattn.quantize_fp8(given, block=BLOCK)
        assert y.shape == x.shape and scale.shape == (rows, columns // 128)
        y, scale = (one if isinstance(one, np.ndarray) else one.numpy() for one in (y, scale))
        assert y.tobytes() == wanted.tobytes() and scale.tobytes() == scales.tobytes()
        assert np.allclose(scale * most, greatest, rtol=2.0**-22)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32])
@pytest.mark.parametrize(("rows", "columns"), [(1, 128), (127, 256), (300, 384), (256, 1024)])
def test_blocks_of_rows_and_columns(rows: int, columns: int, dtype: Any) -> None:
    """The very bits of float32, and nothing found; rows at any distance on the device."""
    x = numbers(rows, columns, dtype)
    case = QuantizeCase(QuantizeProblem(rows, columns, np.dtype(dtype).name, per=BLOCKS))
    best = expected(case, {"x": x})
    wide = np.full((rows, columns + 24), np.nan, dtype)
    wide[:, :columns] = x
    for given in (x, np.asfortranarray(x), amdattn.asarray(wide)[:, :columns]):
        with amdattn.virtual.check():
            found = amdattn.quantize_fp8(given, block=SQUARE)
        y, scale = (one if isinstance(one, np.ndarray) else one.numpy() for one in found)
        assert (y.astype("f8") == best["out"].values).all()
        assert (scale == best["out_scale"].values).all()


def test_numbers_that_are_none_in_a_block() -> None:
    """NaN make no scale, of any payload; infinities make theirs infinite, and no other."""
    x = numbers(200, 256, np.float32)
    usual, scales = amdattn.quantize_fp8(x, block=SQUARE)
    x[3, 5] = np.nan
    x.view(np.uint32)[150, 200] = 0x7F800001
    y, scale = amdattn.quantize_fp8(x, block=SQUARE)
    assert np.isnan(y[3, 5].astype("f4")) and np.isnan(y[150, 200].astype("f4"))
    assert (scale == scales).all() and (y.view(np.uint8) != usual.view(np.uint8)).sum() == 2
    x[199, 0] = -np.inf
    _, scale = amdattn.quantize_fp8(x, block=SQUARE)
    assert np.isinf(scale[1, 0]) and (scale.ravel()[[0, 1, 3]] == scales.ravel()[[0, 1, 3]]).all()


def test_products_of_them() -> None:
    """Near the product of what they were made of, of which each number misses 2^-4 at most."""
    rng = np.random.default_rng(3)
    a = rng.standard_normal((70, 384), np.float32)
    b = rng.standard_normal((150, 384), np.float32)
    a[:, 128:256] *= 100
    x, scale_a = amdattn.quantize_fp8(a, block=BLOCK)
    y, scale_b = amdattn.quantize_fp8(b, block=SQUARE)
    out = amdattn.gemm_nt(x, y, scale_a=scale_a, scale_b=scale_b, out_dtype="float32")
    wide = scale_b.repeat(128, 0).repeat(128, 1)[:150]
    best = (x.astype("f8") * scale_a.repeat(128, 1)) @ (y.astype("f8") * wide).T
    assert np.abs(out - best).max() <= 2.0**-18 * np.abs(best).max()
    error = np.linalg.norm(out - a.astype("f8") @ b.astype("f8").T)
    assert error <= 2.0**-4 * np.linalg.norm(best)
    assert scale_a.shape == (70, 3) and scale_b.shape == (2, 3)


def test_nothing_along_an_axis() -> None:
    x = numbers(4, 256)
    for part, shapes in ((x[:0], ((0, 2), (0, 2))), (x[:, :0], ((4, 0), (1, 0)))):
        for block, shape in zip(SHAPES, shapes, strict=True):
            y, scale = amdattn.quantize_fp8(part, block=block)
            assert y.shape == part.shape and scale.shape == shape


def test_other_calls_are_refused_by_name() -> None:
    x = numbers(4, 256)
    one, apart = np.ones(1, "f4"), amdattn.asarray(numbers(4, 384))[:, :256]
    for call, error, text in (
        ({"block": (1, 64)}, ValueError, r"block=\(1, 64\) must be \(1, 128\) or \(128, 128\)"),
        ({"block": 128}, ValueError, "block=128 must be"),
        ({"block": BLOCK, "scale": one}, ValueError, "scale was given with block="),
        ({"block": BLOCK, "out": x}, ValueError, "out was given with block="),
        ({"block": BLOCK, "per": "tensor"}, ValueError, "per='tensor' must be 'row' with block"),
        (
            {"block": BLOCK, "x": x[:, :200]},
            NotImplementedError,
            "columns=200 with block=.* is not",
        ),
        ({"block": BLOCK, "x": apart}, NotImplementedError, r"x has strides \(384, 1\) .*have"),
    ):
        with pytest.raises(error, match=text):
            amdattn.quantize_fp8(**{"x": x, **call})
