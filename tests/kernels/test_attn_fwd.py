"""Every member of the attention forward family, whole tiles and parts, against float64."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import amdattn
from tests.support.attention.family import (
    MAIN,
    MEMBERS,
    Array,
    Call,
    Member,
    held_in_checked_mode,
    held_with_keys,
    held_with_rows,
    operands,
    some_by_default,
)

every_member = pytest.mark.parametrize("member", MEMBERS, ids=str)
some_members = pytest.mark.parametrize("member", some_by_default(MEMBERS), ids=str)

# Around blocks of keys (32), matrix tiles (16) and tiles of rows (256, 384, 512).
SIZES = (1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257, 383, 384, 385, 511, 512, 513)
# Every size meets a neighbour, a small one and a large one, on both sides.
PAIRS = sorted(
    {(SIZES[i], SIZES[(a * i + b) % 19]) for a, b in ((1, 1), (7, 4)) for i in range(19)}
)
FEW_PAIRS = ((1, 1), (33, 31), (64, 65), (257, 32), (385, 63), (513, 97))
MASKINGS: tuple[dict[str, Any], ...] = (
    {"causal": True},
    {"causal": True, "top_left": True},
    {"window_size": (20, -1)},
    {"window_size": (-1, 9)},
    {"window_size": (100, 30)},
    {"window_size": (3, 5)},  # narrower than a block of keys
    {"window_size": (0, 0), "top_left": True},
    {"window_size": (5000, 4000)},  # wider than the sequence
    {"window_size": (40, 99), "causal": True},
)


@pytest.mark.parametrize(("rows", "keys"), PAIRS)
def test_sequence_lengths(rows: int, keys: int) -> None:
    Call(MAIN, {"num_splits": 1}).check(*operands(MAIN, rows, keys))


@pytest.mark.parametrize("member", MEMBERS[1:], ids=str)
def test_sequence_lengths_of_members(member: Member) -> None:
    for rows, keys in FEW_PAIRS:
        Call(member, {"num_splits": 1}).check(*operands(member, rows, keys))


@pytest.mark.slow
@every_member
@pytest.mark.parametrize("masking", [{}, {"causal": True}], ids=str)
def test_every_pair_of_sequence_lengths(member: Member, masking: dict[str, Any]) -> None:
    for rows, keys in itertools.product(SIZES, SIZES):
        Call(member, masking).check(*operands(member, rows, keys))


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize("heads", [(1, 1), (3, 3), (4, 2), (6, 1), (16, 8)])
def test_batch_heads_layout(heads: tuple[int, int], layout: str) -> None:
    arrays = operands(MAIN, 37, 70, heads, 3, layout)
    Call(MAIN, {"causal": heads[0] % 2 == 0}, layout).check(*arrays)


@some_members
@pytest.mark.parametrize("masking", MASKINGS, ids=str)
def test_masks(member: Member, masking: dict[str, Any]) -> None:
    """Rows before the first key and behind the last one, longer than the keys and shorter."""
    for rows, keys in ((70, 131), (131, 70)):
        call = Call(member, {**masking, "num_splits": 1})
        call.check(*operands(member, rows, keys, (2, 1)))


@pytest.mark.parametrize("member", [MAIN, MEMBERS[4], MEMBERS[11]], ids=str)
@pytest.mark.parametrize("masking", [{}, *MASKINGS[:2], MASKINGS[4]], ids=str)
def test_several_tiles(member: Member, masking: dict[str, Any]) -> None:
    """In both orders of tiles, with groups of heads that share keys."""
    Call(member, masking).check(*operands(member, 530, 450, (8, 4)))


@pytest.mark.slow
@every_member
@pytest.mark.parametrize("masking", MASKINGS, ids=str)
def test_masks_of_many_lengths(member: Member, masking: dict[str, Any]) -> None:
    for (rows, keys), splits in itertools.product(PAIRS, (1, 4)):
        Call(member, {**masking, "num_splits": splits}).check(*operands(member, rows, keys, (3, 1)))


@some_members
@pytest.mark.parametrize("num_splits", [1, 2, 3, 4, 5])
def test_parts(member: Member, num_splits: int) -> None:
    """More parts than blocks of keys, too; with sinks, of which one outweighs all keys."""
    sinks = np.array([-3.0, 60.0, 0.5, 2.5], np.float32)
    options = {"num_splits": num_splits, "causal": num_splits % 2 == 1}
    call = Call(member, options, sinks=sinks if num_splits > 2 else None)
    for rows, keys in ((90, 140), (40, 33)):
        call.check(*operands(member, rows, keys, (4, 2)))


@some_members
@pytest.mark.parametrize("num_splits", [1, 2])
def test_sinks(member: Member, num_splits: int) -> None:
    """Also on rows that see no key."""
    sinks = np.array([-1.5, 9.0], np.float32)
    options = {"num_splits": num_splits, "window_size": (8, 0)}
    Call(member, options, sinks=sinks).check(*operands(member, 60, 40, (2, 1)))


@pytest.mark.parametrize("num_splits", [1, 2])
def test_sinks_of_minus_infinity(num_splits: int) -> None:
    """As without sinks, on rows with keys and without."""
    arrays = operands(MAIN, 60, 40)
    options = {"num_splits": num_splits, "causal": True}
    sinks = np.array([-np.inf], np.float32)
    out, lse = Call(MAIN, options, sinks=sinks).check(*arrays)
    plain, plain_lse = Call(MAIN, options).run(*arrays)
    assert out.tobytes() == plain.tobytes() and lse.tobytes() == plain_lse.tobytes()


@some_members
@pytest.mark.parametrize("num_splits", [1, 3])
def test_sequences_of_several_lengths(member: Member, num_splits: int) -> None:
    """Among them one without rows, one without keys, one without either, and spare rows."""
    lengths = (40, 0, 1, 100, 0, 33), (64, 20, 0, 70, 0, 95)
    q, k, v = operands(member, sum(lengths[0]), sum(lengths[1]), (2, 1), None)
    for masking in ({}, {"causal": True}):
        Call(member, {**masking, "num_splits": num_splits}, lengths=lengths).check(q, k, v)


@pytest.mark.parametrize("scale", [-0.25, -3.0, 0.0, 1e-30, 0.5, 1.0])
@pytest.mark.parametrize("masking", [{}, {"causal": True}, {"window_size": (5, 5)}], ids=str)
def test_softmax_scale(scale: float, masking: dict[str, Any]) -> None:
    for num_splits in (1, 3):
        options = {**masking, "softmax_scale": scale, "num_splits": num_splits}
        Call(MAIN, options).check(*operands(MAIN, 66, 150, (2, 1)))


@some_members
@pytest.mark.parametrize("num_splits", [1, 2])
def test_greatest_numbers(member: Member, num_splits: int) -> None:
    """A row that sees one key gets its V, also where 65536 times that is beyond float32."""
    q, k, v = operands(member, 20, 1)
    bits = np.random.default_rng(3).permutation(np.arange(0x7000, 0x7C00)).astype(np.uint16)
    if member.dtype == "bfloat16":
        bits += 0x7F80 - 0x7C00
    bits[1::2] |= 0x8000
    v = np.resize(bits, v.shape).view(v.dtype)
    out, _ = Call(member, {"num_splits": num_splits}).run(q, k, v)
    assert out.tobytes() == np.broadcast_to(v, out.shape).tobytes()


@some_members
def test_values_that_are_no_float16(member: Member) -> None:
    """Kernels may compute with float16 inside, and notice when a bfloat16 V is none."""
    q, k, v = operands(member, 100, 150, (2, 1))
    wide = member.dtype == "bfloat16"

    def changed(place: tuple[int, ...] | slice, value: float) -> Array:
        x: Array = v.copy()
        x[0][place] = value
        return x

    largest = 3e38 if wide else 65504.0
    for values in (
        changed((0, 0, 0), 4080.0),
        changed((149, 0, 5), 4096.0),
        changed((40, 0, member.head_dim_v - 1), -largest / 1e3),
        changed((149, 0, 3), largest / 1e3),
        *((v.astype(np.float32) * x).astype(member.element) for x in (1e-6, 1e4)),
        changed(slice(0, 150), 0.0),
    ):
        for options in ({}, {"causal": True}, {"num_splits": 2}):
            Call(member, {"num_splits": 1, **options}).check(q, k, values)


@some_members
def test_growing_scores(member: Member) -> None:
    """Each block of keys outgrows the references of the rows, in parts and under masks too."""
    q, k, v = operands(member, 140, 300)
    growth = 40.0 ** (np.arange(300) / 300)
    k = (k.astype(np.float32) * growth[:, None, None]).astype(member.element)
    for options in ({}, {"causal": True}, {"num_splits": 3}, {"window_size": (90, 10)}):
        Call(member, {"num_splits": 1, **options}).check(q, k, v)


# -- numbers that are none -------------------------------------------------------------------------


# NaN with some members of every kind; infinities by default with those that round to even.
special_values = pytest.mark.parametrize(
    ("member", "value"),
    [
        pytest.param(
            *(*member.values, value),
            id=f"{member.values[0]}-{value}",
            marks=(
                *member.marks,
                *(() if np.isnan(value) or "rtne" in str(*member.values) else [pytest.mark.slow]),
            ),
        )
        for member in some_by_default(MEMBERS)
        for value in (np.nan, np.inf, -np.inf)
    ],
)


@special_values
@pytest.mark.parametrize("num_splits", [1, 3])
def test_nan_and_inf_rows(member: Member, value: float, num_splits: int) -> None:
    call = Call(member, {"num_splits": num_splits})
    held_with_rows(call, 150, ((0, 0, 0), (77, 1, 40), (139, 1, 63)), value)


@special_values
@pytest.mark.parametrize("where", ["k", "v"])
def test_nan_and_inf_of_keys(member: Member, where: str, value: float) -> None:
    calls = [Call(member, {"num_splits": num_splits}) for num_splits in (1, 2)]
    held_with_keys(calls, 140, 150, where, ((0, 0, 0), (77, 1, 40), (149, 1, 63)), value)


@pytest.mark.parametrize("num_masked", [1, 64, 100, 129, 130])
@pytest.mark.parametrize("num_splits", [1, 2])
def test_keys_of_minus_infinity(num_masked: int, num_splits: int) -> None:
    """Masked from outside: the first `num_masked` of 130 keys score -inf in every row."""
    q, k, v = operands(MAIN, 40, 130)
    q[..., 0] = 1.0
    k[:, :num_masked, :, 0] = -np.inf
    out, lse = Call(MAIN, {"num_splits": num_splits}).check(q, k, v)
    if num_masked == 130:
        assert (out == 0).all() and (lse == -np.inf).all()


# -- the same bits ---------------------------------------------------------------------------------


@pytest.fixture
def restored_options() -> Iterator[None]:
    yield
    amdattn.virtual.set_option("seed", 0)
    amdattn.virtual.set_option("threads", 0)


@pytest.mark.parametrize("member", [MAIN, MEMBERS[7], MEMBERS[10]], ids=str)
@pytest.mark.parametrize("num_splits", [1, 3])
def test_bits_repeat(restored_options: None, member: Member, num_splits: int) -> None:
    """Whatever the order of waves and workgroups, and from run to run."""
    arrays = operands(member, 400, 200, (2, 1))
    call = Call(member, {"causal": True, "num_splits": num_splits})
    results = set()
    for threads, seed in [*itertools.product((1, 2), (0, 1, 2)), (0, 0)]:
        amdattn.virtual.set_option("threads", threads)
        amdattn.virtual.set_option("seed", seed)
        results.add(tuple(x.tobytes() for x in call.run(*arrays)))
    assert len(results) == 1


# -- checked mode ----------------------------------------------------------------------------------


@some_members
def test_checked(member: Member) -> None:
    held_in_checked_mode(Call(member), 2)


@pytest.mark.slow
@pytest.mark.parametrize("member", MEMBERS, ids=str)
def test_checked_under_many_schedules(member: Member) -> None:
    held_in_checked_mode(Call(member), 16)
