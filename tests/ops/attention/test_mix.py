"""What planning takes sequences of several lengths to be, and when their tiles are done."""

from __future__ import annotations

import heapq
import random

import pytest

from amdattn.device import manifest
from amdattn.ops.attention.mix import scheduled_clk, tiles_of_mix
from amdattn.ops.attention.problem import AttentionProblem

KERNEL = next(
    row
    for row in manifest.kernels()
    if (row.arch, row.name) == ("gfx942", "attn_fwd_bf16_d128_q128_rtne")
)
ROWS = KERNEL.tile["q"]


@pytest.mark.parametrize("seed", range(20))
def test_the_dearest_first_on_the_slot_that_is_free(seed):
    rng = random.Random(seed)
    slots = rng.choice((1, 3, 38))
    costs = [(rng.choice((1.0, 2.5, 7.0, 40.0)), rng.randrange(100)) for _ in range(6)]
    costs.append((3.0, 1))
    levels = [0.0] * slots
    for cost in sorted((cost for cost, count in costs for _ in range(count)), reverse=True):
        heapq.heapreplace(levels, levels[0] + cost)
    assert scheduled_clk(costs, slots) == pytest.approx(max(levels))


def tiles(batch, rows, keys, total_q, total_kv, **options):
    return tiles_of_mix(
        AttentionProblem(
            batch, rows, keys, 8, 8, 128, total_q=total_q, total_kv=total_kv, **options
        ),
        KERNEL,
    )


def test_chunks_see_most_of_the_keys_before_them():
    """A causal mask hides half of a chunk from itself, and nothing of what is before it."""
    found = tiles(8, 512, 8192, 2048, 4 * 8192 - 1, causal=True, gaps=4)
    assert sum(some.count for some in found) == pytest.approx(4 * 512 / ROWS)
    assert all(8192 - 512 <= some.keys <= 8192 for some in found)
    assert max(some.keys for some in found) == 8192


def test_sequences_that_attend_to_themselves_see_half():
    found = tiles(4, 1024, 1024, 4096, 4096, causal=True)
    keys = sum(some.count * some.keys for some in found) / sum(some.count for some in found)
    assert keys == pytest.approx((1024 + ROWS) / 2)


def test_others_share_the_rest_of_rows_and_of_keys():
    """One chunk among sequences that decode: a row of each, and keys of its own number."""
    found = tiles(9, 512, 4096, 512 + 8, 4096 + 8 * 100)
    assert [(some.count, some.keys) for some in found] == [(4, 4096), (8 * (1 / ROWS + 0.5), 100)]


@pytest.mark.parametrize(
    ("window", "top_left", "most"), [((100, 0), False, 228), ((100, 20), True, 248)]
)
def test_windows_are_as_wide_as_a_tile_and_both_sides(window, top_left, most):
    found = tiles(2, 512, 8192, 1024, 8192 + 8000, window_size=window, top_left=top_left)
    assert max(some.keys for some in found) == pytest.approx(most, abs=1)


@pytest.mark.parametrize("gaps", [-1, 2, 3])
def test_gaps_are_some_of_the_sequences(gaps):
    with pytest.raises(ValueError, match=f"gaps={gaps} must be less than batch=2"):
        AttentionProblem(2, 4, 4, 1, 1, 64, total_q=4, total_kv=4, gaps=gaps)
    with pytest.raises(ValueError, match="gaps=1 must be"):
        AttentionProblem(2, 4, 4, 1, 1, 64, gaps=1)
