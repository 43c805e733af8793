"""The list schedule, round by round, is that of one workgroup after the other."""

import heapq
import random

from amdattn.ops.attention.kv_split import _levels_after


def one_by_one(levels, parts):
    levels = sorted(levels)
    for cost in parts:
        heapq.heapreplace(levels, levels[0] + cost)
    return sorted(levels)


def test_rounds():
    rng = random.Random(4)
    for _ in range(1500):
        spread = rng.choice((0.0, 0.1, 5.0, 400.0))
        levels = sorted(rng.random() * spread for _ in range(rng.randrange(1, 12)))
        kinds = [rng.uniform(1, 100) for _ in range(rng.randrange(1, 4))]
        if rng.random() < 0.3:
            kinds = [0.1, 0.1 + 2**-50]
        parts = [rng.choice(kinds) for _ in range(rng.randrange(60))]
        before = levels.copy()
        assert _levels_after(levels, parts) == one_by_one(levels, parts)
        assert levels == before
