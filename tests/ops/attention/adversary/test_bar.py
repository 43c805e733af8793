"""The judge of the adversary: it passes what is right, and finds what is planted."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.adversary.bar import Truth, judge, truth
from tests.support.adversary.plain import Array, Rules, exact, plain, round_to
from tests.support.attention import masked

MODES = (("bfloat16", "rtne"), ("bfloat16", "rtna"), ("bfloat16", "rtz"), ("float16", "rtne"))


def numbers(dtype: str, rows: int = 70, keys: int = 50, dim: int = 64) -> tuple[Array, ...]:
    rng = np.random.default_rng(rows)
    shapes = ((2, rows, dim), (2, keys, dim), (2, keys, dim))
    return tuple(round_to(rng.standard_normal(s).astype(np.float32), dtype, "rtne") for s in shapes)


def rules(dtype: str = "bfloat16", mode: str = "rtne", **more: object) -> Rules:
    return Rules(dtype, mode, 0.125, **more)  # type: ignore[arg-type]


def kinds(out: Array, lse: Array, by: Truth) -> list[str]:
    return ["" if v.holds else v.kind for v in judge(out, lse, by)]


@pytest.mark.parametrize(
    "more", [{}, {"causal": True}, {"window": (5, 9), "top_left": True}, {"softcap": 20.0}], ids=str
)
def test_float64_is_the_definition(more: dict[str, object]) -> None:
    """Of the masks and sinks that the other tests hold kernels to."""
    q, k, v = numbers("bfloat16")
    sinks = np.array([0.5, 3.0], np.float32)
    best = exact(q, k, v, sinks, rules(**more))
    options = {{"window": "window_size"}.get(name, name): x for name, x in more.items()}
    arrays = (x.swapaxes(0, 1)[None] for x in (q, k, v))
    out, lse = masked.attention(*arrays, softmax_scale=0.125, sinks=sinks, **options)
    np.testing.assert_allclose(best.out, out[0].swapaxes(0, 1), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(best.lse, lse[0], rtol=1e-12)


@pytest.mark.parametrize(("dtype", "mode"), MODES)
def test_plain_passes(dtype: str, mode: str) -> None:
    given = numbers(dtype)
    usual = plain(*given, None, rules(dtype, mode))
    verdicts = judge(usual.out, usual.lse, truth(*given, None, rules(dtype, mode)))
    assert all(0.2 < verdict.worst <= 0.75 for verdict in verdicts)


@pytest.mark.parametrize(("dtype", "mode"), MODES)
def test_an_error_of_a_row_or_a_column_is_found(dtype: str, mode: str) -> None:
    """Of a column that is small beside the others, too."""
    q, k, v = numbers(dtype)
    v[:, :, 7] = round_to(v[:, :, 7] * np.float32(2.0**-9), dtype, "rtne")
    by = truth(q, k, v, None, rules(dtype, mode))
    usual = plain(q, k, v, None, rules(dtype, mode))
    assert kinds(usual.out, usual.lse, by) == ["", ""]
    of_row = usual.out.copy()
    of_row[0, 33] *= 1 + 40 * rules(dtype).unit
    assert kinds(of_row, usual.lse, by)[0].startswith("row")
    of_column = usual.out.copy()
    of_column[1, :, 7] *= 0.5
    assert kinds(of_column, usual.lse, by) == ["", kinds(of_column, usual.lse, by)[1]]
    assert kinds(of_column, usual.lse, by)[1].startswith("column")
    assert kinds(usual.out, usual.lse + np.float32(1e-3), by) == ["lse", "lse"]


def test_what_is_not_finite() -> None:
    q, k, v = numbers("bfloat16")
    v[0, 3, 5] = np.inf
    q[1, 2, 0] = np.nan
    by = truth(q, k, v, None, rules())
    usual = plain(q, k, v, None, rules())
    assert np.isposinf(usual.out[0, :, 5]).all() and np.isnan(usual.out[1, 2]).all()
    assert kinds(usual.out, usual.lse, by) == ["", ""]
    for wrong in (np.nan, -np.inf, 0.0):
        out = usual.out.copy()
        out[0, 9, 5] = wrong
        assert kinds(out, usual.lse, by) == ["not finite", ""]
    out = usual.out.copy()
    out[1, 3, 4] = np.nan
    assert kinds(out, usual.lse, by) == ["", "not finite"]


def test_where_plain_overflows() -> None:
    """Either is right; where it does not, a NaN is wrong."""
    q, k, v = numbers("bfloat16")
    v[:, :, 1] = 3e38
    by = truth(q, k, v, None, rules())
    usual = plain(q, k, v, None, rules())
    assert np.isinf(usual.out[:, :, 1]).any()
    best = by.best.out.copy()
    for some in (np.nan, np.inf, best[0, 0, 1]):
        best[:, :, 1] = some
        assert kinds(best, usual.lse, by) == ["", ""]


def test_where_plain_overflows_as_much_is_allowed_as_where_it_does_not() -> None:
    """V of one sign times a power of two: its sums are too large, its mean is not."""
    q, k, v = numbers("bfloat16")
    v = np.abs(v)
    found = []
    for by in (1.0, 2.0**125):
        largest = (v * by).astype(np.float32)
        usual = plain(q, k, v, None, rules())
        held_against = truth(q, k, largest, None, rules())
        assert np.isfinite(held_against.usual.out).all() == (by == 1)
        wrong = (usual.out * by * (1 + 2.0**-8)).astype(np.float32)
        found.append([list(v.ratios.values()) for v in judge(wrong, usual.lse, held_against)])
    np.testing.assert_allclose(*found, rtol=1e-3)


def test_rows_that_see_nothing() -> None:
    q, k, v = numbers("bfloat16", 60, 20)
    by = truth(q, k, v, None, rules(causal=True))
    usual = plain(q, k, v, None, rules(causal=True))
    assert (usual.out[:, :40] == 0).all() and np.isneginf(usual.lse[:, :40]).all()
    assert kinds(usual.out, usual.lse, by) == ["", ""]
    usual.out[0, 5, 5] = np.nan
    assert kinds(usual.out, usual.lse, by) == ["not finite", ""]


def test_denormals_count_with_their_own_spacing() -> None:
    fine = rules("bfloat16").ulp(np.array([0.0, 1e-40, 2.0**-126, 1.0]))
    np.testing.assert_array_equal(fine, 2.0 ** np.array([-133, -133, -133, -7]))
    assert rules("float16").ulp(np.array([1e-7]))[0] == 2.0**-24


@pytest.mark.parametrize(
    ("reference", "spacing", "holds"),
    [
        (0.0, 2.0**-24, True),
        (-0.68, 2.0**-24, True),
        (-0.31, 2.0**-24, True),
        (0.0, 2.0**-21, False),
    ],
)
def test_denormal_probabilities_are_rounded_by_any_near_reference(
    reference: float, spacing: float, holds: bool
) -> None:
    """Keys 12 nats below others make the result of float16; plain's rounding may be lucky."""
    q, k, v = numbers("float16")
    far = np.arange(k.shape[1]) % 16 == 0
    q[..., 0], k[..., 0] = 1, np.where(far, -12 / rules("float16").scale, 0)
    v *= np.where(far, 1e4, 1e-8)[:, None].astype(np.float32)
    q, k, v = (x.astype(np.float16).astype(np.float32) for x in (q, k, v))
    by = truth(q, k, v, None, rules("float16"))
    units = by.best.p * 2.0**-reference / spacing
    p = np.where(far, np.rint(units) * spacing * 2.0**reference, by.best.p)
    found = round_to((p / by.best.total @ v).astype(np.float32), "float16", "rtne")
    assert (kinds(found, by.usual.lse, by) == ["", ""]) == holds
