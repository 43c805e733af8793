"""Scales of 128 numbers of a row: what comes out, and what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.ops.quantize.blocks import SHAPES

BLOCK = SHAPES[0]


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


def test_products_of_them() -> None:
    """Near the product of what they were made of."""
    rng = np.random.default_rng(3)
    a = rng.standard_normal((70, 384), np.float32)
    b = rng.standard_normal((150, 384), np.float32)
    a[:, 128:256] *= 100
    (x, scale_a), (y, rows_of_b) = (amdattn.quantize_fp8(one, block=BLOCK) for one in (a, b))
    scale_b = np.ones((2, 3), np.float32)
    out = amdattn.gemm_nt(x, y, scale_a=scale_a, scale_b=scale_b, out_dtype="float32")
    near = (x.astype("f4") * scale_a.repeat(128, 1)) @ y.astype("f4").T
    assert np.abs(out - near).max() <= 2.0**-18 * np.abs(near).max()
    assert rows_of_b.shape == (150, 3)


def test_nothing_along_an_axis() -> None:
    x = numbers(4, 256)
    for part, shape in ((x[:0], (0, 2)), (x[:, :0], (4, 0))):
        y, scale = amdattn.quantize_fp8(part, block=BLOCK)
        assert y.shape == part.shape and scale.shape == shape


def test_other_calls_are_refused_by_name() -> None:
    x = numbers(4, 256)
    one, apart = np.ones(1, "f4"), amdattn.asarray(numbers(4, 384))[:, :256]
    for call, error, text in (
        ({"block": (128, 128)}, NotImplementedError, r"block=\(128, 128\) is not built \(have"),
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
