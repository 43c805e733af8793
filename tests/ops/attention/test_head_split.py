"""Tiles of several heads, whole and in parts."""

import dataclasses

import pytest
from hypothesis import given, settings, strategies as st

from amdattn.arch.props import as_device_props
from amdattn.ops.attention import head_split, select
from amdattn.ops.attention.planning import plan_attention
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.ops.attention.work import WorkMap
from tests.support.attention.rows import ROWS, forward
from tests.support.problems import attention_problems

MI300X = as_device_props("MI300X")
NARROW = forward(
    head_dim=128,
    q_tile=16,
    kv_tile=16,
    max_window_keys=129,
    max_tile_heads=4,
    max_num_splits=1,
    max_workgroups=2**26,
)
NARROW = dataclasses.replace(NARROW, vgpr=256, lds_bytes=0, workgroup=(64, 1, 1))
PROBLEMS = attention_problems(
    batch=(1, 3),
    seqlen_q=(1, 200),
    seqlen_kv=(1, 300),
    heads_kv=(1, 9),
    group=st.sampled_from([2, 4, 6, 8, 12]),
    window_size=st.tuples(st.integers(0, 100), st.integers(0, 28)),
)


@settings(deadline=None)
@given(problem=PROBLEMS, split=st.floats(0, 1), log2_parts=st.integers(0, 2))
def test_every_head_of_every_tile_once(problem, split, log2_parts):
    tile_heads = select.tile_heads(NARROW, problem)
    parts = min(2**log2_parts, tile_heads)
    tiles = WorkMap.of_kernel(problem, NARROW).tiles
    work = WorkMap.of_kernel(problem, NARROW, int(tiles * split), parts)
    seen = []
    for workgroup in range(work.num_workgroups):
        item = work.item(workgroup)
        assert item.part == -1
        assert item.heads == (tile_heads if workgroup < work.whole_tiles else tile_heads // parts)
        group = problem.num_heads_q // problem.num_heads_kv
        assert item.head // group == (item.head + item.heads - 1) // group
        seen += [(item.batch, item.head + i, item.q_begin) for i in range(item.heads)]
    assert sorted(seen) == [
        (batch, head, q_begin)
        for batch in range(problem.batch)
        for head in range(problem.num_heads_q)
        for q_begin in range(0, problem.seqlen_q, 16)
    ]


@pytest.mark.parametrize("seqlen", [64, 1024, 4096, 8192, 100_000])
def test_the_choice_is_the_cheapest_considered(seqlen):
    problem = AttentionProblem(1, seqlen, seqlen, 64, 8, 128, window_size=(127, 0))
    slots = 8 * MI300X.num_cus
    choice = head_split.choose(problem, NARROW, MI300X, slots)
    tiles = WorkMap.of_kernel(problem, NARROW).tiles
    assert choice.best.clk == min(split.clk for split in choice.considered)
    assert choice.considered[0].parts == 1 and choice.considered[0].tiles == 0
    for split in choice.considered:
        assert (tiles - split.tiles) % slots == 0 or split.parts == 1
        assert split.parts in (1, 2, 4)


def test_plans_without_partial_results():
    """Parts of heads need no workspace and no merge; wide windows go to the family."""
    for window, chosen in (((127, 0), NARROW), ((129, 0), ROWS[0])):
        problem = AttentionProblem(1, 4096, 4096, 64, 8, 128, window_size=window)
        plan = plan_attention(problem, MI300X, (*ROWS, NARROW))
        assert plan.forward.kernel == chosen
        if chosen is NARROW:
            assert len(plan.launches) == 1 and plan.workspace.total_bytes == 0
            args = dict(plan.forward.args)
            assert args["partial_o"] == args["partial_max_sum"] == 0
            assert "of 4 heads" in dict(plan.reasons)["tiles"]


def test_a_call_that_fixes_the_parts_is_not_compared():
    problem = AttentionProblem(1, 512, 512, 8, 1, 128, window_size=(127, 0), num_splits=1)
    assert plan_attention(problem, MI300X, (*ROWS, NARROW)).forward.kernel == ROWS[0]
