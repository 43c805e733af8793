"""Where the operands of attention lie: packed, with gaps, far apart, behind 2**31 elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernels.family import ANY_STRIDES, MAIN, MEMBERS, Call, Member, operands, placed

import amdattn

MOST = 2**25 - 8  # elements from a row of K or V to the next, that blocks are loaded with
members = pytest.mark.parametrize(
    "member", [m for m in MEMBERS if m.mode == "rtne"] + [ANY_STRIDES], ids=str
)


def masking_of(member: Member) -> dict[str, Any]:
    return {} if member.kernel else {"causal": True}


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

        for splits in (1,) if member.kernel else (1, 2):
            call = Call(member, {**masking_of(member), "num_splits": splits}, layout)
            call.check(*parts(packed), parts(device))


@members
def test_skipping_strides(member: Member) -> None:
    """Rows of q from the last to the first; every second row and head of k; a v of one row."""
    whole = operands(member, 140, 140, (4, 2), 2)

    def taken(q: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
        return q[::-1, ::-1], k[:, ::2, ::-1], v[:, 1::2]

    call = Call(member, {**masking_of(member), "num_splits": 1})
    call.check(*taken(*whole), taken(*map(amdattn.asarray, whole)))


def test_negative_strides_of_keys() -> None:
    whole = operands(MAIN, 70, 140)

    def taken(q: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
        return q, k[:, 139:69:-1], v[:, ::-2]

    Call(ANY_STRIDES).check(*taken(*whole), taken(*map(amdattn.asarray, whole)))


@pytest.mark.parametrize("which", ["k", "v"])
@pytest.mark.parametrize("stride", [-MAIN.head_dim, 2**25])
def test_strides_that_blocks_cannot_be_loaded_with(which: str, stride: int) -> None:
    """No kernel with masks takes these, and the message says which argument it is."""
    arrays = dict(zip("qkv", map(amdattn.asarray, operands(MAIN, 20, 2)), strict=True))
    memory = amdattn.empty((2**25 + 1024,))
    arrays[which] = placed(memory, (1, 2, 1, 128), (0, stride, 128, 1), 512)
    with pytest.raises(
        ValueError, match=rf"{which} has seq stride {stride}, which must be in 0\.\."
    ):
        amdattn.flash_attn_func(*arrays.values(), causal=True, top_left=True)


@pytest.mark.parametrize("which", ["k", "v"])
def test_rows_that_overlap(which: str) -> None:
    """Rows 8 elements apart: an error on the device; on the host they are made compact."""
    q, k, v = operands(MAIN, 20, 70)
    column = np.random.default_rng(1).standard_normal(69 * 8 + 128, np.float32)
    column = column.astype(MAIN.element)
    overlapping = np.lib.stride_tricks.as_strided(column, (1, 70, 1, 128), (0, 16, 0, 2))
    host = {"q": q, "k": k, "v": v, which: overlapping}
    device = {name: amdattn.asarray(x) for name, x in host.items() if name != which}
    device[which] = placed(amdattn.asarray(column), (1, 70, 1, 128), (0, 8, 128, 1))
    with pytest.raises(ValueError, match=f"{which} has seq stride 8, which must be 0 or at least"):
        amdattn.flash_attn_func(*(device[name] for name in "qkv"), causal=True)
    got = amdattn.flash_attn_func(*(host[name] for name in "qkv"), causal=True)
    compact = [np.ascontiguousarray(host[name]) for name in "qkv"]
    assert got.tobytes() == amdattn.flash_attn_func(*compact, causal=True).tobytes()
