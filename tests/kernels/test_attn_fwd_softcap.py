"""Scores that softcap bounds: every member against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn.errors import UnsupportedProblem
from tests.support.attention.family import (
    MAIN,
    MEMBERS,
    PADDED,
    Call,
    Member,
    held_in_checked_mode,
    operands,
    some_by_default,
)

CAPPED = [member for member in MEMBERS if not member.kernel]
every_member = pytest.mark.parametrize("member", CAPPED, ids=str)
some_members = pytest.mark.parametrize("member", some_by_default(CAPPED), ids=str)


@pytest.mark.parametrize("member", [*CAPPED, *PADDED[::3]], ids=str)
@pytest.mark.parametrize("num_splits", [1, 2])
def test_softcap(member: Member, num_splits: int) -> None:
    """Of scores below it and far beyond it; parts, masks, sinks, several sequences."""
    sinks = np.array([-2.0, 5.0], np.float32)
    for softcap, scale in ((30.0, None), (2.0, 1.0), (50.0, -4.0)):
        options: dict[str, Any] = {"softcap": softcap, "num_splits": num_splits}
        if scale is not None:
            options["softmax_scale"] = scale
        Call(member, options, sinks=sinks).check(*operands(member, 70, 97, (2, 1)))
    options = {"softcap": 20.0, "num_splits": num_splits, "causal": True}
    Call(member, options).check(*operands(member, 50, 135, (2, 2)))
    lengths = (20, 0, 37), (64, 9, 0)
    q, k, v = operands(member, sum(lengths[0]), sum(lengths[1]), (2, 1), None)
    Call(member, options, lengths=lengths).check(q, k, v)


@pytest.mark.parametrize("softcap", [2.0**-10, 0.1, 1.0, 15.0, 100.0, 2.0**10])
@pytest.mark.parametrize("masking", [{}, {"window_size": (40, 3)}], ids=str)
def test_caps(softcap: float, masking: dict[str, Any]) -> None:
    for member in (MAIN, CAPPED[7]):
        arrays = operands(member, 66, 150, (2, 1))
        Call(member, {"softcap": softcap, "num_splits": 1, **masking}).check(*arrays)


@some_members
def test_growing_scores(member: Member) -> None:
    """Each block of keys outgrows the references of the rows until all scores are the cap."""
    q, k, v = operands(member, 140, 300)
    growth = 80.0 ** (np.arange(300) / 300)
    k = (k.astype(np.float32) * growth[:, None, None]).astype(member.element)
    for options in ({}, {"causal": True}, {"num_splits": 3}):
        Call(member, {"num_splits": 1, "softcap": 60.0, **options}).check(q, k, v)


@some_members
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_inf(member: Member, value: float) -> None:
    """A score of plus or minus infinity is plus or minus the cap; that of a NaN is a NaN."""
    q, k, v = operands(member, 70, 90, (2, 2))
    k = np.abs(k)
    q[0, 3, 0, 0] = q[0, 66, 1, -1] = value
    options = {"softcap": 5.0, "num_splits": 2}
    out, lse = Call(member, options).check(q, k, v)
    assert np.isnan(lse[0, 0, 3]) == np.isnan(value)
    assert np.isfinite(out[0, 3, 0].astype(np.float32)).all() != np.isnan(value)
    q, k, v = operands(member, 70, 90, (2, 2))
    q = np.abs(q)
    k[0, 3, 0, 0] = k[0, 40, 1, -1] = value
    v[0, 7, 1, 5] = value
    Call(member, options).check(q, k, v)


def test_a_great_cap_is_none() -> None:
    """Both kernels agree as well as their roundings."""
    arrays = operands(MAIN, 100, 200)
    capped, lse = Call(MAIN, {"softcap": 1024.0}).run(*arrays)
    plain, plain_lse = Call(MAIN).run(*arrays)
    np.testing.assert_allclose(
        capped.astype(np.float32), plain.astype(np.float32), rtol=0.02, atol=2e-3
    )
    np.testing.assert_allclose(lse, plain_lse, rtol=0, atol=1024 * 2.0**-20)


@pytest.mark.parametrize("softcap", [2.0**-11, 1025.0, 1e30])
def test_other_caps_are_refused(softcap: float) -> None:
    arrays = operands(MAIN, 4, 4)
    with pytest.raises(UnsupportedProblem, match=r"softcap=.* is not built \(have 0\.0, 0\.0009"):
        amdattn.flash_attn_func(*arrays, softcap=softcap)


def test_argument() -> None:
    """As flash-attn calls it."""
    q, k, v = operands(MAIN, 40, 70)
    out, lse = amdattn.flash_attn_func(q, k, v, softcap=3.0, return_lse=True)
    Call(MAIN, {"softcap": 3.0}).hold(out, lse, q, k, v)
    assert "softcap=3.0" in amdattn.explain(1, 40, 70, 1, 1, 128, softcap=3.0, device="MI300X")


@pytest.mark.parametrize("member", CAPPED[::10], ids=str)
def test_checked(member: Member) -> None:
    held_in_checked_mode(Call(member, {"softcap": 30.0}), 2)


@pytest.mark.slow
@every_member
def test_checked_under_many_schedules(member: Member) -> None:
    held_in_checked_mode(Call(member, {"softcap": 30.0}), 16)
