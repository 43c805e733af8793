"""`amdattn.quantize_fp8` as users call it: kinds of numbers, strides, arrays, errors, products."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.arch.props import KNOWN_DEVICES
from amdattn.device import runtime
from amdattn.errors import UnsupportedProblem
from tests.support.quantized import (
    LEAST_SCALE,
    NARROW,
    WIDE,
    assert_same_bits,
    check_numbers_of_all_kinds,
    narrow_type,
    quantized,
)


def normal(*shape: int, dtype: Any = ml_dtypes.bfloat16, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(dtype)


def test_numbers_of_all_kinds() -> None:
    assert check_numbers_of_all_kinds() == 81


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("to", NARROW)
def test_every_number_of_8_bits_is_itself(to: str, dtype: Any) -> None:
    """But for those that are none: with a scale of 1, and with one of a power of two."""
    element = narrow_type(to)
    every = np.arange(256, dtype=np.uint8).view(element)
    every = every[np.isfinite(every.astype(np.float32))][None]
    for scale in (1.0, 0.25):
        x = (every.astype(np.float32) * np.float32(scale)).astype(dtype)
        if (x.astype(np.float64) != every.astype(np.float64) * scale).any():
            continue  # not all of them are numbers of 16 bits
        y, _ = amdattn.quantize_fp8(x, dtype=to, scale=np.array([scale], np.float32))
        assert_same_bits(y, every)


@pytest.mark.parametrize("to", NARROW)
def test_every_bfloat16_with_a_scale_of_one(to: str) -> None:
    """Ties, denormals, what is beyond the greatest number, minus zero: 65536 numbers."""
    x = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(ml_dtypes.bfloat16)
    x, one = x.reshape(64, 1024), np.ones(1, np.float32)
    y, _ = amdattn.quantize_fp8(x, dtype=to, scale=one)
    assert_same_bits(y, quantized(x, to, scale=one)[0])


@pytest.mark.parametrize("per", ["row", "tensor"])
@pytest.mark.parametrize(
    ("dtype", "bits", "quiet", "signalling"),
    [
        (ml_dtypes.bfloat16, np.uint16, 0x7FC0, 0xFF81),
        (np.float16, np.uint16, 0x7E00, 0x7C01),
        (np.float32, np.uint32, 0x7FC00000, 0x7F800001),
    ],
)
def test_a_signalling_nan_changes_no_scale(
    per: Any, dtype: Any, bits: Any, quiet: int, signalling: int
) -> None:
    """Wherever it stands: the greatest magnitude may come before it or after it."""
    for columns in (8, 65, 1030, 5000):
        for at in (0, columns // 2, columns - 1):
            x = normal(3, columns, dtype=dtype)
            x.view(bits)[1, at] = quiet
            like, scale_of_quiet = amdattn.quantize_fp8(x, per=per)
            x.view(bits)[1, at] = signalling
            y, scale = amdattn.quantize_fp8(x, per=per)
            assert scale.tobytes() == scale_of_quiet.tobytes() and scale.min() > 2.0**-12
            assert (np.isnan(y.astype("f4")) == np.isnan(like.astype("f4"))).all()


def test_zeros_are_zeros_with_the_least_scale() -> None:
    x = np.array([[0.0, -0.0] * 40, [0.0, 1e-40] * 40], np.float32)
    y, scale = amdattn.quantize_fp8(x)
    np.testing.assert_array_equal(scale, np.full((2, 1), LEAST_SCALE))
    assert (y[0].astype(np.float32) * scale[0] == 0).all()
    if not np.isnan(np.array([0x80], np.uint8).view(y.dtype).astype(np.float32)[0]):
        assert y[0, 1].view(np.uint8) == 0x80  # minus zero, where there is one
    else:
        assert (y[0].view(np.uint8) == 0).all()


@pytest.mark.parametrize("dtype", WIDE)
def test_strides_on_the_host_and_on_the_device(dtype: Any) -> None:
    base = normal(40, 300, dtype=dtype)
    for x in (base[::2, :77], base[::-1, 3:100], base.T[:70, ::3], base[:1, :65], base[5:6].T):
        must = quantized(np.ascontiguousarray(x), "e4m3")
        for one, other in zip(amdattn.quantize_fp8(x), must, strict=True):
            assert_same_bits(one, other)
    on_device = amdattn.asarray(base)
    for rows, columns in ((slice(0, 40, 2), slice(0, 77)), (slice(3, 30), slice(3, 131))):
        for per in ("row", "tensor"):
            found = amdattn.quantize_fp8(on_device[rows, columns], per=per)
            assert all(isinstance(one, amdattn.DeviceArray) for one in found)
            must = quantized(base[rows, columns], "e4m3", per)
            for one, other in zip(found, must, strict=True):
                assert_same_bits(one.numpy(), other)


def test_results_that_are_given() -> None:
    x = normal(9, 100)
    element = narrow_type("e5m2")
    out, out_scale = np.zeros((9, 100), element), np.zeros((9, 1), np.float32)
    y, scale = amdattn.quantize_fp8(x, out=out, out_scale=out_scale)  # its type is that of out
    assert y is out and scale is out_scale
    for one, other in zip((out, out_scale), quantized(x, "e5m2"), strict=True):
        assert_same_bits(one, other)
    held = amdattn.asarray(np.zeros((9, 131), element))
    on_device = amdattn.empty((1,), "float32")
    amdattn.quantize_fp8(amdattn.asarray(x), per="tensor", out=held[:, 7:107], out_scale=on_device)
    must = quantized(x, "e5m2", "tensor")
    assert_same_bits(held.numpy()[:, 7:107].copy(), must[0])
    assert_same_bits(on_device.numpy(), must[1])
    assert (held.numpy().view(np.uint8)[:, :7] == 0).all()


def test_again_with_the_same_arrays_and_others() -> None:
    for per in ("row", "tensor"):
        for seed in range(4):
            x = normal(33, 129, seed=seed)
            y, scale = amdattn.quantize_fp8(amdattn.asarray(x), per=per)
            for one, other in zip((y, scale), quantized(x, "e4m3", per), strict=True):
                assert_same_bits(one.numpy(), other)


def test_types_by_all_of_their_names() -> None:
    x = normal(2, 16)
    for to in NARROW:
        element = narrow_type(to)
        for name in (to, element, element.name, element.type):
            assert amdattn.quantize_fp8(x, dtype=name)[0].dtype == element
    assert amdattn.quantize_fp8(x)[0].dtype == narrow_type("e4m3")


def test_scales_of_every_shape() -> None:
    x, scale = normal(6, 50), np.exp2(np.arange(6, dtype=np.float32) - 3)
    must = quantized(x, "e4m3", scale=scale)[0]
    for given in (scale, scale[:, None], scale[None]):
        assert_same_bits(amdattn.quantize_fp8(x, scale=given)[0], must)
    one = np.float32(0.01).reshape(1, 1)
    assert_same_bits(amdattn.quantize_fp8(x, scale=one)[0], quantized(x, "e4m3", scale=one)[0])


@pytest.mark.parametrize("to", NARROW)
@pytest.mark.parametrize("per", ["row", "tensor"])
def test_a_product_of_what_it_makes(per: str, to: str) -> None:
    """The error of rounding to 8 bits: of each factor half of a unit of the last place."""
    m, n, k = 70, 90, 512
    a, b = normal(m, k), normal(n, k, seed=1)
    (qa, sa), (qb, sb) = (amdattn.quantize_fp8(x, dtype=to, per=per) for x in (a, b))
    out = amdattn.gemm_nt(qa, qb, scale_a=sa, scale_b=sb, out_dtype="float32")
    wide = [x.astype(np.float64) for x in (a, b)]
    exact = wide[0] @ wide[1].T
    one = 2.0 ** -(4 if to == "e4m3" else 3)  # of a normal number
    # Errors are independent: of k products of two rounded factors, each off by up to `one`.
    error = np.abs(out - exact)
    root_mean = np.sqrt((error**2).mean()) / np.sqrt((exact**2).mean())
    assert one / 4 < root_mean < one
    sizes = np.abs(wide[0]) @ np.abs(wide[1]).T
    denormal = 2.0**-10 * np.abs(wide[0]).max() * np.abs(wide[1]).max() * k
    assert (error <= (2 * one + one * one) * sizes + denormal).all()
    of_rounded = (qa.astype(np.float64) * sa) @ (qb.astype(np.float64) * sb).T
    np.testing.assert_allclose(out, of_rounded, rtol=0, atol=2.0**-18 * sizes.max())


def test_no_rows() -> None:
    for x in (normal(0, 8), amdattn.asarray(normal(0, 8))):
        y, scale = amdattn.quantize_fp8(x)
        assert y.shape == (0, 8) and scale.shape == (0, 1)
    with pytest.raises(
        ValueError, match=r"^x has shape \(0, 8\): without elements no scale can be made"
    ):
        amdattn.quantize_fp8(normal(0, 8), per="tensor")
    with pytest.raises(
        ValueError, match=r"^x has shape \(3, 0\): without elements no scale can be made"
    ):
        amdattn.quantize_fp8(normal(3, 0))
    scale = np.ones(1, np.float32)
    assert amdattn.quantize_fp8(normal(3, 0), scale=scale)[0].shape == (3, 0)


def test_refusals() -> None:
    x = normal(3, 8)
    own = narrow_type("e4m3").name
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (x[0], {}, r"^x has shape \(8,\); it must have 2 dimensions$"),
        (x, {"per": "column"}, "^per='column' must be row or tensor$"),
        (x, {"per": "column", "scale": np.ones(1, "f4")}, "^per='column' must be row or tensor$"),
        (
            x,
            {"dtype": "float16"},
            rf"^dtype=float16 must be {own} \(e4m3\) or .*\(e5m2\) on gfx",
        ),
        (x, {"scale": np.ones(2, np.float32)}, r"^scale has shape \(2,\)"),
        (x, {"scale": np.ones(3)}, "^scale has dtype float64; it must be float32$"),
        (x, {"scale": np.ones(3, np.float32), "out_scale": np.ones((3, 1), np.float32)}, "^out_sc"),
        (x, {"out": np.zeros((3, 9), narrow_type("e4m3"))}, r"^out has shape \(3, 9\)"),
        (x, {"out": np.zeros((3, 8), np.float32)}, rf"^out has dtype float32; it must be {own}"),
        (x, {"out_scale": np.zeros((3,), np.float32)}, r"^out_scale has shape \(3,\)"),
    ]
    for array, options, message in wrong:
        with pytest.raises(ValueError, match=message):
            amdattn.quantize_fp8(array, **options)
    with pytest.raises(UnsupportedProblem, match=r"^dtype=float64 is not built \(have "):
        amdattn.quantize_fp8(x.astype(np.float64))
    with pytest.raises(TypeError, match=r"^per="):
        amdattn.quantize_fp8(x, per=1)  # type: ignore[arg-type]


def test_a_graph_of_a_scale_of_all_of_x(hip_stream: Any) -> None:
    """Maxima are in memory of the caller's: a capture allocates nothing."""
    hip, call, stream = runtime.get().hip, runtime.get().check, int(hip_stream)
    x, y = amdattn.asarray(normal(33, 70)), amdattn.empty((33, 70), narrow_type("e4m3"))
    scale = amdattn.empty((1,), "float32")
    plan = amdattn.plan_quantize_fp8(33, 70, device=amdattn.device_props(), per="tensor")
    workspace = plan.new_workspace()
    small = amdattn.empty((plan.workspace.total_bytes - 4,), "uint8")
    with pytest.raises(ValueError, match=r"^workspace "):
        plan.run(x, out=y, out_scale=scale, workspace=small)
    for run in (plan.run, functools.partial(amdattn.quantize_fp8, per="tensor")):
        run(x, out=y, out_scale=scale, workspace=workspace)  # loads the kernels: a capture must not
        amdattn.synchronize()
        mode = hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal
        call("hipStreamBeginCapture", hip.hipStreamBeginCapture(stream, mode))
        run(x, out=y, out_scale=scale, workspace=workspace, stream=stream)
        graph = call("hipStreamEndCapture", hip.hipStreamEndCapture(stream))
        made = call("hipGraphInstantiate", hip.hipGraphInstantiateWithFlags(graph, 0))
        call("hipMemset", hip.hipMemset(y.address, 0, 33 * 70))
        call("hipGraphLaunch", hip.hipGraphLaunch(made, stream))
        runtime.get().synchronize(stream)
        must = quantized(x.numpy(), "e4m3", per="tensor")
        assert_same_bits(y.numpy(), must[0])
        np.testing.assert_array_equal(scale.numpy(), must[1].reshape(1))
        call("hipGraphExecDestroy", hip.hipGraphExecDestroy(made))
        call("hipGraphDestroy", hip.hipGraphDestroy(graph))


@pytest.mark.parametrize("device", ["MI300X", "MI355X"])
def test_plans(device: str) -> None:
    """Two launches where a scale is of all of x; workgroups share rows only where none is made."""
    props = KNOWN_DEVICES[device]
    row = amdattn.plan_quantize_fp8(512, 70000, device=props)
    assert len(row.launches) == 1 and row.launches[0].grid == (512, 1, 1)
    tensor = amdattn.plan_quantize_fp8(512, 70000, device=props, per="tensor")
    assert len(tensor.launches) == 2 and tensor.launches[1].grid[1] > 1
    assert tensor.launches[0].grid[0] <= props.num_cus
    assert tensor.workspace.total_bytes == 4 * tensor.launches[0].grid[0]
    given = amdattn.plan_quantize_fp8(512, 70000, device=device, per="tensor", scale=True)
    assert len(given.launches) == 1 and given.workspace.total_bytes == 0
    assert "least estimated time" in given.explain()
