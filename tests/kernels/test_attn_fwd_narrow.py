"""The kernels for narrow windows, whole tiles and parts of their heads, against float64."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn.errors import UnsupportedProblem
from amdattn.ops.attention import planning, select
from amdattn.ops.attention.kv_split import Choice, Split
from amdattn.ops.attention.work import WorkMap
from tests.support.attention.family import (
    NARROW,
    Array,
    Call,
    Member,
    held_in_checked_mode,
    held_with_keys,
    held_with_rows,
    operands,
    some_by_default,
)

MAIN = NARROW[0]
every_member = pytest.mark.parametrize("member", NARROW, ids=str)
some_members = pytest.mark.parametrize("member", some_by_default(NARROW), ids=str)

# Of up to 129 keys, with and without tiles that no mask cuts.
WINDOWS: tuple[dict[str, Any], ...] = (
    {"window_size": (127, 0)},
    {"window_size": (128, 0), "causal": True, "top_left": True},
    {"window_size": (127, -1), "causal": True},
    {"window_size": (60, 68)},
    {"window_size": (0, 128), "top_left": True},
    {"window_size": (0, 0)},
    {"window_size": (19, 4)},
    {"window_size": (3, 50), "top_left": True},
)
# Around tiles of 16 rows and keys, and around the 144 keys that a tile of rows has.
LENGTHS = ((1, 1), (15, 17), (16, 144), (33, 145), (70, 131), (131, 70), (200, 300), (300, 143))


@some_members
@pytest.mark.parametrize("masking", WINDOWS, ids=str)
def test_windows(member: Member, masking: dict[str, Any]) -> None:
    """Rows before the first key and behind the last one, longer than the keys and shorter."""
    for rows, keys in LENGTHS[4:]:
        Call(member, masking).check(*operands(member, rows, keys, (2, 1)))


@every_member
def test_sequence_lengths(member: Member) -> None:
    for (rows, keys), masking in itertools.product(LENGTHS, WINDOWS[:2]):
        Call(member, masking).check(*operands(member, rows, keys))


@some_members
def test_sequences_without_a_window(member: Member) -> None:
    """So short that a row spans no more than 129 keys."""
    for rows, keys, masking in ((64, 66, {}), (100, 30, {}), (129, 129, {"causal": True})):
        Call(member, masking).check(*operands(member, rows, keys, (4, 2), 2))


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize("heads", [(1, 1), (3, 3), (4, 2), (6, 1), (16, 2), (24, 2), (10, 5)])
def test_batch_heads_layout(heads: tuple[int, int], layout: str) -> None:
    arrays = operands(MAIN, 50, 70, heads, 3, layout)
    Call(MAIN, {"window_size": (20, 3)}, layout).check(*arrays)


def test_more_heads_than_go_at_once() -> None:
    Call(MAIN, WINDOWS[0]).check(*operands(MAIN, 40, 170, (72, 36), 3))


@pytest.mark.parametrize("heads", [(8, 1), (16, 4), (12, 3), (2, 1)])
def test_parts_of_heads(heads: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """However many tiles are whole, the same bits."""
    sinks = np.random.default_rng(1).standard_normal(heads[0]).astype(np.float32)
    call = Call(MAIN, WINDOWS[0], sinks=sinks)
    q, k, v = operands(MAIN, 140, 230, heads, 2)
    expected = call.check(q, k, v)
    plan = call.plan(q, k, v)
    kernel = plan.forward.kernel
    tiles = WorkMap.of(plan.problem, plan.forward).tiles
    tile_heads = select.tile_heads(kernel, plan.problem)
    assert tile_heads == 2 ** min(2, (heads[0] // heads[1]).bit_length() - 1)
    for parts, whole in itertools.product((2, 4), (0, 8, tiles - 1)):
        if parts > tile_heads:
            continue
        split = Split(tiles - whole, parts, 1.0)
        choice = Choice(split, (Split(0, 1, 1.0), split), 1.0)
        monkeypatch.setattr(planning.head_split, "choose", lambda *_, made=choice: made)
        assert call.plan(q, k, v).forward.grid == (whole + (tiles - whole) * parts, 1, 1)
        for actual, wanted in zip(call.run(q, k, v), expected, strict=True):
            assert actual.tobytes() == wanted.tobytes()


@some_members
def test_sinks(member: Member) -> None:
    """Of which one outweighs all keys; also on rows that see no key."""
    sinks = np.array([-3.0, 60.0, -np.inf, 2.5], np.float32)
    for rows, keys in ((60, 40), (40, 200)):
        call = Call(member, {"window_size": (8, 0)}, sinks=sinks)
        call.check(*operands(member, rows, keys, (4, 1)))


@some_members
def test_sequences_of_several_lengths(member: Member) -> None:
    """Among them one without rows, one without keys, one without either, and spare rows."""
    lengths = (40, 0, 1, 200, 0, 33), (64, 20, 0, 190, 0, 295)
    q, k, v = operands(member, sum(lengths[0]), sum(lengths[1]), (4, 2), None)
    for masking in WINDOWS[:4]:
        Call(member, masking, lengths=lengths).check(q, k, v)


@pytest.mark.parametrize("scale", [-0.25, -3.0, 0.0, 1e-30, 0.5, 1.0])
def test_softmax_scale(scale: float) -> None:
    for masking in WINDOWS[:4]:
        options = {**masking, "softmax_scale": scale}
        Call(MAIN, options).check(*operands(MAIN, 66, 250, (2, 1)))


@some_members
def test_greatest_numbers(member: Member) -> None:
    """A row that sees one key gets its V, also where 65536 times that is beyond float32."""
    q, k, v = operands(member, 20, 20)
    bits = np.random.default_rng(3).permutation(np.arange(0x7000, 0x7C00)).astype(np.uint16)
    if member.dtype == "bfloat16":
        bits += 0x7F80 - 0x7C00
    bits[1::2] |= 0x8000
    v = np.resize(bits, v.shape).view(v.dtype)
    out, _ = Call(member, {"window_size": (0, 0)}).run(q, k, v)
    assert out.tobytes() == v.tobytes()


@some_members
def test_large_scores(member: Member) -> None:
    q, k, v = operands(member, 140, 300)
    growth = 40.0 ** (np.arange(300) / 300)
    k = (k.astype(np.float32) * growth[:, None, None]).astype(member.element)
    for masking in WINDOWS:
        Call(member, masking).check(q, k, v)


# -- numbers that are none -------------------------------------------------------------------------


@some_members
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_inf_rows(member: Member, value: float) -> None:
    call = Call(member, WINDOWS[0])
    held_with_rows(call, 250, ((0, 0, 0), (77, 1, 20), (139, 1, 39)), value)


@some_members
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["k", "v"])
def test_nan_and_inf_of_keys(member: Member, where: str, value: float) -> None:
    """Of keys that all rows see."""
    places = (0, 0, 0), (37, 1, 20), (59, 1, 23)
    held_with_keys([Call(member)], 30, 60, where, places, value)


@some_members
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_keys_behind_the_window(member: Member, value: float) -> None:
    """K that a row does not see, and sequences that are not its own, change nothing."""
    lengths = (150, 60), (150, 60)
    q, k, v = operands(member, 210, 210, (2, 1), None)
    call = Call(member, WINDOWS[0], lengths=lengths)
    expected, _ = call.run(q, k, v)
    k[150:], v[150:] = value, value
    k[:10] = value
    out, _ = call.run(q, k, v)
    assert out[137:150].tobytes() == expected[137:150].tobytes()


def test_keys_of_minus_infinity() -> None:
    """Masked from outside: rows that see no other key are 0."""
    q, k, v = operands(MAIN, 200, 200)
    q[..., 0] = 1.0
    k[:, :150, :, 0] = -np.inf
    out, lse = Call(MAIN, {"window_size": (127, 0)}).check(q, k, v)
    assert (out[:, :150] == 0).all() and (lse[..., :150] == -np.inf).all()


# -- accuracy --------------------------------------------------------------------------------------


def as_with_online_softmax(member: Member, q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    """Errors of rounded probabilities relative to the true maximum, divided by the exact sum."""
    wide = [np.asarray(x).astype(np.float64)[0, :, 0] for x in (q, k, v)]
    scores = wide[0] @ wide[1].T / np.sqrt(member.head_dim)
    row, key = np.indices(scores.shape)
    scores[(key > row + 100) | (key < row - 27)] = -np.inf
    p = np.exp(scores - scores.max(1, keepdims=True))
    exact = p @ wide[2] / p.sum(1, keepdims=True)
    rounded = _rounded(p, member) @ wide[2] / p.sum(1, keepdims=True)
    return exact, _rounded(rounded, member) - exact


def _rounded(x: Array, member: Member) -> Array:
    if member.mode != "rtz":
        return x.astype(member.element).astype(np.float64)
    bits = x.astype(np.float32).view(np.uint32) & 0xFFFF0000
    return bits.view(np.float32).astype(np.float64)


@pytest.mark.parametrize("member", NARROW[:4], ids=str)
@pytest.mark.parametrize("sharpness", [0.3, 1.0, 5.0])
def test_accuracy(member: Member, sharpness: float) -> None:
    """Of an online softmax with the true maximum, whose P is rounded to nearest: within 4 %.

    Truncated probabilities that were raised before are off by as much, but for 2 or 3 %.
    """
    q, k, v = operands(member, 600, 600)
    q = (q.astype(np.float32) * sharpness).astype(member.element)
    out, _ = Call(member, {"window_size": (27, 100), "top_left": True}).run(q, k, v)
    exact, usual = as_with_online_softmax(member, q, k, v)
    error = out[0, :, 0].astype(np.float64) - exact
    assert np.sqrt((error**2).mean()) <= 1.04 * np.sqrt((usual**2).mean())
    assert np.abs(error).max() <= 1.2 * np.abs(usual).max()


# -- the same bits, and checked mode ---------------------------------------------------------------


@pytest.mark.parametrize("member", NARROW[:4], ids=str)
def test_bits_repeat(member: Member) -> None:
    """Whatever the order of waves and workgroups."""
    arrays = operands(member, 200, 200, (8, 2))
    results = set()
    try:
        for threads, seed in itertools.product((1, 2), (0, 1, 2)):
            amdattn.virtual.set_option("threads", threads)
            amdattn.virtual.set_option("seed", seed)
            results.add(tuple(x.tobytes() for x in Call(member, WINDOWS[0]).run(*arrays)))
    finally:
        amdattn.virtual.set_option("seed", 0)
        amdattn.virtual.set_option("threads", 0)
    assert len(results) == 1


@pytest.mark.parametrize("member", NARROW[:4], ids=str)
def test_checked(member: Member) -> None:
    held_in_checked_mode(Call(member), 2)


@pytest.mark.slow
@pytest.mark.parametrize("member", NARROW[:4], ids=str)
def test_checked_under_many_schedules(member: Member) -> None:
    held_in_checked_mode(Call(member), 16)


# -- what they do not take -------------------------------------------------------------------------


@pytest.mark.parametrize("masking", [{}, {"window_size": (128, 1)}, {"window_size": (-1, 0)}])
def test_wide_windows_are_refused(masking: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedProblem, match="up to 129 keys"):
        Call(MAIN, masking).plan(*operands(MAIN, 200, 200))


def test_they_are_preferred() -> None:
    """By the planner, whose text compares them with those of the family."""
    anyone = dataclasses.replace(MAIN, kernel="")
    plan = Call(anyone, WINDOWS[0]).plan(*operands(anyone, 1000, 1000, (8, 2)))
    assert plan.forward.kernel.name == MAIN.kernel
    reasons = dict(plan.reasons)
    assert "256 rows" in reasons["why this kernel"] and "16 rows" in reasons["why this kernel"]
    assert "of 4 heads" in reasons["tiles"]
