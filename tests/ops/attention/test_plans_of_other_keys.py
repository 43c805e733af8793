"""Plans that are made of one with another number of keys: every check is of their own numbers."""

from __future__ import annotations

import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn


def ones(*shape: int) -> Any:
    return np.ones(shape, ml_dtypes.bfloat16)


@pytest.mark.parametrize(("first", "then"), [((50, 40), (45, 36)), ((100, 60), (120, 62))])
@pytest.mark.parametrize("on_device", [False, True])
def test_sums_of_lengths(first: tuple[int, int], then: tuple[int, int], on_device: bool) -> None:
    device, q = amdattn.device_props(), ones(16, 1, 128)
    plans = {}
    for total, longest in (first, then):
        plans[total] = amdattn.plan_attention(
            2, 8, longest, 1, 1, 128, device=device, total_q=16, total_kv=total
        )
    total, longest = then
    k = ones(total, 1, 128)
    arrays = [amdattn.asarray(x) for x in (q, k, k)] if on_device else [q, k, k]
    rows = {"cu_seqlens_q": [0, 8, 16]}
    plans[total].run(*arrays, **rows, cu_seqlens_k=[0, total - longest, total])
    with pytest.raises(ValueError, match=f"end with at most {total}, the rows there are"):
        plans[total].run(*arrays, **rows, cu_seqlens_k=[0, longest, total + 1])
    with pytest.raises(ValueError, match=f"greatest length was given as {longest}"):
        plans[total].run(*arrays, **rows, cu_seqlens_k=[0, longest + 1, longest + 1])


def test_they_can_be_pickled() -> None:
    device = amdattn.device_props()
    plans = [amdattn.plan_attention(1, 1, keys, 2, 1, 128, device=device) for keys in (40, 41)]
    q = ones(1, 1, 2, 128)
    for plan, keys in zip(plans, (40, 41), strict=True):
        assert plan.input_names == ("q", "k", "v") and plan.specs()["k"].shape[1] == keys
        plan.run(q, ones(1, keys, 1, 128), ones(1, keys, 1, 128))
    for plan in plans:
        fresh = type(plan).of(plan)
        assert fresh.input_names == plan.input_names
        assert pickle.loads(pickle.dumps(fresh)).problem == plan.problem


@pytest.mark.parametrize("layout", ["", "nonsense", "BSHD"])
def test_a_layout_that_is_none(layout: str) -> None:
    device = amdattn.device_props()
    plan = amdattn.plan_attention(1, 4, 4, 1, 1, 128, device=device)
    q = ones(1, 4, 1, 128)
    with pytest.raises(ValueError, match=f"layout='{layout}' must be one of"):
        plan.run(q, q, q, layout=layout)


def test_sums_against_the_plan() -> None:
    plan = amdattn.plan_attention(1, 4, 4, 1, 1, 128, device=amdattn.device_props())
    q = ones(1, 4, 1, 128)
    with pytest.raises(ValueError, match="cu_seqlens_k was given, but the plan has total_q=0"):
        plan.run(q, q, q, cu_seqlens_k=[0, 4])
