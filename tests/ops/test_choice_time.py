"""The choice of a kernel takes microseconds, however many are shipped.

Bounds are several times what an idle CPU needs: docs/studies/launch-overhead.md.
"""

import itertools
import timeit

import amdattn
from amdattn.arch.props import KNOWN_DEVICES
from amdattn.device import manifest
from amdattn.ops.attention import select
from amdattn.ops.attention.problem import AttentionProblem

MI300X = KNOWN_DEVICES["MI300X"]
NEVER_SEEN = itertools.count(100)


def microseconds(call, number=200):
    """The least of a few rounds: other load only adds."""
    return min(timeit.repeat(call, number=number, repeat=9)) / number * 1e6


def test_choice_of_a_kernel():
    rows = manifest.kernels()
    for options in ({}, {"dtype": "float16", "causal": True}, {"round_mode": "rtz", "sinks": True}):
        problem = AttentionProblem(2, 8192, 8192, 32, 8, 128, **options)
        assert microseconds(lambda p=problem: select.select(rows, p, MI300X)) < 500
        assert microseconds(lambda p=problem: select.support(rows, p, MI300X)) < 500


def test_plan_of_a_problem():
    """Seen before, as every call of a model after its first ones; and new."""
    facts = (2, 8192, 8192, 32, 8, 128)
    seen = microseconds(lambda: amdattn.plan_attention(*facts, device="MI300X"))
    new = microseconds(
        lambda: amdattn.plan_attention(
            2, next(NEVER_SEEN), 8192, 32, 8, 128, num_splits=1, device="MI300X"
        )
    )
    print(f"{seen:.0f} us of a plan seen before, {new:.0f} us of a new one")
    assert seen < 200 and new < 3000
