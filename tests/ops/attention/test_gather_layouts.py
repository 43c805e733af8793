"""Rows of K and V that are gathered first, told by the sequence's axis of either layout."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import amdattn

AXES = {"bshd": {"seq": 1, "head": 2}, "bhsd": {"head": 1, "seq": 2}}
SIZES = {"seq": 40, "head": 3}


def falling(x, axis):
    """The same values, in the order of falling addresses along an axis; on the device."""
    back = (slice(None),) * axis + (slice(None, None, -1),)
    return amdattn.asarray(np.ascontiguousarray(x[back]))[back]


@pytest.mark.parametrize("layout", AXES)
@pytest.mark.parametrize("which", ["", "k", "v", "kv"])
@pytest.mark.parametrize("axis", ["seq", "head"])
def test_only_rows_of_the_sequence_are_gathered(layout, which, axis, launches):
    axes = AXES[layout]
    order = sorted(axes, key=axes.get)
    rng = np.random.default_rng(5)
    shape = (1, *(SIZES[name] for name in order), 128)
    q, k, v = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for _ in range(3))
    expected = amdattn.flash_attn_func(q, k, v, layout=layout, num_splits=1)
    launches.clear()
    given = {name: amdattn.asarray(x) for name, x in (("k", k), ("v", v))}
    given |= {name: falling({"k": k, "v": v}[name], axes[axis]) for name in which}
    found = amdattn.flash_attn_func(
        amdattn.asarray(q), given["k"], given["v"], layout=layout, num_splits=1
    )
    assert found.numpy().tobytes() == expected.tobytes()
    gathered = which if axis == "seq" else ""
    assert len(launches) == len(gathered) + 1
    plan = amdattn.plan_attention(
        *(1, SIZES["seq"], SIZES["seq"], SIZES["head"], SIZES["head"], 128),
        device=amdattn.device_props(),
    )
    assert plan.to_gather(given["k"].view(), given["v"].view(), layout) == gathered


@pytest.mark.parametrize("layout", AXES)
def test_a_single_row_needs_no_stride(layout):
    """Whatever it says of the way to the next row, there is none."""
    axes = AXES[layout]
    shape = [1, 1, 1, 128]
    shape[axes["head"]] = 3
    strides = [3 * 128, 128, 128, 1]
    strides[axes["seq"]] = -8
    memory = amdattn.empty((3, 128))
    k = amdattn.DeviceArray(
        memory.address, tuple(shape), tuple(strides), memory.view().dtype, memory._memory
    ).view()
    plan = amdattn.plan_attention(1, 1, 1, 3, 3, 128, device=amdattn.device_props())
    assert plan.to_gather(k, k, layout) == ""
