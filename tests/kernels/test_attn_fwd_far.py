"""Operands and partial results of the attention forward family behind 4 GiB and 2**31 elements."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn.device import runtime
from tests.support.attention.family import (
    MEMBERS,
    NARROW,
    Array,
    Call,
    Member,
    operands,
    placed,
    some_by_default,
    sums,
)

MOST = 2**25 - 8  # elements from a row of K or V to the next, that blocks are loaded with
MOST_NARROW = 2**22 - 8  # the same of narrow windows
NEAR = 2**13  # elements between the operands that share a memory: more than a row's heads


def upload(to: amdattn.DeviceArray, host: Array) -> None:
    part = np.ascontiguousarray(host)
    runtime.get().upload(to.address, part.ctypes.data, part.nbytes)
    amdattn.synchronize()


def masking_of(member: Member) -> dict[str, Any]:
    if member.is_narrow:
        return {"window_size": (90, 10)}
    return {"causal": True}


@pytest.mark.parametrize("axis", ["batch", "head", "seq"])
@pytest.mark.parametrize("member", some_by_default([*MEMBERS, *NARROW[:4]]), ids=str)
def test_strides(member: Member, axis: str) -> None:
    """Neighbours up to 2**29 bytes apart: the last lie more than 4 GiB behind the first.

    Rows of K and V are as far apart as blocks of them are loaded: the last one of a few hundred
    lies 2**31 elements behind the first.
    """
    far = 2**28 + 8 * 256
    if axis == "seq":
        far = MOST_NARROW if member.is_narrow else MOST
    count = -(-(2**31 + 2**26) // far) + 1
    batch, seqlen, heads = {"batch": (count, 3, 1), "head": (1, 3, count), "seq": (1, count, 1)}[
        axis
    ]
    q, k, v = operands(member, seqlen, seqlen, (heads, heads), batch)
    row = max(member.head_dim, member.head_dim_v)
    strides = {name: far if name == axis else row for name in ("batch", "seq", "head")}
    memory = amdattn.empty(((count - 1) * far + 2**17,), member.dtype)
    shapes = q.shape, k.shape, v.shape, (*q.shape[:-1], member.head_dim_v)
    arrays = [
        placed(memory, shape, (*(strides[name] for name in ("batch", "seq", "head")), 1), NEAR * i)
        for i, shape in enumerate(shapes, 1)
    ]
    assert arrays[1].view().extent()[1] - arrays[1].address > 2**32
    indices = list(np.ndindex(batch, seqlen, heads))
    for array, x in zip(arrays, (q, k, v), strict=False):
        for index in indices:
            upload(array[index], x[index])
    lse_far = 2**28 + 64  # floats
    lse_memory = amdattn.empty((lse_far * batch * heads,), "float32")
    for splits in (0,) if member.is_narrow else (1, 2):
        call = Call(member, {**masking_of(member), "num_splits": splits})
        expected, expected_lse = call.check(q, k, v)
        lse = placed(lse_memory, expected_lse.shape, (lse_far * heads, lse_far, 1))
        call.plan(q, k, v).run(*arrays, lse=lse)
        out = np.stack([arrays[3][index].numpy() for index in indices]).reshape(expected.shape)
        assert out.tobytes() == expected.tobytes()
        for index in np.ndindex(batch, heads):
            assert lse[index].numpy().tobytes() == expected_lse[index].tobytes()


@pytest.mark.parametrize("member", some_by_default([*MEMBERS, *NARROW[:4]]), ids=str)
def test_rows_of_sequences(member: Member) -> None:
    """A sequence behind 2**33 elements and more of q, k, v and the results.

    They belong to sequences without work: one without rows, one without keys.
    """
    rows, keys, heads = 40, 70, 2
    before = 2**33 // member.head_dim_v
    lengths = (0, before, rows), (before, 0, keys)
    near = operands(member, rows, keys, (heads, 1), None)
    arrays = []
    for x in near:
        shape = (before + x.shape[0], *x.shape[1:])
        arrays.append(amdattn.empty(shape, member.dtype))
        upload(arrays[-1][before:], x)
    cu_seqlens = [amdattn.asarray(sums(of_name)) for of_name in lengths]
    out = amdattn.empty((before + rows, heads, member.head_dim_v), member.dtype)
    lse = amdattn.empty((heads, before + rows), "float32")
    for splits in (0,) if member.is_narrow else (1, 2):
        options = {"causal": True, "num_splits": splits}
        expected, expected_lse = Call(member, options, lengths=((rows,), (keys,))).check(*near)
        amdattn.flash_attn_varlen_func(
            *arrays, *cu_seqlens, rows, keys, round_mode=member.mode, out=out, lse=lse, **options
        )
        assert out[before:].numpy().tobytes() == expected.tobytes()
        for head in range(heads):
            assert lse[head, before:].numpy().tobytes() == expected_lse[head].tobytes()
        assert (out[:rows].numpy() == 0).all() and (lse[0, :rows].numpy() == -np.inf).all()


def partial_results(member: Member) -> None:
    """The last of many sequences, all others of a row and a key, in 16 parts each."""
    rows, keys, splits = 40, 600, 16
    q, k, v = operands(member, rows, keys, (1, 1), None)
    options = {"num_splits": splits}
    expected, expected_lse = Call(member, options, lengths=((rows,), (keys,))).check(q, k, v)
    plan = Call(member, options).plan(q[None], k[None], v[None])
    of_tile = plan.workspace["partial_o"].nbytes
    count = 2**33 // of_tile + 2  # 2**31 float32
    others = count - 1
    lengths = (*(1,) * others, rows), (*(1,) * others, keys)
    arrays = tuple(
        amdattn.asarray(np.concatenate([np.broadcast_to(x[:1], (others, *x.shape[1:])), x]))
        for x in (q, k, v)
    )
    totals = {"total_q": others + rows, "total_kv": others + keys}
    problem = dataclasses.replace(plan.problem, batch=count, **totals)
    planned_far = amdattn.plan_attention(
        **{field.name: getattr(problem, field.name) for field in dataclasses.fields(problem)},
        device=amdattn.device_props(),
    )
    assert planned_far.workspace["partial_o"].nbytes > 2**33
    cu_seqlens = [amdattn.asarray(sums(of_name)) for of_name in lengths]
    out, lse = planned_far.run(*arrays, cu_seqlens_q=cu_seqlens[0], cu_seqlens_k=cu_seqlens[1])
    assert out.numpy()[others:].tobytes() == expected.tobytes()
    assert lse.numpy()[:, others:].tobytes() == expected_lse.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("member", [m for m in MEMBERS if m.mode == "rtne"], ids=str)
def test_partial_results(member: Member) -> None:
    partial_results(member)


@pytest.mark.slow
@pytest.mark.parametrize("member", [m for m in MEMBERS if m.mode != "rtne"], ids=str)
def test_partial_results_of_other_modes(member: Member) -> None:
    partial_results(member)
