"""A plan takes little work, however many kernels are shipped.

What is counted are calls of functions, which another load of the machine does not change: some 10
of them take a microsecond or two. docs/studies/launch-overhead.md has times.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from types import FrameType

import amdattn
from amdattn.arch.props import KNOWN_DEVICES
from amdattn.device import manifest
from amdattn.ops.attention import select
from amdattn.ops.attention.problem import AttentionProblem

NEVER_SEEN = itertools.count(100)


def calls_of(call: Callable[[], object]) -> int:
    """Functions that it calls, of Python and of C, once what comes first is behind it."""
    call()
    count = 0

    def see(_frame: FrameType, event: str, _what: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        call()
    finally:
        sys.setprofile(before)
    return count


def test_choice_of_a_kernel() -> None:
    rows, props = manifest.kernels(), KNOWN_DEVICES["MI300X"]
    for options in ({}, {"dtype": "float16", "causal": True}, {"round_mode": "rtz", "sinks": True}):
        problem = AttentionProblem(2, 8192, 8192, 32, 8, 128, **options)  # type: ignore[arg-type]
        for choose in (select.select, select.support):
            assert calls_of(lambda f=choose, p=problem: f(rows, p, props)) < 1200  # type: ignore[misc]


def test_plan_of_attention() -> None:
    """Seen before, as every call of a model after its first ones; and new."""
    facts = (2, 8192, 8192, 32, 8, 128)
    assert calls_of(lambda: amdattn.plan_attention(*facts, device="MI300X")) < 200
    new = calls_of(
        lambda: amdattn.plan_attention(
            2, next(NEVER_SEEN), 8192, 32, 8, 128, num_splits=1, device="MI300X"
        )
    )
    assert new < 9000


def test_plan_of_a_product() -> None:
    assert calls_of(lambda: amdattn.plan_gemm(4, 8192, 4096, device="MI300X")) < 200
    for device in ("MI300X", "MI355X"):
        new = calls_of(lambda to=device: amdattn.plan_gemm(4, next(NEVER_SEEN), 4096, device=to))  # type: ignore[misc]
        assert new < 4000
