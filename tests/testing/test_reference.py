"""The fp64 reference and the oracle, against values computed another way."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from amdattn.testing import attention, attention_rounded, compare, compare_lse
from amdattn.testing.bench import _quantile

BF16 = ml_dtypes.bfloat16


@settings(max_examples=20, deadline=None)
@given(
    sq=st.integers(1, 9),
    skv=st.integers(1, 9),
    hkv=st.integers(1, 3),
    group=st.integers(1, 3),
    layout=st.sampled_from(["bshd", "bhsd"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_reference_by_the_definition(sq, skv, hkv, group, layout, seed):
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((2, sq, hkv * group, 16))
    k, v = rng.standard_normal((2, 2, skv, hkv, 16))
    v = v[..., :5]
    order = (0, 1, 2, 3) if layout == "bshd" else (0, 2, 1, 3)
    out, lse = attention(*(x.transpose(order) for x in (q, k, v)), 0.3, layout)
    out = out.transpose(order)
    for b in range(2):
        for h in range(hkv * group):
            for i in range(sq):
                weights = [
                    math.exp(0.3 * float(q[b, i, h] @ k[b, j, h // group])) for j in range(skv)
                ]
                row = sum(w * v[b, j, h // group] for j, w in enumerate(weights)) / sum(weights)
                np.testing.assert_allclose(out[b, i, h], row, rtol=1e-12, atol=1e-12)
                assert lse[b, h, i] == pytest.approx(math.log(sum(weights)), rel=1e-12, abs=1e-12)


def test_special_values():
    q = np.ones((1, 3, 1, 2))
    k = np.array([[1.0, 1.0], [np.nan, 1.0], [-np.inf, 0.0]]).reshape(1, 3, 1, 2)
    v = np.arange(6.0).reshape(1, 3, 1, 2)
    out, lse = attention(q, k, v)
    assert np.isnan(out).all() and np.isnan(lse).all()
    out, lse = attention(q, k[:, 2:], v[:, 2:])
    assert (out == 0).all() and (lse == -np.inf).all()
    out, lse = attention(q, k[:, ::2], v[:, ::2])
    np.testing.assert_array_equal(out, np.broadcast_to(v[:, :1], out.shape))
    out, lse = attention(q, -k[:, 2:], v[:, 2:])
    assert np.isnan(out).all()


def case():
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((1, 40, 2, 128)).astype(BF16) for _ in range(3))
    return attention(q, k, v)[0], attention_rounded(q, k, v)


def test_oracle_takes_a_right_result_and_no_other():
    expected, rounded = case()
    right = expected.astype(BF16)
    assert compare(right, expected, rounded)
    assert compare(rounded.astype(BF16), expected, rounded)
    wrong = right.copy()
    wrong[0, 17, 1, 99] += BF16(0.25)
    held = compare(wrong, expected, rounded)
    assert not held and held.worst == (0, 17, 1, 99) and "(0, 17, 1, 99)" in held.reason
    assert not compare(right[:, ::-1], expected, rounded)
    assert "shape" in compare(right[:, 1:], expected, rounded).reason


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_oracle_looks_at_special_values_first(value):
    expected, rounded = case()
    wrong = expected.astype(BF16)
    wrong[0, 3, 0, 7] = value
    held = compare(wrong, expected, rounded)
    assert not held and held.worst == (0, 3, 0, 7)
    assert f"{value:+}".replace("+nan", "NaN").replace("nan", "NaN") in held.reason
    special = expected.copy()
    special[0, 3, 0, 7] = value
    assert compare(wrong, special, rounded)


def test_oracle_tightens_with_the_data():
    """Equal keys make the plain pipeline exact: only one rounding of the result is left."""
    v = np.full((1, 4, 1, 8), 1.5, BF16)
    q = k = np.zeros_like(v)
    expected, rounded = attention(q, k, v)[0], attention_rounded(q, k, v)
    assert compare(expected.astype(BF16), expected, rounded)
    assert not compare((expected * 1.01).astype(BF16), expected, rounded)


def test_lse_oracle():
    expected = np.linspace(-3, 20, 50).reshape(1, 1, 50)
    assert compare_lse(expected.astype(np.float32), expected, 128)
    assert not compare_lse((expected + 0.01).astype(np.float32), expected, 128)


@settings(deadline=None)
@given(values=st.lists(st.floats(0, 1e6), min_size=1, max_size=30), q=st.floats(0, 1))
def test_quantiles_are_numpys(values, q):
    assert _quantile(sorted(values), q) == pytest.approx(np.quantile(values, q), rel=1e-9, abs=1e-9)
