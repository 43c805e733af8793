"""Where the operands of attention lie: packed, with gaps, far apart, behind 2**31 elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn.device import runtime
from tests.support.attention.family import (
    MAIN,
    MEMBERS,
    PADDED,
    Call,
    Member,
    operands,
    placed,
    some_by_default,
)

MOST = 2**25 - 8  # elements from a row of K or V to the next, that blocks are loaded with
members = pytest.mark.parametrize(
    "member", some_by_default([m for m in MEMBERS if m.mode == "rtne"]), ids=str
)


@members
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_packed(member: Member, layout: str) -> None:
    """q, k and v are slices of one array, at every place where projections leave them."""
    shape = (2, 100, 3, member.head_dim) if layout == "bshd" else (2, 3, 100, member.head_dim)
    rng = np.random.default_rng(7)
    for axis in (1, 2, 3):
        packed = rng.standard_normal((*shape[:axis], 3, *shape[axis:]), np.float32)
        packed = packed.astype(member.element)
        device = amdattn.asarray(packed)

        def parts(x: Any, axis: int = axis) -> tuple[Any, Any, Any]:
            q, k, v = (x[(slice(None),) * axis + (i,)] for i in range(3))
            return q, k, v[..., : member.head_dim_v]

        for splits in (1, 2):
            call = Call(member, {"causal": True, "num_splits": splits}, layout)
            call.check(*parts(packed), parts(device))


@members
def test_skipping_strides(member: Member) -> None:
    """Rows of q from the last to the first; every second row and head of k; a v of one row."""
    whole = operands(member, 140, 140, (4, 2), 2)

    def taken(q: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
        return q[::-1, ::-1], k[:, ::2, ::-1], v[:, 1::2]

    call = Call(member, {"causal": True, "num_splits": 1})
    call.check(*taken(*whole), taken(*map(amdattn.asarray, whole)))


def put(memory: amdattn.DeviceArray, x: Any) -> None:
    """Copy a host array to a view that may have gaps."""
    device = runtime.get()
    for index in np.ndindex(x.shape[:-1]):
        row = np.ascontiguousarray(x[index])
        device.upload(memory[index].address, row.ctypes.data, row.nbytes)
        amdattn.synchronize()


@pytest.mark.parametrize("which", ["k", "v", "kv"])
@pytest.mark.parametrize("stride", [-1032, 2**25, -(2**25), 2**31 + 8])
def test_strides_that_blocks_cannot_be_loaded_with(which: str, stride: int) -> None:
    """Rows are gathered first: the same bits as of compact operands. 2**31 elements are 4 GiB."""
    keys = 3 if stride > 2**30 else 9
    q, k, v = operands(MAIN, 20, keys, (2, 2))
    options = {"causal": True, "top_left": True, "return_lse": True}
    expected = amdattn.flash_attn_func(q, k, v, **options)
    memory = amdattn.empty(((keys - 1) * abs(stride) + 2**15,))
    arrays = dict(zip("qkv", map(amdattn.asarray, (q, k, v)), strict=True))
    for n, name in enumerate(which):
        x = {"k": k, "v": v}[name]
        start = 2**14 * n + max(0, -(keys - 1) * stride)
        arrays[name] = placed(memory, x.shape, (0, stride, 128 * 4, 1), start)
        put(arrays[name], x)
    found = amdattn.flash_attn_func(*arrays.values(), **options)
    for one, other in zip(found, expected, strict=True):
        assert one.numpy().tobytes() == other.tobytes()


@pytest.mark.parametrize("member", [MAIN, MEMBERS[7], MEMBERS[12], *PADDED[::4]], ids=str)
def test_gathered(member: Member) -> None:
    """In all layouts, with parts, sequences of several lengths and groups of heads."""
    for layout in ("bshd", "bhsd"):
        q, k, v = operands(member, 40, 150, (4, 2), 2, layout)
        call = Call(member, {"gather": "kv", "num_splits": 2}, layout)
        seq = 1 if layout == "bshd" else 2
        step = (slice(None),) * seq + (slice(None, None, -1),)
        falling = [amdattn.asarray(x[step].copy())[step] for x in (k, v)]
        call.check(q, k, v, (amdattn.asarray(q), *falling))
    lengths = (20, 0, 37), (64, 9, 0)
    q, k, v = operands(member, sum(lengths[0]), sum(lengths[1]), (2, 1), None)
    falling = [amdattn.asarray(x[::-1].copy())[::-1] for x in (k, v)]
    for gather in ("k", "v", "kv"):
        call = Call(member, {"gather": gather, "causal": True}, lengths=lengths)
        mixed = [
            on if name in gather else amdattn.asarray(x)
            for name, on, x in zip("kv", falling, (k, v), strict=True)
        ]
        call.check(q, k, v, (amdattn.asarray(q), *mixed))


def test_a_plan_without_gathering_says_so() -> None:
    arrays = [amdattn.asarray(x) for x in operands(MAIN, 20, 40)]
    arrays[1] = arrays[1][:, ::-1]
    plan = Call(MAIN).plan(*arrays)
    with pytest.raises(ValueError, match=r"k has seq stride -128, which must be in 0\.\."):
        plan.run(*arrays)
    text = amdattn.explain(1, 20, 40, 1, 1, 128, gather="k", device="MI300X")
    assert "gather_rows" in text and "k, 10240 bytes" in text
    with pytest.raises(ValueError, match="gather='q' must be one of"):
        amdattn.explain(1, 20, 40, 1, 1, 128, gather="q", device="MI300X")
    with pytest.raises(amdattn.UnsupportedProblem, match=r"batch=70000 with gather='kv'"):
        amdattn.explain(70000, 20, 40, 1, 1, 128, gather="kv", device="MI300X")
    assert not amdattn.supports(70000, 20, 40, 1, 1, 128, gather="kv", device="MI300X")


@pytest.mark.parametrize("which", ["k", "v"])
def test_rows_that_overlap(which: str) -> None:
    """Rows 8 elements apart are gathered, or made compact on the host."""
    q, k, v = operands(MAIN, 20, 70)
    column = np.random.default_rng(1).standard_normal(69 * 8 + 128, np.float32)
    column = column.astype(MAIN.element)
    overlapping = np.lib.stride_tricks.as_strided(column, (1, 70, 1, 128), (0, 16, 0, 2))
    host = {"q": q, "k": k, "v": v, which: overlapping}
    device = {name: amdattn.asarray(x) for name, x in host.items() if name != which}
    device[which] = placed(amdattn.asarray(column), (1, 70, 1, 128), (0, 8, 128, 1))
    compact = [np.ascontiguousarray(host[name]) for name in "qkv"]
    expected = amdattn.flash_attn_func(*compact, causal=True)
    for arrays in (host, device):
        found = amdattn.flash_attn_func(*(arrays[name] for name in "qkv"), causal=True)
        assert (found if arrays is host else found.numpy()).tobytes() == expected.tobytes()
    plan = Call(MAIN, {"causal": True}).plan(q, k, v)
    with pytest.raises(ValueError, match=f"{which} has seq stride 8, which must be 0 or at least"):
        plan.run(*(device[name] for name in "qkv"))
