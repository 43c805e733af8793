"""`amdattn.rms_norm` as users call it: shapes, strides, kinds of arrays, refusals, graphs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.arch.props import KNOWN_DEVICES
from amdattn.errors import UnsupportedProblem
from amdattn.op.operands import row_step
from amdattn.ops.norm.problem import NormProblem

BF16 = ml_dtypes.bfloat16


def normal(seed: int, *shape: int, dtype: Any = BF16) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(dtype)


def reference(x: Any, weight: Any, eps: float = 1e-6) -> Any:
    wide = x.astype(np.float64)
    return wide * weight.astype(np.float64) / np.sqrt((wide**2).mean(-1, keepdims=True) + eps)


def close(out: Any, x: Any, weight: Any, eps: float = 1e-6) -> None:
    got = out.numpy() if isinstance(out, amdattn.DeviceArray) else out
    expected = reference(x, weight, eps)
    assert got.shape == x.shape and got.dtype == x.dtype
    ulp = 2.0**-8 if x.dtype == BF16 else 2.0**-11
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=1.1 * ulp, atol=1e-7)


@pytest.mark.parametrize("dtype", [BF16, np.float16])
@pytest.mark.parametrize("shape", [(5,), (1, 1), (3, 100), (2, 3, 65), (2, 1, 3, 2, 16), (1, 5000)])
def test_any_shape_on_the_host_and_on_the_device(shape: tuple[int, ...], dtype: Any) -> None:
    x, weight = normal(1, *shape, dtype=dtype), normal(2, shape[-1], dtype=dtype)
    out = amdattn.rms_norm(x, weight)
    assert isinstance(out, np.ndarray)
    close(out, x, weight)
    on_device = amdattn.rms_norm(amdattn.asarray(x), amdattn.asarray(weight))
    assert isinstance(on_device, amdattn.DeviceArray)
    np.testing.assert_array_equal(on_device.numpy().view(np.uint16), out.view(np.uint16))


@pytest.mark.parametrize("dtype", [BF16, np.float16])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("shape", [(5,), (3, 100), (2, 4096), (1, 16384)])
def test_weights_of_float32_are_taken_as_they_are(
    shape: tuple[int, ...], residual: bool, dtype: Any
) -> None:
    x, weight = normal(1, *shape, dtype=dtype), normal(2, shape[-1], dtype=np.float32)
    given = (x,) if residual else ()
    out = amdattn.rms_norm(x, weight, *given)
    on_device = amdattn.rms_norm(*map(amdattn.asarray, (x, weight, *given)))
    both = [results[0] if residual else results for results in (out, on_device)]
    for got in both:
        close(got, (x + x) if residual else x, weight)
    np.testing.assert_array_equal(bits(both[0]), bits(both[1]))
    plan = amdattn.plan_rms_norm(
        *(x.size // shape[-1], shape[-1]),
        **{"dtype": x.dtype.name, "residual": residual, "weight_dtype": "float32"},
        device=amdattn.device_props(),
    )
    assert "weight_dtype=float32" in plan.explain() and "weight_float32" in repr(plan)
    assert amdattn.rms_norm(x[..., :0], weight[:0]).shape == (*shape[:-1], 0)


@pytest.mark.parametrize("dtype", [BF16, np.float16])
def test_a_residual_is_added_and_returned(dtype: Any) -> None:
    x, residual, weight = (normal(i, 4, 300, dtype=dtype) for i in range(3))
    weight = weight[0].copy()
    added = (x.astype(np.float32) + residual.astype(np.float32)).astype(dtype)
    out, total = amdattn.rms_norm(x, weight, residual, 1e-5)
    np.testing.assert_array_equal(total.view(np.uint16), added.view(np.uint16))
    close(out, added, weight, 1e-5)
    arrays = [amdattn.asarray(a) for a in (x, weight, residual)]
    given = amdattn.empty(x.shape, x.dtype), amdattn.empty(x.shape, x.dtype)
    results = amdattn.rms_norm(*arrays, 1e-5, out=given[0], residual_out=given[1])
    assert results == given
    np.testing.assert_array_equal(given[0].numpy().view(np.uint16), out.view(np.uint16))
    np.testing.assert_array_equal(given[1].numpy().view(np.uint16), added.view(np.uint16))
    alone = amdattn.rms_norm(*arrays, 1e-5, residual_out=given[1])
    np.testing.assert_array_equal(alone[0].numpy().view(np.uint16), out.view(np.uint16))


@pytest.mark.parametrize(
    "shape", [(1, 4096), (3, 4093), (2, 3, 40), (5, 8192), (1, 16390), (70, 9)]
)
@pytest.mark.parametrize("place", ["host", "device"])
def test_in_place(shape: tuple[int, ...], place: str) -> None:
    """The same bits in x and in the residual themselves, either result in either."""
    x, residual, weight = normal(1, *shape), normal(2, *shape), normal(3, shape[-1])

    def made() -> Any:
        copies = x.copy(), weight, residual.copy()
        return copies if place == "host" else tuple(map(amdattn.asarray, copies))

    plan = amdattn.plan_rms_norm(
        *(x.size // shape[-1], shape[-1]),
        residual=True,
        in_place=True,
        device=amdattn.device_props(),
    )
    assert all(one.kernel.accepts["in_place"] for one in plan.launches)
    must = amdattn.rms_norm(x, weight, residual, out=np.zeros_like(x))
    # Sums of squares of other kernels differ in the last bits of float32.
    total = must[1].view(np.uint16)
    alone = amdattn.rms_norm(total.view(BF16), weight)
    alone_in_place = amdattn.rms_norm(*(given := made())[:2], out=given[0])
    assert alone_in_place is given[0]
    close(given[0], x, weight)
    close(alone, must[1], weight)
    results = []
    for out, sum_to in ((None, 2), (0, 2), (2, 0), (0, None), (None, 0)):
        given = made()
        into = None if out is None else given[out]
        to = None if sum_to is None else given[sum_to]
        found = amdattn.rms_norm(*given, out=into, residual_out=to)
        assert (into is None or found[0] is into) and (to is None or found[1] is to)
        results.append([bits(one) for one in found])
        if out is None and sum_to == 2:
            np.testing.assert_array_equal(bits(given[0]), x.view(np.uint16))
    for one in results:
        np.testing.assert_array_equal(one[0], results[0][0])
        np.testing.assert_array_equal(one[1], total)


def bits(x: Any) -> Any:
    return (x.numpy() if isinstance(x, amdattn.DeviceArray) else x).view(np.uint16)


def test_in_place_under_schedules() -> None:
    """No workgroup reads what another has written: the same bits, and nothing is found."""
    x, residual, weight = normal(1, 7, 4096), normal(2, 7, 4096), normal(3, 4096)
    must = None
    try:
        for seed in (1, 2, 3):
            amdattn.virtual.set_option("seed", seed)
            a, w, r = map(amdattn.asarray, (x, weight, residual))
            with amdattn.virtual.check() as report:
                amdattn.rms_norm(a, w, r, out=a, residual_out=r)
            assert not report.errors
            found = bits(a), bits(r)
            for one, other in zip(found, must or found, strict=True):
                np.testing.assert_array_equal(one, other)
            must = found
    finally:
        amdattn.virtual.set_option("seed", 0)


def test_in_place_while_a_plan_does_not_know() -> None:
    x, weight = amdattn.asarray(normal(1, 3, 40)), amdattn.asarray(normal(2, 40))
    plan = amdattn.plan_rms_norm(3, 40, device=amdattn.device_props())
    with pytest.raises(ValueError, match="out overlaps x in memory"):
        plan.run(x, weight, out=x)


def test_rows_at_any_one_distance() -> None:
    wide, weight = normal(3, 6, 4, 130), normal(4, 40)
    device, scale = amdattn.asarray(wide), amdattn.asarray(weight)
    for rows in (
        np.s_[:, 1, 5:45],
        np.s_[::-1, 2, 7:47],
        np.s_[::2, 0, :40],
        np.s_[2:3, :, 3:43],
        np.s_[:, :, 90:],
    ):
        close(amdattn.rms_norm(device[rows], scale), wide[rows], weight)
        close(amdattn.rms_norm(wide[rows], weight), wide[rows], weight)
    target = amdattn.asarray(np.full(wide.shape, 7, BF16))
    amdattn.rms_norm(device[:, 1, 5:45], scale, out=target[:, 3, 9:49])
    after = target.numpy().astype(np.float32)
    close(after[:, 3, 9:49].astype(BF16), wide[:, 1, 5:45], weight)
    after[:, 3, 9:49] = 7
    assert (after == 7).all()


def test_rows_at_several_distances_are_copied_from_the_host_only() -> None:
    wide, weight = normal(5, 4, 6, 64), normal(6, 40)
    close(amdattn.rms_norm(wide[:, :5, :40], weight), wide[:, :5, :40], weight)
    close(
        amdattn.rms_norm(wide.transpose(1, 0, 2)[..., 4:44], weight),
        *(
            wide.transpose(1, 0, 2)[..., 4:44],
            weight,
        ),
    )
    with pytest.raises(ValueError, match="x has rows at several distances, which must be at one"):
        amdattn.rms_norm(amdattn.asarray(wide)[:, :5, :40], amdattn.asarray(weight))
    with pytest.raises(ValueError, match=r"x has strides .* the last one must be 1"):
        amdattn.rms_norm(amdattn.asarray(wide)[:, :, ::2], amdattn.asarray(normal(1, 32)))


@pytest.mark.parametrize(
    ("shape", "strides", "step"),
    [
        ((7,), (1,), 7),
        ((1, 1, 9), (5, 3, 1), 9),
        ((3, 9), (20, 1), 20),
        ((2, 3, 9), (60, 20, 1), 20),
        ((2, 3, 9), (61, 20, 1), None),
        ((2, 1, 3, 9), (60, 999, 20, 1), 20),
        ((3, 9), (-20, 1), -20),
        ((2, 3, 9), (-60, -20, 1), -20),
        ((4, 9), (0, 1), 0),
        ((2, 4, 9), (0, 0, 1), 0),
    ],
)
def test_the_distance_of_rows(
    shape: tuple[int, ...], strides: tuple[int, ...], step: int | None
) -> None:
    from amdattn.arrays.views import View
    from amdattn.dtypes import as_dtype

    view = View(256, shape, strides, as_dtype("bfloat16"), False, None, ordinal=0)
    assert row_step(view) == step


def test_without_elements() -> None:
    for shape in ((0, 8), (3, 0), (2, 0, 5)):
        x, weight = np.zeros(shape, BF16), np.zeros(shape[-1], BF16)
        assert amdattn.rms_norm(x, weight).shape == shape
        out, total = amdattn.rms_norm(*map(amdattn.asarray, (x, weight, x)))
        assert out.shape == total.shape == shape
        given = np.zeros(shape, BF16)
        assert amdattn.rms_norm(x, weight, out=given) is given
        with pytest.raises(ValueError, match="weight has shape"):
            amdattn.rms_norm(x, np.zeros(3, BF16))


def test_what_is_refused() -> None:
    x, weight, twice = normal(1, 3, 40), normal(2, 40), normal(3, 6, 40)
    for arguments, options, text in (
        ((x, weight[:39]), {}, r"weight has shape \(39,\); this call needs \(40,\)"),
        (
            *((x, weight.astype(np.float16)), {}),
            "weight has dtype float16; with x of bfloat16 it must be bfloat16 or float32",
        ),
        ((x, weight, x[:2]), {}, r"residual has shape \(2, 40\); this call needs \(3, 40\)"),
        ((x, weight), {"eps": -1e-6}, "eps=-1e-06 must be in 0.."),
        ((x, weight), {"residual_out": x.copy()}, "residual_out was given, but no residual"),
        ((np.array(1, BF16), weight), {}, r"x has shape \(\)"),
        ((x, weight), {"out": x[::-1]}, "out overlaps x in memory"),
        ((twice[1:4], weight), {"out": twice[:3]}, "out overlaps x in memory"),
        ((x, weight, x), {"out": x, "residual_out": x}, "residual_out overlaps out in memory"),
        ((x, twice[0], x[:1]), {"out": twice[:1]}, "residual has shape"),
        ((x[:1], weight, twice[:1]), {"out": weight[None]}, "out overlaps weight in memory"),
        ((x, weight), {"out": x[:2]}, "out has shape"),
    ):
        with pytest.raises(ValueError, match=text):
            amdattn.rms_norm(*arguments, **options)
    with pytest.raises(TypeError, match="eps"):
        amdattn.rms_norm(x, weight, eps="1")
    with pytest.raises(TypeError, match="all operands must be in the same place"):
        amdattn.rms_norm(amdattn.asarray(x), weight)
    with pytest.raises(UnsupportedProblem, match=r"dtype=float32 is not built \(have .*float16"):
        amdattn.rms_norm(x.astype(np.float32), weight.astype(np.float32))
    with pytest.raises(UnsupportedProblem, match=r"columns=65537 is not built \(have 1..65536\)"):
        amdattn.plan_rms_norm(1, 65537, device="MI300X")
    with pytest.raises(ValueError, match=r"rows=0 must be in 1\.\."):
        NormProblem((0,), 4)


def test_values_that_are_no_numbers() -> None:
    x, weight = normal(7, 6, 70), normal(8, 70)
    x[1, 3], x[2, 4], x[3] = np.nan, np.inf, 0
    out = amdattn.rms_norm(x, weight).astype(np.float32)
    assert np.isnan(out[1]).all() and np.isnan(out[2, 4]) and not np.delete(out[2], 4).any()
    assert not out[3].any() and np.isfinite(out[[0, 4, 5]]).all()
    assert np.isnan(amdattn.rms_norm(x, weight, eps=0.0).astype(np.float32)[3]).all()


def test_plans() -> None:
    plan = amdattn.plan_rms_norm(512, 8192, device="MI300X", residual=True)
    assert plan is amdattn.plan_rms_norm(512, 8192, device=KNOWN_DEVICES["MI300X"], residual=True)
    text = plan.explain()
    assert "rms_norm bfloat16, rows=512 columns=8192 residual=True eps=1e-06" in text
    assert "least estimated time" in text and plan.workspace.total_bytes == 0
    assert repr(plan).startswith("<NormPlan 512x8192 residual: rms_norm_bf16_")
    x, weight = normal(9, 4, 100), normal(10, 100)
    small = amdattn.plan_rms_norm(4, 100, device=amdattn.device_props())
    close(small.run(x, weight), x, weight)
    device = amdattn.asarray(x), amdattn.asarray(weight)
    out = amdattn.empty((4, 100))
    for _ in range(3):
        assert small.run(*device, out=out) is out
        close(out, x, weight)
    with pytest.raises(ValueError, match="residual was given, but the plan has residual=False"):
        small.run(*device, device[0])
    with pytest.raises(ValueError, match="residual_out was given, but the plan has residual=False"):
        small.run(*device, residual_out=out)


def test_arrays_without_elements_are_checked_as_others_are() -> None:
    empty, weight = np.zeros((0, 8), BF16), np.zeros(8, BF16)
    for eps in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="eps"):
            amdattn.rms_norm(empty, weight, eps=eps)
    with pytest.raises(ValueError, match="dtype"):
        amdattn.rms_norm(empty.astype(np.int64), weight.astype(np.int64))
    with pytest.raises(UnsupportedProblem, match="columns=99999"):
        amdattn.rms_norm(np.zeros((0, 99999), BF16), np.zeros(99999, BF16))
    frozen = np.zeros((0, 8), BF16)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        amdattn.rms_norm(empty, weight, out=frozen)
    with pytest.raises(ValueError, match=r"weight has shape \(3,\); .* \(columns of x\)"):
        amdattn.rms_norm(empty, np.zeros(3, BF16))
    with pytest.raises(ValueError, match="rows=-2 must be in 1"):
        NormProblem((-2, -3), 8)


def test_too_many_rows_of_many_columns() -> None:
    with pytest.raises(UnsupportedProblem, match=r"rows=134217728 is not built \(have 1\.\."):
        amdattn.plan_rms_norm(2**27, 65536, device="MI300X")
