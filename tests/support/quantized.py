"""Quantisation to 8 bits as NumPy and ml_dtypes have it, and numbers that are unlike others."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import amdattn

WIDE = (ml_dtypes.bfloat16, np.float16, np.float32)
NARROW = ("e4m3", "e5m2")
LEAST_SCALE = np.float32(2.0**-126)


def narrow_type(to: str) -> np.dtype[Any]:
    """The bound device's own."""
    arch = amdattn.device_props().architecture
    return np.dtype(getattr(ml_dtypes, {"e4m3": arch.fp8, "e5m2": arch.bf8}[to]))


def quantized(
    x: NDArray[Any], to: str, per: str = "row", scale: NDArray[Any] | None = None
) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """What `quantize_fp8` must give, by its definition."""
    element = narrow_type(to)
    most = np.float32(ml_dtypes.finfo(element).max)
    wide = x.astype(np.float32)
    with np.errstate(all="ignore"):
        if scale is None:
            sizes = np.where(np.isnan(wide), 0, np.abs(wide))
            greatest = sizes.max(axis=1 if per == "row" else None, keepdims=True)
            scale = np.maximum(greatest / most, LEAST_SCALE)
        quotient = wide * (np.float32(1) / scale.reshape(-1, 1))
        y = np.clip(quotient, -most, most).astype(element)
    return y, scale.reshape(-1, 1) if per == "row" else scale.reshape(1)


def assert_same_bits(found: Any, must: Any) -> None:
    """NaN where there is one, of any bits; else the same ones."""
    assert found.dtype == must.dtype and found.shape == must.shape
    lost = np.isnan(must.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(found.astype(np.float32)), lost)
    words = f"u{must.dtype.itemsize}"
    bits = [np.ascontiguousarray(one).view(words)[~lost] for one in (found, must)]
    np.testing.assert_array_equal(*bits)


def rows_of_all_kinds(dtype: Any, columns: int, seed: int = 0) -> NDArray[Any]:
    """Of any size; zeros of both signs, denormals, NaN and infinities, powers of two and ties."""
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        info = ml_dtypes.finfo(dtype)
        kinds: list[Any] = [
            rng.standard_normal(columns),
            np.zeros(columns),
            -np.zeros(columns),
            np.full(columns, np.nan),
            rng.standard_normal(columns) * float(info.smallest_subnormal) * 5,
            rng.standard_normal(columns) * float(info.tiny),
            rng.uniform(-1, 1, columns) * float(info.max),
            rng.choice([0.5, -0.5, 1, 448, 240, 464, 232, 57344, -61440], columns),
            np.exp2(rng.integers(-24, 9, columns)) * rng.choice([1, -1, 1.5, 1.0625], columns),
            np.where(rng.random(columns) < 0.3, np.nan, rng.standard_normal(columns)),
            np.where(rng.random(columns) < 0.3, np.inf, rng.standard_normal(columns)),
            np.where(rng.random(columns) < 0.3, -np.inf, np.nan),
        ]
        return np.array(kinds, np.float32).astype(dtype)


def check_numbers_of_all_kinds() -> int:
    """Every pair of types, ways and some lengths of rows on the bound device; how many calls."""
    calls = 0
    for dtype in WIDE:
        for columns in (5, 64, 203):
            x = rows_of_all_kinds(dtype, columns, columns)
            rng = np.random.default_rng(columns)
            given = np.exp2(rng.integers(-20, 20, len(x))).astype(np.float32)
            for to in NARROW:
                for per in ("row", "tensor"):
                    found = amdattn.quantize_fp8(x, dtype=to, per=per)
                    for one, must in zip(found, quantized(x, to, per), strict=True):
                        assert_same_bits(one, must)
                for scale in (given, given[3:4]):
                    y, same = amdattn.quantize_fp8(x, dtype=to, scale=scale)
                    assert same is scale
                    assert_same_bits(y, quantized(x, to, scale=scale)[0])
                calls += 4
            finite = x[:9]  # without one that makes all the others zeros
            y, scale = amdattn.quantize_fp8(finite, per="tensor")
            assert_same_bits(y, quantized(finite, "e4m3", "tensor")[0])
            calls += 1
    return calls
