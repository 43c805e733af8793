"""`amdattn.layer_norm` and the options of `rms_norm` as users call them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.device import runtime

BF16 = ml_dtypes.bfloat16


def normal(seed: int, *shape: int, dtype: Any = BF16) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(dtype)


def state(seed: int, offset: int) -> Any:
    return amdattn.asarray(np.array([seed, offset], np.int64).view(np.int32))


def host(x: Any) -> Any:
    return x.numpy() if isinstance(x, amdattn.DeviceArray) else x


def bits(x: Any) -> Any:
    return host(x).view(np.uint16)


@pytest.mark.parametrize("dtype", [BF16, np.float16])
@pytest.mark.parametrize("shape", [(5,), (1, 1), (2, 3, 65), (2, 1, 3, 130), (1, 5000)])
def test_any_shape_on_the_host_and_on_the_device(shape: tuple[int, ...], dtype: Any) -> None:
    x, weight, bias = normal(1, *shape, dtype=dtype), *normal(2, 2, shape[-1], dtype=dtype)
    out = amdattn.layer_norm(x, weight, bias)
    wide = x.astype(np.float64)
    apart = wide - wide.mean(-1, keepdims=True)
    y = apart / np.sqrt((apart**2).mean(-1, keepdims=True) + 1e-5)
    must = y * weight.astype(np.float64) + bias.astype(np.float64)
    ulp = 2.0**-8 if dtype == BF16 else 2.0**-11
    np.testing.assert_allclose(out.astype(np.float64), must, rtol=1.1 * ulp, atol=1e-5)
    arrays = map(amdattn.asarray, (x, weight, bias))
    np.testing.assert_array_equal(bits(amdattn.layer_norm(*arrays)), bits(out))


def test_strides_on_the_device() -> None:
    held, weight = amdattn.asarray(normal(3, 8, 300)), amdattn.asarray(normal(4, 100))
    for rows in (slice(None, None, 3), slice(None, None, -1)):
        part = held[rows, 33:133]
        must = amdattn.layer_norm(part.numpy(), weight.numpy())
        np.testing.assert_array_equal(bits(amdattn.layer_norm(part, weight)), bits(must))


@pytest.mark.parametrize("function", [amdattn.layer_norm, amdattn.rms_norm])
def test_a_seed_drops_the_same_and_a_state_others(function: Any) -> None:
    x, weight = normal(5, 7, 300), normal(6, 300)
    seeded = [function(x, weight, residual=x, dropout_p=0.5, seed=s) for s in (3, 3, 4)]
    np.testing.assert_array_equal(bits(seeded[0][0]), bits(seeded[1][0]))
    assert (bits(seeded[0][1]) != bits(seeded[2][1])).any()
    held = state(3, 0)
    first, second = (function(x, weight, residual=x, dropout_p=0.5, state=held) for _ in range(2))
    np.testing.assert_array_equal(bits(first[1]), bits(seeded[0][1]))
    assert (bits(first[1]) != bits(second[1])).any()
    assert list(held.numpy().view(np.int64)) == [3, 2]
    dropped = bits(seeded[0][1]) == bits(x)  # nothing but the residual
    assert 0.4 < dropped.mean() < 0.6


def test_replays_of_a_graph_draw_anew() -> None:
    x, weight = amdattn.asarray(normal(7, 40, 520)), amdattn.asarray(normal(8, 520))
    options: dict[str, Any] = {"residual": True, "dropout_p": 0.25}
    plan = amdattn.plan_layer_norm(40, 520, device=amdattn.device_props(), **options)
    held, work = state(9, 5), plan.new_workspace()
    out, total = amdattn.empty((40, 520), "bfloat16"), amdattn.empty((40, 520), "bfloat16")
    seen = []
    for _ in range(3):  # what a graph's replays do
        plan.run(x, weight, None, x, None, held, out=out, residual_out=total, workspace=work)
        runtime.synchronize()
        seen.append(bits(total).copy())
    assert int(held.numpy().view(np.int64)[1]) == 8
    assert all((one != other).any() for one, other in zip(seen, seen[1:], strict=False))
    _, again = amdattn.layer_norm(x, weight, residual=x, dropout_p=0.25, state=state(9, 6))
    np.testing.assert_array_equal(bits(again), seen[1])


@pytest.mark.parametrize("function", [amdattn.layer_norm, amdattn.rms_norm])
def test_results_of_8_bits_are_operands_of_products(function: Any) -> None:
    x, weight, b = normal(10, 16, 256), normal(11, 256), normal(12, 64, 256)
    y, scale = function(amdattn.asarray(x), amdattn.asarray(weight), out_dtype="e4m3")
    assert y.dtype.name == amdattn.device_props().architecture.fp8 and scale.shape == (16, 1)
    narrow_b, scale_b = amdattn.quantize_fp8(amdattn.asarray(b))
    found = host(amdattn.gemm_nt(y, narrow_b, scale_a=scale, scale_b=scale_b))
    must = function(x, weight).astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(found.astype(np.float64), must, atol=0.05 * np.abs(must).max())
    given = amdattn.asarray(scale.numpy())
    again, same = function(
        amdattn.asarray(x), amdattn.asarray(weight), out_dtype=y.dtype, scale=given
    )
    assert same is given
    np.testing.assert_array_equal(again.numpy().view(np.uint8), y.numpy().view(np.uint8))


def test_gradients_are_those_of_differences() -> None:
    """Of a sum of results with factors, by differences in float64."""
    rows, columns, p = 3, 40, 0.25
    x, residual, dout = (normal(seed, rows, columns) for seed in (13, 14, 15))
    weight, bias = normal(16, columns), normal(17, columns)
    held = state(11, 0)
    _, total = amdattn.layer_norm(x, weight, bias, residual, dropout_p=p, state=held)
    arrays = (amdattn.asarray(a) for a in (dout, total, weight, np.zeros_like(x)))
    found = amdattn.layer_norm_backward(*arrays, dropout_p=p, state=held)
    dx, dresidual, dweight, dbias = (host(y).astype(np.float64) for y in found)
    stays = dx != 0

    def loss(h: Any) -> Any:
        apart = h - h.mean(-1, keepdims=True)
        n = apart / np.sqrt((apart**2).mean(-1, keepdims=True) + 1e-5)
        return (dout.astype(np.float64) * n * weight.astype(np.float64)).sum(-1)

    h = total.astype(np.float64)
    steps = 1e-6 * np.eye(columns)
    of_h = np.stack([(loss(h + step) - loss(h - step)) / 2e-6 for step in steps], -1)
    np.testing.assert_allclose(dresidual, of_h, atol=0.02)
    np.testing.assert_allclose(dx, np.where(stays, of_h / (1 - p), 0), atol=0.03)
    assert ((total == residual) >= ~stays).all()  # what is dropped has no gradient
    np.testing.assert_allclose(dbias, dout.astype(np.float64).sum(0), atol=1e-5)
    assert dweight.shape == (columns,)


X, W = normal(18, 4, 64), normal(19, 64)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: amdattn.layer_norm(X, W, W.astype("f4")), ValueError, "bias has dtype float32"),
        (lambda: amdattn.layer_norm(X, W, W[:3]), ValueError, "bias has shape"),
        (lambda: amdattn.layer_norm(X, W, dropout_p=1), ValueError, "must be at least 0 and less"),
        (lambda: amdattn.layer_norm(X, W, out_dtype="e5m2"), ValueError, "e5m2"),
        (lambda: amdattn.layer_norm(X, W, residual_out=X), ValueError, "but no residual"),
        (lambda: amdattn.layer_norm(X, W, out_scale=X), ValueError, "has no scale"),
        (
            lambda: amdattn.layer_norm(X, W, dropout_p=0.1, state=np.zeros(4, np.int32)),
            TypeError,
            "state is written in place",
        ),
        (
            lambda: amdattn.layer_norm(X, W, dropout_p=0.1, seed=1, state=state(0, 0)),
            ValueError,
            "only one of them may be",
        ),
        (lambda: amdattn.rms_norm(X, W, seed=1), ValueError, "seed was given, but no dropout_p"),
    ],
)
def test_refusals(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()
