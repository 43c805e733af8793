"""`amdattn.silu_and_mul` and `gelu_and_mul` as users call them: shapes, strides, refusals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.errors import UnsupportedProblem
from amdattn.op.quotients import MAX_DIVIDEND, Reciprocal
from amdattn.ops.gemm.cases import activated

BF16 = ml_dtypes.bfloat16
WAYS: dict[str, Any] = {
    "silu": amdattn.silu_and_mul,
    "gelu": amdattn.gelu_and_mul,
    "gelu_tanh": lambda *args, **options: amdattn.gelu_and_mul(
        *args, approximate="tanh", **options
    ),
}


def normal(seed: int, *shape: int, dtype: Any = BF16) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(dtype)


def close(out: Any, name: str, gate: Any, up: Any) -> None:
    got = out.numpy() if isinstance(out, amdattn.DeviceArray) else out
    must = activated(name, gate.astype(np.float64)) * up.astype(np.float64)
    assert got.shape == gate.shape and got.dtype == gate.dtype
    ulp = 2.0**-8 if gate.dtype == BF16 else 2.0**-11
    np.testing.assert_allclose(got.astype(np.float64), must, rtol=1.1 * ulp, atol=1e-7)


@pytest.mark.parametrize("dtype", [BF16, np.float16])
@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("shape", [(6,), (1, 2), (3, 100), (2, 3, 66), (2, 1, 3, 2, 16), (2, 9000)])
def test_any_shape_on_the_host_and_on_the_device(
    shape: tuple[int, ...], name: str, dtype: Any
) -> None:
    """The gate is the first half; two arrays give the same."""
    x, function = normal(1, *shape, dtype=dtype), WAYS[name]
    gate, up = np.split(x, 2, axis=-1)
    out = function(x)
    assert isinstance(out, np.ndarray)
    close(out, name, gate, up)
    arrays = amdattn.asarray(x), amdattn.asarray(gate), amdattn.asarray(up)
    for again in (function(gate, up), function(arrays[0]), function(*arrays[1:])):
        got = again.numpy() if isinstance(again, amdattn.DeviceArray) else again
        np.testing.assert_array_equal(got.view(np.uint16), out.view(np.uint16))


def test_strides() -> None:
    """On the host any; on the device rows at one distance, also from the last to the first."""
    x = normal(2, 30, 200)
    for part in (x[::2], x[::-1, 3:63], x[:, ::2], x.T[:40]):
        close(amdattn.silu_and_mul(part), "silu", *np.split(part, 2, axis=-1))
    on_device = amdattn.asarray(x)
    for rows in (slice(None, None, 3), slice(None, None, -1)):
        part = x[rows, 7:107]
        close(amdattn.silu_and_mul(on_device[rows, 7:107]), "silu", *np.split(part, 2, axis=-1))


def test_in_place() -> None:
    """Over the gate or the factor; on the host as well."""
    x = normal(3, 5, 2 * 77)
    must = amdattn.silu_and_mul(x)
    for part in (slice(None, 77), slice(77, None)):
        held = amdattn.asarray(x)
        assert amdattn.silu_and_mul(held, out=held[:, part]) is not None
        np.testing.assert_array_equal(held[:, part].numpy().view(np.uint16), must.view(np.uint16))
        host = x.copy()
        amdattn.silu_and_mul(host, out=host[:, part])
        np.testing.assert_array_equal(host[:, part].view(np.uint16), must.view(np.uint16))
    held = amdattn.asarray(x)
    with pytest.raises(ValueError, match="out overlaps x in memory"):
        amdattn.silu_and_mul(held, out=held[:, 1:78])


def test_nothing() -> None:
    for shape in ((0, 8), (3, 0), (2, 0, 8)):
        x = np.zeros(shape, BF16)
        assert amdattn.silu_and_mul(x).shape == (*shape[:-1], shape[-1] // 2)
        assert amdattn.gelu_and_mul(amdattn.asarray(x)).shape == (*shape[:-1], shape[-1] // 2)


X = normal(4, 4, 64)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: amdattn.silu_and_mul(X[:, :63]), ValueError, "its last axis must be even"),
        (lambda: amdattn.silu_and_mul(np.array(1.0)), ValueError, "at least 1 dimension"),
        (lambda: amdattn.silu_and_mul(X, X[:3]), ValueError, "up has shape"),
        (lambda: amdattn.silu_and_mul(X, X.astype("f2")), ValueError, "up has dtype float16"),
        (lambda: amdattn.silu_and_mul(X.astype("f4")), UnsupportedProblem, "dtype=float32"),
        (lambda: amdattn.gelu_and_mul(X, approximate="erf"), ValueError, "must be none or tanh"),
        (lambda: amdattn.silu_and_mul(X, out=X), ValueError, "out has shape"),
        (
            lambda: amdattn.plan_gated_activation(2**31 - 1, 4096, device="MI300X"),
            UnsupportedProblem,
            "rows=2147483647 is not built",
        ),
        (
            lambda: amdattn.plan_gated_activation(1, 8, activation="relu", device="MI300X"),
            ValueError,
            "activation='relu' must be silu, gelu_tanh, gelu",
        ),
    ],
)
def test_refusals(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_quotients_without_a_division() -> None:
    rng = np.random.default_rng(0)
    divisors = [*range(1, 1000), *map(int, rng.integers(1, 2**31, 1000)), 2**30, 2**31 - 1]
    for d in divisors:
        factor, shift = Reciprocal.of(d)
        assert 0 < factor < 2**32
        most = MAX_DIVIDEND // d
        for k in (0, 1, most, *map(int, rng.integers(0, most + 1, 3))):
            for n in (k * d - 1, k * d, k * d + 1):
                if 0 <= n < MAX_DIVIDEND:
                    assert (n + 1) * factor >> 32 + shift == n // d
