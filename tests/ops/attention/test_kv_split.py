"""The planner of work items: nothing lost or done twice, and no better way by brute force."""

import dataclasses
import heapq
import re
import time

import pytest
from hypothesis import assume, given, settings, strategies as st

from amdattn.arch.attention_kernels import ATTENTION_KERNELS
from amdattn.arch.props import KNOWN_DEVICES, KNOWN_PARTITIONS
from amdattn.ops.attention import kv_split
from amdattn.ops.attention.cost import block_clk, merge_clk, workgroup_clk
from amdattn.ops.attention.planning import plan_attention
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.ops.attention.work import WorkMap, visible_blocks
from tests.support.attention.rows import ROWS, forward
from tests.support.paths import ROOT
from tests.support.problems import WINDOWS, attention_problems

MI300X = KNOWN_DEVICES["MI300X"]
TILE_Q, TILE_KV = 96, 32
PROBLEMS = attention_problems(
    batch=(1, 3),
    seqlen_q=(1, 1500),
    seqlen_kv=(1, 1500),
    heads_kv=(1, 3),
    group=st.integers(1, 3),
    causal=st.booleans(),
    window_size=WINDOWS,
    top_left=st.booleans(),
)


def visible(problem, row, key):
    """The mask, from FlashAttention's definition."""
    left, right = problem.window_size
    if problem.causal:
        right = 0
    at = row if problem.top_left else row + problem.seqlen_kv - problem.seqlen_q
    return (left < 0 or key >= at - left) and (right < 0 or key <= at + right)


@settings(deadline=None)
@given(
    problem=PROBLEMS,
    split=st.floats(0, 1),
    parts=st.integers(1, 16),
    groups=st.sampled_from([1, 1, 2, 3]),
)
def test_every_tile_and_block_once(problem, split, parts, groups):
    tiles = WorkMap(problem, TILE_Q, TILE_KV, 0, 1, groups).tiles
    work = WorkMap(problem, TILE_Q, TILE_KV, tiles - int(tiles * split), parts, groups)
    ranges, results = {}, []
    for workgroup in range(work.num_workgroups):
        item = work.item(workgroup)
        tile = item.batch, item.head, item.column_group, item.q_begin
        ranges.setdefault(tile, []).append((item.kv_begin, item.kv_end))
        if item.part >= 0:
            results.append(item.part)
    assert results == list(range(work.num_workgroups - work.whole_tiles))
    begins = range(0, problem.seqlen_q, TILE_Q)
    assert set(ranges) == {
        (b, h, g, q)
        for b in range(problem.batch)
        for h in range(problem.num_heads_q)
        for g in range(groups)
        for q in begins
    }
    for (*_, q_begin), pieces in ranges.items():
        ((begin, end),) = visible_blocks(problem, TILE_Q, TILE_KV, [q_begin])
        pieces.sort()
        assert pieces[0][0] == begin and pieces[-1][1] == end
        assert all(a[1] == b[0] for a, b in zip(pieces, pieces[1:], strict=False))


@settings(deadline=None, max_examples=40)
@given(problem=PROBLEMS, pick=st.floats(0, 0.999))
def test_visible_blocks_are_the_masks(problem, pick):
    """Every visible key lies in the blocks, and the first and last block hold one."""
    q_begin = int(pick * problem.seqlen_q) // TILE_Q * TILE_Q
    ((begin, end),) = visible_blocks(problem, TILE_Q, TILE_KV, [q_begin])
    rows = range(q_begin, min(q_begin + TILE_Q, problem.seqlen_q))
    seen = {
        key // TILE_KV
        for key in range(problem.seqlen_kv)
        if any(visible(problem, row, key) for row in rows)
    }
    if seen:
        assert (begin, end) == (min(seen), max(seen) + 1)


