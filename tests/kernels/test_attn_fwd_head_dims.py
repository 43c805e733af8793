"""Head sizes between those that the kernels compute with: nothing of them lies in memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn.errors import UnsupportedProblem
from tests.support.attention.family import MEMBERS, PADDED, Call, Member, operands

padded_members = pytest.mark.parametrize("member", PADDED, ids=str)
SIZES = range(8, 264, 8)


@padded_members
def test_between_the_sizes(member: Member) -> None:
    """Whole tiles and parts, under masks, with sinks, groups of heads and several sequences."""
    sinks = np.array([-1.0, 3.0], np.float32)
    Call(member, {"num_splits": 1}).check(*operands(member, 65, 97, (2, 1)))
    options = {"num_splits": 3, "causal": True}
    Call(member, options, sinks=sinks).check(*operands(member, 50, 135, (2, 2)))
    lengths = (20, 0, 37), (64, 9, 0)
    q, k, v = operands(member, sum(lengths[0]), sum(lengths[1]), (2, 1), None)
    Call(member, {"window_size": (30, 5)}, lengths=lengths).check(q, k, v)


@padded_members
@pytest.mark.parametrize("num_splits", [1, 2])
def test_neighbours_of_a_row_do_not_matter(member: Member, num_splits: int) -> None:
    """Each row lies between NaNs, and the last one ends with its memory."""
    arrays = operands(member, 40, 70, (2, 2))
    parts = []
    for x in arrays:
        rows = np.full((*x.shape[:-1], x.shape[-1] + 16), np.nan, np.float32).astype(x.dtype)
        rows[..., 16:] = x
        parts.append(amdattn.asarray(rows)[..., 16:])
    call = Call(member, {"num_splits": num_splits})
    out, lse = call.check(*arrays, on_device=tuple(parts))
    same, same_lse = call.run(*arrays)
    assert out.tobytes() == same.tobytes() and lse.tobytes() == same_lse.tobytes()


@padded_members
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_inf(member: Member, value: float) -> None:
    """In the last column and in the first."""
    call = Call(member, {"num_splits": 2})
    q, k, v = operands(member, 33, 40)
    v[0, 9, 0, -1] = value
    call.check(q, k, v)
    q, k, v = operands(member, 33, 40)
    k = np.abs(k)
    q[0, 3, 0, -1] = q[0, 17, 0, 0] = value
    call.check(q, k, v)


def test_columns_in_groups_are_the_same_columns() -> None:
    """Of any number of columns of v, the first are computed as if there were no others."""
    for dim in (128, 192, 256):
        member = Member("bfloat16", dim, 256, "rtne")
        q, k, v = operands(member, 300, 200, (2, 1))
        whole, lse = Call(member, {"num_splits": 1}).run(q, k, v)
        for head_dim_v in (128, 8, 248):
            fewer = dataclasses.replace(member, head_dim_v=head_dim_v)
            columns = np.ascontiguousarray(v[..., :head_dim_v])
            part, its_lse = Call(fewer, {"num_splits": 1}).run(q, k, columns)
            assert part.tobytes() == np.ascontiguousarray(whole[..., :head_dim_v]).tobytes()
            assert its_lse.tobytes() == lse.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("head_dim", SIZES)
def test_every_size(head_dim: int) -> None:
    for i, head_dim_v in enumerate(SIZES):
        modes: tuple[tuple[str, str], ...] = (
            *(("bfloat16", mode) for mode in ("rtne", "rtna", "rtz")),
            ("float16", "rtne"),
        )
        dtype, mode = modes[(head_dim // 8 + i) % 4]
        member = Member(dtype, head_dim, head_dim_v, mode)
        for options in ({"num_splits": 1}, {"num_splits": 2, "causal": True}):
            Call(member, options).check(*operands(member, 37, 70, (2, 1)))


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ((12, 12), "head_dim=12 is not built (have 8..256 in steps of 8)"),
        ((264, 64), "head_dim=264 is not built (have 8..256 in steps of 8)"),
        ((64, 20), "head_dim_v=20 is not built (have 8..256 in steps of 8)"),
        ((128, 264), "head_dim_v=264 is not built (have 8..256 in steps of 8)"),
    ],
)
def test_other_sizes_are_refused(dims: tuple[int, int], message: str) -> None:
    shapes: list[tuple[int, ...]] = [(1, 2, 1, dims[0])] * 2 + [(1, 2, 1, dims[1])]
    arrays: list[Any] = [np.ones(shape, MEMBERS[0].element) for shape in shapes]
    with pytest.raises(UnsupportedProblem) as caught:
        amdattn.flash_attn_func(*arrays)
    assert message in str(caught.value)


def test_every_size_has_its_kernel() -> None:
    """The one that computes least, and its groups of columns."""
    for dims, kernel, groups in (
        *(((8, 8), "d64", 1), ((64, 64), "d64", 1), ((64, 72), "d128", 1), ((72, 64), "d128", 1)),
        *(((128, 136), "d128", 2), ((136, 128), "d192x128", 1), ((192, 192), "d192x128", 2)),
        *(((200, 128), "d256x128", 1), ((256, 256), "d256x128", 2), ((16, 256), "d128", 2)),
    ):
        plan = amdattn.plan_attention(
            1, 9, 9, 1, 1, dims[0], head_dim_v=dims[1], num_splits=1, device="MI300X"
        )
        assert plan.launches[0].kernel.name.startswith(f"attn_fwd_bf16_{kernel}_")
        assert dict(plan.launches[0].args)["column_groups"] == groups
