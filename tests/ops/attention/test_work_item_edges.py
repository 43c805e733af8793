"""Work items at the edges of tiles and blocks, from the masks themselves: what chance may miss."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from amdattn.arch.props import KNOWN_DEVICES
from amdattn.ops.attention import kv_split
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.ops.attention.work import WorkMap, visible_blocks
from tests.support.attention.masked import mask
from tests.support.attention.rows import forward

TILE_Q, TILE_KV = 96, 32
KERNEL = forward(q_tile=TILE_Q, kv_tile=TILE_KV)
MI300X = KNOWN_DEVICES["MI300X"]
ROWS = (1, 95, 96, 97, 191, 192, 193)
KEYS = (1, 31, 32, 33, 63, 64, 65, 96, 97, 224)
MASKS = [
    {"causal": causal, "window_size": window}
    for causal in (False, True)
    for window in ((-1, -1), (0, 0), (31, -1), (32, 0), (-1, 31), (64, 32), (1, 1))
]


def edges(top_left):
    for masking, rows, keys in itertools.product(MASKS, ROWS, KEYS):
        problem = AttentionProblem(1, rows, keys, 1, 1, 128, top_left=top_left, **masking)
        yield problem, mask(rows, keys, top_left=top_left, **masking)


@pytest.mark.parametrize("top_left", [False, True])
def test_blocks_that_are_gone_over(top_left):
    """From the first to the last that a row of the tile sees: none less, none more."""
    for problem, seen in edges(top_left):
        begins = range(0, problem.seqlen_q, TILE_Q)
        found = visible_blocks(problem, TILE_Q, TILE_KV, begins)
        for q_begin, (begin, end) in zip(begins, found, strict=True):
            (keys,) = seen[q_begin : q_begin + TILE_Q].any(axis=0).nonzero()
            if keys.size:
                expected = keys[0] // TILE_KV, keys[-1] // TILE_KV + 1
                assert (begin, end) == expected, (problem, q_begin)
            else:
                assert begin <= end <= begin + 1, (problem, q_begin)


@pytest.mark.parametrize("top_left", [False, True])
def test_flops(top_left):
    for problem, seen in edges(top_left):
        assert problem.flops == 2 * int(seen.sum()) * 256, problem


@pytest.mark.parametrize("top_left", [False, True])
def test_the_normalised_window_is_the_mask(top_left):
    """A side that reaches beyond the farthest key is none."""
    for problem, seen in edges(top_left):
        left, right = problem.window
        same = mask(
            problem.seqlen_q, problem.seqlen_kv, window_size=(left, right), top_left=top_left
        )
        np.testing.assert_array_equal(same, seen)
        if seen.all():
            assert (left, right) == (-1, -1), problem


@pytest.mark.parametrize("blocks", [1, 2, 3, 15, 16, 17, 31, 33])
@pytest.mark.parametrize("parts", [1, 2, 3, 7, 15, 16])
def test_parts_of_a_tile(blocks, parts):
    """They follow each other without a gap, differ by at most a block, and cost as planned."""
    problem = AttentionProblem(1, TILE_Q, blocks * TILE_KV, 1, 1, 128)
    work = WorkMap(problem, TILE_Q, TILE_KV, 0, parts)
    items = [work.item(n) for n in range(work.num_workgroups)]
    assert [item.part for item in items] == list(range(parts))
    assert [item.kv_begin for item in items] == [blocks * n // parts for n in range(parts)]
    assert [item.kv_end for item in items] == [blocks * (n + 1) // parts for n in range(parts)]
    costs = kv_split.Costs(problem, KERNEL)
    of_items = sorted(costs._of(item.kv_end - item.kv_begin) for item in items)
    assert sorted(costs.of_range(0, 1, parts)) == of_items


@pytest.mark.parametrize("whole", [0, 1, 2, 3])
def test_whole_tiles_before_parts(whole):
    """The first workgroup behind the whole tiles is the first part of the next tile."""
    problem = AttentionProblem(1, TILE_Q, 4 * TILE_KV, 3, 3, 128)
    work = WorkMap(problem, TILE_Q, TILE_KV, whole, 2)
    items = [work.item(n) for n in range(work.num_workgroups)]
    expected = [(head, 0, 4, -1) for head in range(whole)]
    for head in range(whole, 3):
        part = 2 * (head - whole)
        expected += [(head, 0, 2, part), (head, 2, 4, part + 1)]
    assert sorted((i.head, i.kv_begin, i.kv_end, i.part) for i in items) == sorted(expected)


@pytest.mark.parametrize(
    ("heads", "limit", "parts"),
    [(152, 2, 2), (152, 3, 2), (38, 8, 8), (19, 16, 16), (19, 15, 15), (304, 16, 1), (38, 1, 1)],
)
def test_the_most_parts_that_help(heads, limit, parts):
    """As many as there are slots for each tile, the limit included."""
    problem = AttentionProblem(1, TILE_Q, 65536, heads, heads, 128)
    best = kv_split.choose(problem, KERNEL, MI300X, 304, limit).best
    assert (best.tiles, best.parts) == ((0, 1) if parts == 1 else (heads, parts))


@pytest.mark.parametrize("masking", [{}, {"causal": True}, {"window_size": (200, 31)}], ids=str)
def test_sums_of_costs(masking):
    """Of all tiles before one, at the ends of runs of equal ones too."""
    problem = AttentionProblem(2, 5 * TILE_Q + 1, 700, 5, 5, 128, **masking)
    costs = kv_split.Costs(problem, KERNEL)
    each = costs.of_range(0, costs.num_tiles)
    assert len(each) == costs.num_tiles
    for tile in range(costs.num_tiles + 1):
        assert costs.sum_before(tile) == pytest.approx(sum(each[:tile]))


def test_no_more_parts_than_blocks():
    problem = AttentionProblem(1, TILE_Q, 5 * TILE_KV, 1, 1, 128)
    choice = kv_split.choose(problem, KERNEL, MI300X, 304, 16)
    assert all(split.parts <= 5 for split in choice.considered)
    longer = dataclasses.replace(problem, seqlen_kv=6 * TILE_KV + 1)
    assert kv_split.Costs(longer, KERNEL).most_blocks == 7


@pytest.mark.parametrize("heads", [1, 2, 3, 4])
def test_heads_of_a_tile(heads):
    """Every head once, whatever the parts."""
    problem = AttentionProblem(2, 20, 50, 4 * heads, heads, 128)
    for parts in (1, 2, 4):
        for whole in range(2 * heads + 1):
            work = WorkMap(problem, TILE_Q, TILE_KV, whole, parts, tile_heads=4)
            items = [work.item(n) for n in range(work.num_workgroups)]
            held = [(i.batch, i.head + n) for i in items for n in range(i.heads)]
            assert sorted(held) == [(b, h) for b in range(2) for h in range(4 * heads)]
            assert all((i.kv_begin, i.kv_end) == (0, 2) for i in items)