@given(problem=PROBLEMS)
def test_normalised_windows_see_the_same_keys(problem):
    left, right = problem.window
    same = dataclasses.replace(problem, causal=False, window_size=(left, right))
    for row in {0, problem.seqlen_q // 2, problem.seqlen_q - 1}:
        keys = range(0, problem.seqlen_kv, 7)
        assert [visible(problem, row, k) for k in keys] == [visible(same, row, k) for k in keys]


@settings(deadline=None, max_examples=25)
@given(problem=PROBLEMS)
def test_flops_count_what_is_visible(problem):
    assume(problem.seqlen_q * problem.seqlen_kv < 250_000)
    pairs = sum(
        visible(problem, row, key)
        for row in range(problem.seqlen_q)
        for key in range(problem.seqlen_kv)
    )
    assert problem.flops == 2 * problem.batch * problem.num_heads_q * pairs * 256


@settings(deadline=None)
@given(
    problem=PROBLEMS,
    split=st.floats(0, 1),
    heads=st.integers(1, 150),
    at_once=st.sampled_from([8, 16, 64, 128]),
    in_pairs=st.booleans(),
    groups=st.sampled_from([1, 1, 2]),
)
def test_order_of_the_tiles(problem, split, heads, at_once, in_pairs, groups):
    """All tiles once. Masked: the longest of some heads first, their neighbours on one XCD."""
    problem = dataclasses.replace(problem, num_heads_q=heads, num_heads_kv=heads)
    order_of_heads = {"heads_at_once": at_once, "in_pairs": in_pairs}
    tiles = WorkMap(problem, TILE_Q, TILE_KV, 0, 1, groups).tiles
    cut = tiles - int(tiles * split), 2, groups
    work = WorkMap(problem, TILE_Q, TILE_KV, *cut, **order_of_heads)
    order = [work.tile(n) for n in range(tiles)]
    all_heads = problem.batch * heads * groups
    assert sorted(order) == [(h, t) for h in range(all_heads) for t in range(work.q_tiles)]
    begins = [tile * TILE_Q for _, tile in order]
    ranges = visible_blocks(problem, TILE_Q, TILE_KV, begins)
    runs = [blocks for count, blocks in work.runs() for _ in range(count)]
    assert runs == [end - begin for begin, end in ranges]
    if problem.window != (-1, -1):
        before, last = work.last_chunk
        assert 0 < last <= (3 * at_once - 1 if in_pairs else at_once)
        if in_pairs and last != all_heads:  # as many chunks of at least that many heads
            assert before % 2 == 1 and last >= at_once
        for n, (head, tile) in enumerate(order):
            chunk = min(n // (at_once * work.q_tiles), before)
            assert min(head // at_once, before) == chunk
            if n != chunk * at_once * work.q_tiles:
                assert tile <= order[n - 1][1]
    else:
        for xcd in range(min(8, work.whole_tiles)):
            mine = order[xcd : work.whole_tiles : 8]
            assert mine == sorted(mine)
    if all_heads % 8 == 0 and problem.window != (-1, -1):
        groups = {}
        for n, (head, _) in enumerate(order):
            groups.setdefault(head, set()).add(n % 8)
        assert all(len(xcds) == 1 for xcds in groups.values())


@pytest.mark.parametrize(
    ("rows", "heads", "chunks"),
    [
        # One tile for each CU of an XCD: 32 tiles of a head, 16, 8, 5 to 8, ...
        (8192, 128, [16] * 7 + [16]),
        (4096, 256, [16] * 15 + [16]),
        (2048, 256, [32] * 7 + [32]),
        (1280, 256, [32] * 7 + [32]),
        (1024, 256, [64] * 3 + [64]),
        (513, 256, [64] * 3 + [64]),
        (512, 512, [128] * 3 + [128]),
        # An odd number of them, and heads that are left.
        (2048, 160, [32] * 3 + [64]),
        (2048, 191, [32] * 3 + [95]),
        (2048, 192, [32] * 5 + [32]),
        (1024, 127, [127]),
        (1024, 128, [64, 64]),
    ],
)
def test_heads_at_once_have_a_tile_for_each_cu(rows, heads, chunks):
    """On gfx950, whose XCDs have 32 CUs; elsewhere eight heads an XCD."""
    problem = AttentionProblem(1, rows, rows, heads, heads, 128, causal=True)
    kernel = forward(q_tile=256, kv_tile=64)
    work = WorkMap.of_kernel(problem, dataclasses.replace(kernel, arch="gfx950"))
    before, last = work.last_chunk
    assert [work.heads_at_once] * before + [last] == chunks
    before, last = WorkMap.of_kernel(problem, dataclasses.replace(kernel, arch="gfx942")).last_chunk
    assert last <= 64 and before * 64 + last == heads


def test_the_order_is_that_of_the_kernels():
    """Constants of the kernels' sources."""
    target = (ROOT / "asm_src/arch/target.h").read_text(encoding="utf-8")
    work = (ROOT / "asm_src/attn/work.h").read_text(encoding="utf-8")
    heads = [int(n) for n in re.findall(r"kHeadsOfXcd = (\d+);", target)]
    tiles = [int(n) for n in re.findall(r"int kTilesOfXcd(?:<Cdna4>)? = (\d+);", work)]
    known = [(order.heads_of_xcd, order.tiles_of_xcd) for order in ATTENTION_KERNELS.values()]
    assert list(zip(heads, tiles, strict=True)) == known


# -- the choice ------------------------------------------------------------------------------------

KERNEL = forward(q_tile=TILE_Q, kv_tile=TILE_KV)


def brute_force(problem, split_tiles, parts, props, slots):
    """The list schedule of one way, from the work items themselves."""
    tiles = WorkMap(problem, TILE_Q, TILE_KV, 0, 1).tiles
    work = WorkMap(problem, TILE_Q, TILE_KV, tiles - split_tiles, parts)
    queues = props.num_xcds if slots % props.num_xcds == 0 else 1
    free = [[0.0] * (slots // queues) for _ in range(queues)]
    for workgroup in range(work.num_workgroups):
        item = work.item(workgroup)
        blocks = item.kv_end - item.kv_begin
        cus = free[workgroup % queues]
        heapq.heapreplace(cus, cus[0] + workgroup_clk(KERNEL, 0) + blocks * block_clk(KERNEL))
    clk = max(map(max, free))
    return clk + (merge_clk(KERNEL, split_tiles * parts, props) if split_tiles else 0)


@settings(deadline=None, max_examples=60)
@given(
    problem=PROBLEMS,
    lengths=st.sampled_from([1, 30]),
    cus=st.sampled_from([(1, 1), (8, 8), (16, 8), (24, 8), (12, 6), (30, 1), (104, 8)]),
    limit=st.sampled_from([1, 2, 16]),
)
def test_no_way_is_better(problem, lengths, cus, limit):
    """Within what a split must save, and the order of longer and shorter parts of a tile."""
    problem = dataclasses.replace(problem, seqlen_kv=problem.seqlen_kv * lengths)
    num_cus, num_xcds = cus
    props = dataclasses.replace(MI300X, num_cus=num_cus, num_xcds=num_xcds)
    tiles = WorkMap(problem, TILE_Q, TILE_KV, 0, 1).tiles
    assume(tiles <= 3 * num_cus)  # beyond, the first rounds are not scheduled one by one
    choice = kv_split.choose(problem, KERNEL, props, num_cus, limit)
    rest = tiles % num_cus
    ways = {
        (split, parts): brute_force(problem, split, parts, props, num_cus)
        for split in {rest, min(rest + num_cus, tiles)} - {0}
        for parts in range(2, limit + 1)
    }
    ways[0, 1] = brute_force(problem, 0, 1, props, num_cus)
    chosen = ways[choice.best.tiles, choice.best.parts]
    assert chosen <= min(ways.values()) * 1.01 + 2 * block_clk(KERNEL)
    assert choice.best.clk == pytest.approx(chosen, abs=2 * block_clk(KERNEL))


@settings(deadline=None, max_examples=30)
@given(
    batch=st.integers(1, 4),
    heads=st.integers(1, 64),
    rows=st.integers(300, 20000),
    causal=st.booleans(),
)
def test_long_queues_are_modelled_by_their_end(batch, heads, rows, causal):
    problem = AttentionProblem(batch, rows, rows, heads, heads, 128, causal=causal)
    slots = 304
    costs = kv_split.Costs(problem, ROWS[0])
    modelled = kv_split._Schedule(costs, costs.num_tiles, slots, 8).clk(())
    clks = costs.of_range(0, costs.num_tiles)
    free = [[0.0] * (slots // 8) for _ in range(8)]
    for w in range(costs.num_tiles):
        cus = free[w % 8]
        heapq.heapreplace(cus, cus[0] + clks[w])
    assert modelled == pytest.approx(max(map(max, free)), rel=0.08 if causal else 1e-9)


def test_round_figures():
    """One round exactly: no split. Half a round more: both halves of the rest at a time."""
    one = AttentionProblem(1, 384, 32768, 304, 304, 128)
    best = kv_split.choose(one, ROWS[0], MI300X, 304, 16).best
    assert (best.tiles, best.parts) == (0, 1)
    assert best.clk == pytest.approx(workgroup_clk(ROWS[0], 0) + 1024 * block_clk(ROWS[0]))
    more = dataclasses.replace(one, num_heads_q=456, num_heads_kv=456)
    best = kv_split.choose(more, ROWS[0], MI300X, 304, 16).best
    assert (best.tiles, best.parts) == (152, 2)
    few = dataclasses.replace(one, num_heads_q=38, num_heads_kv=38)
    best = kv_split.choose(few, ROWS[0], MI300X, 304, 16).best
    assert (best.tiles, best.parts) == (38, 8)


def test_short_problems_are_not_split():
    """A merge costs a launch: more than a round of few KV blocks."""
    problem = AttentionProblem(1, 384, 128, 456, 456, 128)
    assert kv_split.choose(problem, ROWS[0], MI300X, 304, 16).best.parts == 1


@pytest.mark.parametrize(
    "device", [*KNOWN_DEVICES.values(), *KNOWN_PARTITIONS.values()], ids=lambda props: props.name
)
def test_plans_of_devices(device):
    problem = AttentionProblem(1, 32760, 32760, 12, 12, 128)
    rows = [dataclasses.replace(row, arch=device.arch) for row in ROWS]
    plan = plan_attention(problem, device, rows)
    assert f"on {device.num_cus} slots" in dict(plan.reasons)["rounds"]
    work = WorkMap.of(problem, plan.launches[0])
    assert plan.launches[0].grid == (work.num_workgroups, 1, 1)


@pytest.mark.parametrize("causal", [False, True])
def test_planning_takes_a_moment(causal):
    """Less than 1 ms of a core; the bound leaves room for one whose caches others use."""
    problem = AttentionProblem(4, 15000, 15000, 64, 8, 128, causal=causal)
    assert kv_split.Costs(problem, ROWS[0]).num_tiles == 10240
    times = []
    for _ in range(5):
        kv_split.choose.cache_clear()
        start = time.process_time()
        plan_attention(problem, MI300X, ROWS)
        times.append(time.process_time() - start)
    assert min(times) < 5e-3


# -- parts that differ -----------------------------------------------------------------------------

MERGING = forward(q_tile=256, max_merged_parts=8)


@settings(deadline=None)
@given(
    batch=st.integers(1, 3),
    heads=st.integers(1, 20),
    rows=st.integers(1, 900),
    blocks=st.integers(2, 20),
    split=st.floats(0, 1),
    parts=st.integers(2, 8),
    pick=st.floats(0, 1),
)
def test_every_block_once_of_parts_that_differ(batch, heads, rows, blocks, split, parts, pick):
    """All first parts come first; with whole tiles before them in eights, those of a tile meet."""
    assume(parts <= blocks)
    most = (blocks - 1) // (parts - 1)
    problem = AttentionProblem(batch, rows, blocks * TILE_KV, heads, heads, 128)
    tiles = WorkMap(problem, TILE_Q, TILE_KV, 0, 1).tiles
    whole = tiles - max(1, int(tiles * split))
    part_blocks = 1 + int(pick * (most - 1))
    work = WorkMap(problem, TILE_Q, TILE_KV, whole, parts, part_blocks=part_blocks)
    ranges, results = {}, []
    for workgroup in range(work.num_workgroups):
        item = work.item(workgroup)
        tile = item.batch, item.head, item.q_begin
        if item.part >= 0:
            results.append(item.part)
            nth = (workgroup - whole) // (tiles - whole)
            assert item.part % parts == nth and len(ranges.get(tile, ())) == nth
        ranges.setdefault(tile, []).append((item.kv_begin, item.kv_end))
    assert sorted(results) == list(range((tiles - whole) * parts))
    assert len(ranges) == tiles
    for pieces in ranges.values():
        assert pieces[0][0] == 0 and pieces[-1][1] == blocks
        assert all(a[1] == b[0] for a, b in zip(pieces, pieces[1:], strict=False))
        assert all(begin < end for begin, end in pieces)


def test_short_parts_fill_what_long_ones_leave():
    """28 tiles on the 38 CUs of an XCD: 10 CUs take three of the last parts each."""
    problem = AttentionProblem(4, 4096, 4096, 32, 32, 128)
    best = kv_split.choose(problem, MERGING, MI300X, 304, 16).best
    assert (best.tiles, best.parts) == (224, 2)
    assert best.part_blocks > 128 - best.part_blocks > 0
    long, last = best.part_blocks, 128 - best.part_blocks
    beside = workgroup_clk(MERGING, 0) / block_clk(MERGING)
    assert 3 * (last + beside) <= long + beside
    assert 3 * (last + 1 + beside) > long - 1 + beside
    plan = plan_attention(problem, MI300X, (MERGING,))
    assert len(plan.launches) == 1  # and there is no kernel that merges
    assert plan.workspace["counters"].nbytes == 224 * 2 * 4 * 8
    assert "by the last part to arrive" in plan.explain()
