"""`amdattn.merge_state` as users call it: layouts, strides, kinds of arrays, errors, attention."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.arch.props import KNOWN_DEVICES
from amdattn.errors import UnsupportedProblem
from amdattn.ops.merge.problem import MergeProblem

BF16 = ml_dtypes.bfloat16
DTYPES = (BF16, np.float16, np.float32)
ROUNDING = {np.dtype(BF16): 2.0**-8, np.dtype(np.float16): 2.0**-11, np.dtype("f4"): 2.0**-24}


def parts(shape: tuple[int, ...], dtype: Any = BF16, seed: int = 0) -> tuple[Any, Any]:
    """O of (num_parts, batch, seqlen, num_heads, head_dim), and its lse."""
    rng = np.random.default_rng(seed)
    num_parts, batch, seqlen, heads, _ = shape
    lse = 2 * rng.standard_normal((num_parts, batch, heads, seqlen), np.float32)
    return rng.standard_normal(shape, np.float32).astype(dtype), lse


def close(results: tuple[Any, Any], o: Any, lse: Any) -> None:
    """One rounding, and float32 arithmetic of so many parts, of what float64 has."""
    out, total = (x.numpy() if isinstance(x, amdattn.DeviceArray) else x for x in results)
    with np.errstate(all="ignore"):
        wide = lse.astype(np.float64)
        greatest = np.maximum(wide.max(axis=0), -1e300)
        weights = np.exp(wide - greatest)
        of_total = greatest + np.log(weights.sum(axis=0))
        weights /= np.maximum(weights.sum(axis=0), 1e-300)
        weights = weights.swapaxes(2, 3)[..., None]
        terms = np.where(weights == 0, 0, o.astype(np.float64) * weights)
        expected = terms.sum(axis=0)
    assert out.shape == o.shape[1:] and out.dtype == o.dtype and total.dtype == np.float32
    got = out.astype(np.float64)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(got[~finite], expected[~finite])
    allowed = ROUNDING[o.dtype] * np.abs(expected) + 2.0**-25
    allowed += (len(o) + 16) * 2.0**-24 * np.abs(terms).sum(axis=0)
    worst = np.abs(got[finite] - expected[finite]) / allowed[finite]
    assert worst.max(initial=0) <= 1, worst.max()
    np.testing.assert_allclose(total, of_total, rtol=1e-6, atol=1e-6)


def same(one: Any, other: Any) -> None:
    np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1, 1, 8), (2, 1, 63, 2, 64), (3, 2, 65, 1, 128), (4, 3, 1, 33, 256), (9, 2, 3, 5, 72)],
)
def test_both_layouts_on_the_host_and_on_the_device(shape: tuple[int, ...], dtype: Any) -> None:
    o, lse = parts(shape, dtype)
    found = amdattn.merge_state(o, lse)
    assert all(isinstance(x, np.ndarray) for x in found)
    close(found, o, lse)
    on_device = amdattn.merge_state(amdattn.asarray(o), amdattn.asarray(lse))
    for one, other in zip(found, on_device, strict=True):
        assert isinstance(other, amdattn.DeviceArray)
        same(one, other.numpy())
    swapped = np.ascontiguousarray(o.swapaxes(2, 3))
    out, total = amdattn.merge_state(amdattn.asarray(swapped), amdattn.asarray(lse), layout="bhsd")
    same(np.ascontiguousarray(out.numpy().swapaxes(1, 2)), found[0])
    same(total.numpy(), found[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_parts", [*range(1, 10), 15, 16, 17, 64, 256])
def test_any_number_of_parts(num_parts: int, dtype: Any) -> None:
    o, lse = parts((num_parts, 1, 5, 3, 40), dtype, seed=num_parts)
    close(amdattn.merge_state(o, lse), o, lse)


def test_one_part_is_itself() -> None:
    for dtype in DTYPES:
        o, lse = parts((1, 2, 7, 3, 64), dtype)
        out, total = amdattn.merge_state(o, lse)
        same(out, o[0])
        same(total, lse[0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_parts", [2, 5, 8, 11])
def test_parts_without_keys_hold_anything(num_parts: int, dtype: Any) -> None:
    """With lse = -inf NaN and infinities of o are not used; without any keys a row is 0."""
    o, lse = parts((num_parts, 2, 9, 3, 32), dtype)
    rng = np.random.default_rng(1)
    lse[rng.random(lse.shape) < 0.5] = -np.inf
    lse[:, 1, 2, 4] = -np.inf
    clean = o.copy()
    without = (lse == -np.inf).swapaxes(2, 3)
    clean[without] = 0
    o[without] = rng.choice([np.nan, np.inf, -np.inf, 65504.0], o[without].shape).astype(dtype)
    out, total = amdattn.merge_state(o, lse)
    close((out, total), clean, lse)
    assert not out[1, 4, 2].astype(np.float32).any() and total[1, 2, 4] == -np.inf


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_parts", [1, 3, 8, 12])
@pytest.mark.parametrize("bits", [0x7F800000, 0x7FC00000, 0xFFC00000, 0x7FFFFFFF, 0xFFFFFFFF])
def test_an_lse_that_is_no_number_makes_its_row_nan(bits: int, num_parts: int, dtype: Any) -> None:
    o, lse = parts((num_parts, 1, 9, 3, 32), dtype)
    lse.view(np.uint32)[num_parts - 1, 0, 1, 4] = bits
    out, total = amdattn.merge_state(o, lse)
    assert np.isnan(out[0, 4, 1].astype(np.float32)).all() and np.isnan(total[0, 1, 4])
    assert np.isfinite(np.delete(out.astype(np.float32), 4, axis=1)).all()
    assert np.isnan(total).sum() == 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_of_o_that_are_no_numbers(dtype: Any) -> None:
    o, lse = parts((3, 1, 9, 3, 32), dtype)
    o[1, 0, 2, 1, 5], o[0, 0, 3, 0, 7], o[2, 0, 4, 2, 0] = np.nan, np.inf, -np.inf
    o[0, 0, 5, 0, 1], o[1, 0, 5, 0, 1] = np.inf, -np.inf
    close(amdattn.merge_state(o, lse), o, lse)


@pytest.mark.parametrize("size", [1e4, 3e38, 1e-40])
def test_great_and_small_lse(size: float) -> None:
    """Differences count, however far from 0; what float32 cannot hold of them counts as -inf."""
    o, lse = parts((4, 1, 33, 2, 64), np.float32)
    lse = np.sign(lse) * np.float32(size)
    close(amdattn.merge_state(o, lse), o, lse)


def test_weights_below_float32_count_as_nothing() -> None:
    o, lse = parts((2, 1, 3, 1, 32), np.float32)
    lse[0], lse[1] = 0, -120
    o[1] = 1e30
    out, total = amdattn.merge_state(o, lse)
    same(out, o[0])
    assert not total.any()


def test_a_sum_is_rounded_once() -> None:
    """Halves of neighbours and a little more: float32 decides what 16 bits cannot hold."""
    lse = np.zeros((2, 1, 1, 1), np.float32)
    for dtype, step in ((BF16, 2.0**-7), (np.float16, 2.0**-10)):
        o = np.ones((2, 1, 1, 1, 8), dtype)
        o[1] = 1 + step  # the middle is a tie, to even
        assert (amdattn.merge_state(o, lse)[0] == 1).all()
        lse[1] = 1e-2
        assert (amdattn.merge_state(o, lse)[0] == o[1]).all()
        lse[1] = 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_strides(dtype: Any) -> None:
    o, lse = parts((4, 5, 6, 7, 96), dtype)
    o_device, lse_device = amdattn.asarray(o), amdattn.asarray(lse)
    for index in (
        np.s_[1:3, :, :, :, 8:72],
        np.s_[::-1, ::2, ::-1, 1::3, :40],
        np.s_[::3, 4:5, 2:3, 6:7, 32:],
    ):
        of_o = o[index]
        of_lse = lse[index[0], index[1], index[3], index[2]]
        close(amdattn.merge_state(of_o, of_lse), of_o, of_lse)
        lengths = amdattn.asarray(of_lse.copy())
        close(amdattn.merge_state(o_device[index], lengths), of_o, of_lse)
    sliced = o_device[:, 1:3], lse_device[:, 1:3]
    close(amdattn.merge_state(*sliced), o[:, 1:3], lse[:, 1:3])
    target = amdattn.asarray(np.full((3, 6, 9, 112), 7, dtype))
    lse_target = amdattn.asarray(np.full((3, 8, 7), 7, np.float32))
    place, lse_place = np.s_[::2, :, 1:8, 8:104], np.s_[::2, 1:, :6]
    results = target[place], lse_target[lse_place]
    given = amdattn.merge_state(*sliced, out=results[0], lse_out=results[1])
    assert given == results
    after, lse_after = target.numpy(), lse_target.numpy()
    close((after[place].copy(), lse_after[lse_place].copy()), o[:, 1:3], lse[:, 1:3])
    after[place], lse_after[lse_place] = 7, 7
    assert (after == 7).all() and (lse_after == 7).all()


def test_host_arrays_of_any_strides() -> None:
    o, lse = parts((3, 2, 6, 4, 48))
    odd = np.zeros((*o.shape[:-1], 51), BF16)[..., 3:]
    odd[...] = o
    close(amdattn.merge_state(odd, lse), o, lse)
    columns = np.asfortranarray(o)
    close(amdattn.merge_state(columns, np.asfortranarray(lse)), o, lse)


def test_broadcast_parts() -> None:
    """Strides of 0: the same part twice weighs as once, and the sum doubles."""
    o, lse = parts((1, 2, 5, 3, 64), np.float32)
    twice = np.broadcast_to(o, (2, *o.shape[1:])), np.broadcast_to(lse, (2, *lse.shape[1:]))
    out, total = amdattn.merge_state(*twice)
    np.testing.assert_allclose(out, o[0], rtol=2e-7)
    np.testing.assert_allclose(total, lse[0] + np.log(2), rtol=1e-6, atol=1e-6)


def test_without_elements() -> None:
    for shape in ((2, 0, 3, 4, 64), (2, 3, 0, 4, 64), (2, 3, 4, 0, 64)):
        o, lse = np.zeros(shape, BF16), np.zeros((2, shape[1], shape[3], shape[2]), np.float32)
        out, total = amdattn.merge_state(o, lse)
        assert out.shape == shape[1:] and total.shape == lse.shape[1:]
        on_device = amdattn.merge_state(amdattn.asarray(o), amdattn.asarray(lse))
        assert [x.shape for x in on_device] == [shape[1:], lse.shape[1:]]
        given = np.zeros(shape[1:], BF16)
        assert amdattn.merge_state(o, lse, out=given)[0] is given
        with pytest.raises(ValueError, match="lse has shape"):
            amdattn.merge_state(o, np.zeros((3, *lse.shape[1:]), np.float32))
        with pytest.raises(ValueError, match="lse has dtype float16; this call needs float32"):
            amdattn.merge_state(o, lse.astype(np.float16))
        with pytest.raises(UnsupportedProblem, match="head_dim=60"):
            amdattn.merge_state(o[..., :60], lse)
        frozen = np.zeros(lse.shape[1:], np.float32)
        frozen.flags.writeable = False
        with pytest.raises(ValueError, match="lse_out is read-only"):
            amdattn.merge_state(o, lse, lse_out=frozen)
    with pytest.raises(ValueError, match="num_parts=0 must be in 1"):
        amdattn.merge_state(np.zeros((0, 1, 1, 1, 8), BF16), np.zeros((0, 1, 1, 1), np.float32))
    with pytest.raises(ValueError, match="head_dim=0 must be in 1"):
        amdattn.merge_state(np.zeros((2, 1, 1, 1, 0), BF16), np.zeros((2, 1, 1, 1), np.float32))


def test_what_is_refused() -> None:
    o, lse = parts((2, 3, 4, 5, 64))
    for arguments, options, text in (
        ((o[0], lse), {}, r"o has shape \(3, 4, 5, 64\); it must have 5 dimensions \(num_parts, "),
        ((o, lse[:1]), {}, r"lse has shape \(1, 3, 5, 4\); this call needs \(2, 3, 5, 4\)"),
        ((o, lse.swapaxes(2, 3)), {}, r"lse has shape \(2, 3, 4, 5\); this call needs"),
        ((o, lse), {"layout": "bhsd"}, r"lse has shape .*this call needs \(2, 3, 4, 5\)"),
        ((o, lse), {"layout": "thd"}, r"layout='thd' must be one of \('bshd', 'bhsd'\)"),
        ((o, lse.astype(np.float64)), {}, "lse has dtype float64; this call needs float32"),
        ((o, lse), {"out": o[0]}, "out overlaps o in memory"),
        ((o, lse), {"lse_out": lse[0]}, "lse_out overlaps lse in memory"),
        ((o, lse), {"out": o[0, :2].copy()}, r"out has shape .*this call needs \(3, 4, 5, 64\)"),
        ((o, lse), {"out": o[0].astype(np.float32)}, "out has dtype float32"),
    ):
        with pytest.raises(ValueError, match=text):
            amdattn.merge_state(*arguments, **options)
    with pytest.raises(TypeError, match="layout=3 must be a str"):
        amdattn.merge_state(o, lse, layout=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="all operands must be in the same place"):
        amdattn.merge_state(amdattn.asarray(o), lse)
    for dim in (4, 60, 264):
        wrong, of_wrong = parts((2, 1, 1, 1, dim))
        with pytest.raises(UnsupportedProblem, match=rf"head_dim={dim} is not built \(have 8..256"):
            amdattn.merge_state(wrong, of_wrong)
    with pytest.raises(UnsupportedProblem, match=r"head_dim=6 is not built \(have 4\.\.256 in"):
        amdattn.merge_state(*parts((2, 1, 1, 1, 6), np.float32))
    with pytest.raises(UnsupportedProblem, match=r"dtype=float64 is not built \(have bfloat16"):
        amdattn.merge_state(o.astype(np.float64), lse)


def test_what_is_refused_on_the_device() -> None:
    o, lse = parts((2, 3, 4, 5, 68))
    device, of_lse = amdattn.asarray(o), amdattn.asarray(lse)
    with pytest.raises(ValueError, match=r"o has seq stride 340, which must be a multiple of 8"):
        amdattn.merge_state(device[..., :64], of_lse)
    wide = amdattn.asarray(np.zeros((2, 3, 4, 5, 136), BF16))
    with pytest.raises(ValueError, match=r"o has address 0x\w+, which must be a multiple of 16"):
        amdattn.merge_state(wide[..., 4:68], of_lse)
    with pytest.raises(ValueError, match=r"o has strides .* the last one must be 1"):
        amdattn.merge_state(wide[..., ::2][..., :64], of_lse)
    longer = amdattn.asarray(np.zeros((2, 3, 5, 8), np.float32))
    with pytest.raises(ValueError, match=r"lse has strides .* the last one must be 1"):
        amdattn.merge_state(wide[..., :64], longer[..., ::2])


def test_strides_that_32_bits_do_not_hold_are_refused() -> None:
    plan = amdattn.plan_merge_state(2, 1, 4, 4, 64, device=amdattn.device_props())
    spec = plan.specs()["o"]
    strides = {"part": 2**34, "batch": 0, "seq": 256, "head": 64}
    from amdattn.op.plan import Operand

    text = plan.misfit(spec, Operand(256, strides))
    assert text == f"part stride {2**34}, which must be in {-(2**34)}..{2**34 - 8} elements"
    assert not plan.misfit(spec, Operand(256, strides | {"part": 2**34 - 8}))
    assert "part stride" in plan.misfit(
        plan.specs()["lse"], Operand(256, {"part": 2**31, "batch": 0, "head": 0, "seq": 1})
    )


def test_too_long_axes_name_themselves() -> None:
    wide = KNOWN_DEVICES["MI300X"]
    for order in ((2**27, 8, 4), (8, 2**27, 4), (8, 4, 2**27)):
        with pytest.raises(UnsupportedProblem, match=r"=134217728 is not built \(have 1\.\."):
            amdattn.plan_merge_state(2, *order, 64, device=wide)
    for order in ((70000, 70000, 8), (8, 70000, 70000), (2**25, 8, 65536)):
        grid = amdattn.plan_merge_state(2, *order, 64, device=wide).launches[0].grid
        assert grid[0] < 2**26 + 1 and max(grid[1:]) <= 65536
    with pytest.raises(UnsupportedProblem, match="num_parts=8388608"):
        amdattn.plan_merge_state(2**23, 1, 1, 1, 8, device=wide)
    with pytest.raises(ValueError, match=r"batch=0 must be in 1\.\."):
        MergeProblem(2, 0, 1, 1, 8)


def test_plans() -> None:
    plan = amdattn.plan_merge_state(4, 1, 512, 32, 128, device="MI300X")
    assert plan is amdattn.plan_merge_state(4, 1, 512, 32, 128, device=KNOWN_DEVICES["MI300X"])
    text = plan.explain()
    assert "merge_state bfloat16, num_parts=4 batch=1 seqlen=512 num_heads=32 head_dim=128" in text
    assert "least estimated time" in text and plan.workspace.total_bytes == 0
    assert repr(plan).startswith("<MergePlan 4 parts 1x512x32x128: merge_state_bf16_")
    o, lse = parts((3, 2, 5, 4, 64))
    small = amdattn.plan_merge_state(3, 2, 5, 4, 64, device=amdattn.device_props())
    close(small.run(o, lse), o, lse)
    device = amdattn.asarray(o), amdattn.asarray(lse)
    out, total = amdattn.empty((2, 5, 4, 64)), amdattn.empty((2, 4, 5), "float32")
    for _ in range(3):
        assert small.run(*device, out=out, lse_out=total) == (out, total)
        close((out, total), o, lse)
    swapped = np.ascontiguousarray(o.swapaxes(2, 3))
    found = small.run(swapped, lse, layout="bhsd")
    same(np.ascontiguousarray(found[0].swapaxes(1, 2)), out.numpy())
    with pytest.raises(ValueError, match="o has shape"):
        small.run(o[:2], lse)
    with pytest.raises(ValueError, match="layout='sbhd' must be one of"):
        small.run(o, lse, layout="sbhd")


@pytest.mark.parametrize(
    "sizes", [(2, 5, 1, 8), (2, 300, 1, 1), (3, 1, 300, 2), (2, 2, 2, 100), (2, 7, 9, 1)]
)
def test_rows_along_every_axis(sizes: tuple[int, int, int, int]) -> None:
    """Each of the three axes of rows is the one along which a workgroup has its rows."""
    from amdattn.device import manifest
    from amdattn.ops import registry

    operation, props = registry.operation("merge_state"), amdattn.device_props()
    problem = MergeProblem(*sizes, 64)
    found = operation.choices(problem, props, manifest.kernels())
    o, lse = parts((*sizes, 64))
    along = set()
    for choice in found.items:
        along.add(choice.row)
        close(operation.plan_of(problem, props, choice, found).run(o, lse), o, lse)
    assert along == {
        axis for axis, length in zip(("batch", "seq", "head"), sizes[1:], strict=True) if length > 1
    }


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize("dtype", [BF16, np.float16])
def test_parts_of_attention_make_the_whole(dtype: Any, layout: str) -> None:
    """Cut along the keys, one part empty for the first queries; within one rounding of parts."""
    rng = np.random.default_rng(3)
    shape = (2, 65, 4, 64) if layout == "bshd" else (2, 4, 65, 64)
    q, k, v = (rng.standard_normal(shape, np.float32).astype(dtype) for _ in range(3))
    axis = 1 if layout == "bshd" else 2
    options: dict[str, Any] = {"layout": layout, "return_lse": True}
    whole, whole_lse = amdattn.flash_attn_func(q, k, v, **options)
    cuts = [(0, 1), (1, 17), (17, 65)]
    found = [
        amdattn.flash_attn_func(q, k.take(range(*c), axis), v.take(range(*c), axis), **options)
        for c in cuts
    ]
    o, lse = (np.stack(x) for x in zip(*found, strict=True))
    out, total = amdattn.merge_state(o, lse, layout=layout)
    bound = 2 * ROUNDING[np.dtype(dtype)] * np.abs(o.astype(np.float64)).max()
    np.testing.assert_allclose(out.astype(np.float64), whole.astype(np.float64), atol=bound, rtol=0)
    np.testing.assert_allclose(total, whole_lse, atol=1e-4)


def test_parts_of_causal_attention_without_keys() -> None:
    """Queries that see no key of a part: its lse is -inf as attention returns it."""
    rng = np.random.default_rng(4)
    q, k, v = (rng.standard_normal((1, 32, 2, 64), np.float32).astype(BF16) for _ in range(3))
    whole, whole_lse = amdattn.flash_attn_func(q, k, v, causal=True, return_lse=True)
    # The later half of the keys against all queries: the window begins at the bottom right.
    first = amdattn.flash_attn_func(q, k[:, :16], v[:, :16], window_size=(-1, 16), return_lse=True)
    later = amdattn.flash_attn_func(q, k[:, 16:], v[:, 16:], window_size=(-1, 0), return_lse=True)
    assert (later[1][..., :16] == -np.inf).all() and np.isfinite(later[1][..., 16:]).all()
    o, lse = (np.stack(x) for x in zip(first, later, strict=True))
    out, total = amdattn.merge_state(o, lse)
    np.testing.assert_allclose(
        out.astype(np.float64), whole.astype(np.float64), atol=0.03, rtol=0.01
    )
    np.testing.assert_allclose(total, whole_lse, atol=1e-4)
