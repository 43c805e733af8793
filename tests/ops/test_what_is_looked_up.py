"""Facts by which plans are looked up: rows of products, families of attention calls."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from amdattn.arch.props import KNOWN_DEVICES
from amdattn.arrays.memory import Block, Pool
from amdattn.arrays.views import View
from amdattn.device import manifest, runtime
from amdattn.dtypes import as_dtype
from amdattn.errors import HipError
from amdattn.op import cache
from amdattn.ops.attention import (
    options as call_options,
    planning,
    plans as attention_plans,
)
from amdattn.ops.attention.problem import LAYOUTS, AttentionProblem
from amdattn.ops.gemm import call as gemm


def view(
    shape: tuple[int, int], strides: tuple[int, int], address: int = 256, host: bool = False
) -> View:
    array = np.zeros(shape) if host else None
    return View(
        address, shape, strides, as_dtype("bfloat16"), False, None, array, None if host else 0
    )


@pytest.mark.parametrize(
    ("of", "step", "aligned"),
    [
        (view((3, 64), (64, 1)), 64, True),
        (view((3, 64), (72, 1)), 72, True),
        (view((3, 64), (66, 1)), 66, True),
        (view((3, 64), (67, 1)), 67, False),  # rows begin at odd multiples of 2 bytes
        (view((3, 64), (0, 1)), 0, True),
        (view((3, 64), (-64, 1)), -64, False),
        (view((3, 64), (-1, 1)), -1, False),
        (view((1, 64), (77, 1)), 0, True),  # of one row any step is right
        (view((1, 64), (-1, 1)), 0, True),
        (view((3, 64), (64, 1), address=258), 64, False),
        (view((3, 64), (64, 1), address=260), 64, True),
        (view((3, 64), (2**24 - 8, 1)), 2**24 - 8, True),
        (view((3, 64), (2**24, 1)), 2**24, False),
        (view((3, 64), (100, 1), address=258, host=True), 64, True),  # staged compactly
        (view((3, 61), (64, 1), host=True), 61, False),
    ],
)
def test_rows_of_a_product(of: View, step: int, aligned: bool) -> None:
    assert gemm._row_step(of) == step
    assert gemm._is_aligned(of, is_by_k=False) is aligned


OPTIONS = {"dtype": "bfloat16", "return_lse": False, "sinks": False, "batch": 0, "longest": (0, 0)}


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_calls_that_differ_in_keys_alone_are_a_family(
    monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    """A cache that grows by a row does not describe its problem anew."""
    described = []
    original = attention_plans.attention_problem

    def describe(*given: Any, **named: Any) -> Any:
        described.append(given)
        return original(*given, **named)

    monkeypatch.setattr(attention_plans, "attention_problem", describe)
    lengths = {"batch": 1, "seq": 7, "head": 13}  # of heads that no other test has

    def shape(seq: int) -> tuple[int, ...]:
        return (*((lengths | {"seq": seq})[axis] for axis in LAYOUTS[layout]), 64)

    named = (*OPTIONS.values(), *call_options.Options())
    plans = [
        attention_plans.planned_for(0, "", shape(7), shape(n), shape(n), layout, *named)
        for n in (1001, 1002, 1003, 1001)
    ]
    assert [plan.problem.seqlen_kv for plan in plans] == [1001, 1002, 1003, 1001]
    assert len(described) == 1
    fresh = [dataclasses.replace(plan.problem) for plan in plans]
    assert [plan.problem for plan in plans] == fresh
    with pytest.raises(ValueError, match="seq"):
        attention_plans.planned_for(0, "", shape(7), shape(11), shape(12), layout, *named)
    attention_plans.planned_for(0, "", shape(8), shape(1001), shape(1001), layout, *named)
    assert len(described) == 3


def test_a_free_that_fails_does_not_keep_the_others() -> None:
    freed: list[int] = []

    class Device:
        def free(self, address: int) -> None:
            freed.append(address)
            if address != 3:
                raise HipError("hipFree", address, f"hipError{address}", "made up")

    pool = Pool(Device(), reuses=True)  # type: ignore[arg-type]
    for address in (1, 2, 3):
        pool._returned.append(Block(address, 512, 0))
    with pytest.raises(HipError, match="hipError1"):
        pool.empty()
    assert freed == [1, 2, 3] and pool.cached_bytes == 0
    pool.empty()
    pool._returned.append(Block(7, 512, 0))
    with pytest.raises(HipError, match="hipError7"):
        pool.empty()
    assert runtime.get().choice.kind == "virtual"


def test_selections_of_kernels_are_kept_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for all problems that are taken alike; a list of kernels may change and keeps none."""
    rows, props = manifest.kernels(), KNOWN_DEVICES["MI300X"]
    kept: dict[object, Any] = {}
    monkeypatch.setattr(planning, "_selections", kept)
    monkeypatch.setattr(planning, "_MAX_SELECTIONS", 3)
    selected: list[int] = []
    original = planning.nearest_first

    def select(*given: Any) -> Any:
        selected.append(1)
        return original(*given)

    monkeypatch.setattr(planning, "nearest_first", select)

    def plan(head_dim: int, of: Any = rows) -> int:
        planning.plan_attention(AttentionProblem(1, 30, 40, 1, 1, head_dim), props, of)
        return len(kept)

    assert [plan(n) for n in (64, 128, 192)] == [1, 2, 3] and len(selected) == 3
    assert [plan(n) for n in (64, 128, 192)] == [3, 3, 3] and len(selected) == 3
    assert plan(256) == 1 and len(selected) == 4
    assert plan(64, list(rows)) == 1 and len(selected) == 5
    found: dict[object, Any] = {}
    for i in range(65):
        cache.keep(found, i, (i, i))  # type: ignore[arg-type]
        assert len(found) == (i + 1 if i < 64 else 1)
