"""The order in which the device takes the tiles of sequences of several lengths."""

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn import virtual
from amdattn.ops.attention import select
from amdattn.ops.attention.ordering import IN_ORDER
from amdattn.ops.attention.scheduling import ENTRIES, MERGES, SCHEDULE
from amdattn.ops.attention.work import visible_blocks
from tests.support.attention.masked import varlen

BF16 = ml_dtypes.bfloat16
MOST_SEQUENCES = 64  # of which workgroups find their tiles themselves
FIELDS = ("q_start", "rows", "keys", "q_base", "kv_base", "partial", "part", "parts")
# Lengths of queries and of keys: odd ones, empty ones, one far longer than all others, many.
MIXES = {
    "one long": ([1100, 1, 60, 0, 257], [1100, 1, 60, 0, 257]),
    "other keys": ([300, 0, 700, 5, 64], [2000, 900, 1, 0, 333]),
    "all alike": ([256] * 40, [256] * 40),
    "many": ([n % 37 for n in range(90)] + [600], [n % 61 for n in range(90)] + [900]),
    "empty": ([0, 0, 0], [0, 5, 0]),
    "one": ([1000], [3000]),
}
MASKS = ({}, {"causal": True}, {"window_size": (100, 20)}, {"window_size": (-1, 40)})


def with_empty(lengths):
    """The same and empty sequences, more than workgroups find their tiles of themselves."""
    q, k = lengths
    more = [0] * (MOST_SEQUENCES + 1 - len(q))
    return q + more, k + more


def sums(lengths):
    return np.cumsum([0, *lengths]).astype(np.int32)


def planned(lengths, heads=(8, 2), **options):
    q, k = lengths
    return amdattn.plan_attention(
        *(len(q), max(*q, 1), max(*k, 1), *heads, 128),
        total_q=max(sum(q), 1),
        total_kv=max(sum(k), 1),
        device=amdattn.device_props(),
        **options,
    )


def schedule(plan, lengths):
    """What the launch before writes, of this plan: the entries, and those of tiles in parts."""
    p = plan.problem
    q = amdattn.empty((p.total_q, p.num_heads_q, 128))
    k = amdattn.empty((p.total_kv, p.num_heads_kv, 128))
    workspace = amdattn.empty((plan.workspace.total_bytes,), "uint8")
    with virtual.profile(simulated_workgroups=1):
        plan.run(
            *(q, k, k),
            **dict(zip(("cu_seqlens_q", "cu_seqlens_k"), map(sums, lengths), strict=True)),
            workspace=workspace,
        )
    found = []
    for name in (ENTRIES, MERGES):
        regions = [region for region in plan.workspace.regions if region.name == name]
        rows = np.zeros((0, len(FIELDS)), np.int32)
        for region in regions:
            raw = workspace.numpy()[region.offset : region.offset + region.nbytes]
            rows = raw.view(np.int32).reshape(-1, len(FIELDS))
        found.append([dict(zip(FIELDS, row, strict=True)) for row in rows.tolist()])
    return found


@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize("name", MIXES)
def test_every_tile_once_most_keys_first(name, mask):
    lengths = with_empty(MIXES[name])
    plan = planned(lengths, **mask)
    if plan.launches[0].kernel.op != SCHEDULE:
        pytest.skip("each tile has a CU of its own")
    entries, merges = schedule(plan, lengths)
    tile = plan.forward.kernel.tile
    starts = sums(lengths[0])[:-1].tolist(), sums(lengths[1])[:-1].tolist()
    expected = {
        (of_q, begin): (rows, keys, of_k)
        for rows, keys, of_q, of_k in zip(*lengths, *starts, strict=True)
        for begin in range(0, rows, tile["q"])
    }
    used = [entry for entry in entries if entry["rows"]]
    assert entries[: len(used)] == used  # those without work are last
    pieces = {}
    for entry in used:
        of_tile = entry["q_base"], entry["q_start"]
        assert expected[of_tile] == (entry["rows"], entry["keys"], entry["kv_base"])
        pieces.setdefault(of_tile, []).append(entry)
    assert pieces.keys() == expected.keys()
    partials = []
    for of_tile, some in pieces.items():
        assert [entry["part"] for entry in some] == list(range(some[0]["parts"])), of_tile
        if len(some) > 1:
            partials += range(some[0]["partial"], some[0]["partial"] + len(some))
    assert len(set(partials)) == len(partials)
    merged = [(entry["q_base"], entry["q_start"]) for entry in merges if entry["rows"]]
    assert sorted(merged) == sorted(of for of, some in pieces.items() if len(some) > 1)
    for entry in merges[: len(merged)]:
        (first, *_) = pieces[entry["q_base"], entry["q_start"]]
        assert entry == {**first, "part": 0}

    def blocks(entry):
        problem = amdattn.plan_attention(
            *(1, entry["rows"], max(entry["keys"], 1), 1, 1, 128),
            device=amdattn.device_props(),
            **mask,
        ).problem
        ((begin, end),) = visible_blocks(problem, tile["q"], tile["kv"], [entry["q_start"]])
        return -(-(end - begin if entry["keys"] else 0) // entry["parts"])

    took = [blocks(entry) for entry in used]
    assert all(later <= before + 1 for before, later in zip(took, took[1:], strict=False)), took


def test_a_long_sequence_is_cut_and_short_ones_are_not():
    lengths = with_empty(([4096] + [128] * 7,) * 2)
    entries, _ = schedule(planned(lengths, (2, 2)), lengths)
    parts = {entry["rows"]: entry["parts"] for entry in entries if entry["rows"]}
    assert parts == {4096: 4, 128: 1}


def test_enough_long_sequences_are_not_cut():
    lengths = with_empty(([2048] * 12 + [100] * 5,) * 2)
    entries, _ = schedule(planned(lengths, (32, 8)), lengths)
    assert {entry["parts"] for entry in entries if entry["rows"]} == {1}


@pytest.fixture(params=["one long", "many", pytest.param("other keys", marks=pytest.mark.slow)])
def arrays(request):
    lengths = MIXES[request.param]
    rng = np.random.default_rng(3)
    q, k, v = (
        rng.standard_normal((sum(n), heads, 128)).astype(BF16)
        for n, heads in zip((lengths[0], *[lengths[1]] * 2), (4, 1, 1), strict=True)
    )
    return q, k, v, *map(sums, lengths), max(lengths[0]), max(lengths[1])


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"num_splits": 2}], ids=str)
def test_results(arrays, options):
    out, lse = amdattn.flash_attn_varlen_func(*arrays, **options, return_lse=True)
    mask = {name: value for name, value in options.items() if name != "num_splits"}
    expected, expected_lse = varlen(*arrays[:5], **mask)
    np.testing.assert_allclose(out.astype(np.float64), expected, atol=0.01, rtol=0.01)
    np.testing.assert_allclose(lse, expected_lse, atol=2e-3, rtol=1e-5)


def test_bits_repeat_whatever_the_order_of_waves(arrays):
    results = set()
    for seed in (1, 2, 3):
        virtual.set_option("seed", seed)
        try:
            results.add(np.asarray(amdattn.flash_attn_varlen_func(*arrays)).tobytes())
        finally:
            virtual.set_option("seed", 0)
    assert len(results) == 1


@pytest.mark.parametrize("num_splits", [1, 2])
def test_a_sequence_has_the_bits_that_it_has_alone(num_splits):
    """With num_splits: among so many that there is a schedule, and alone, where there is none."""
    q_lengths, k_lengths = MIXES["many"]
    rng = np.random.default_rng(4)
    q, k, v = (
        rng.standard_normal((sum(n), heads, 128)).astype(BF16)
        for n, heads in zip((q_lengths, k_lengths, k_lengths), (8, 2, 2), strict=True)
    )
    starts = sums(q_lengths), sums(k_lengths)
    most = max(q_lengths), max(k_lengths)
    out = amdattn.flash_attn_varlen_func(q, k, v, *starts, *most, num_splits=num_splits)
    for n in (36, 60, 90):
        of_q, of_k = (slice(start[n], start[n + 1]) for start in starts)
        alone = amdattn.flash_attn_func(
            q[None, of_q], k[None, of_k], v[None, of_k], num_splits=num_splits
        )
        assert alone[0].tobytes() == out[of_q].tobytes()


def test_nothing_is_found_in_checked_mode(arrays):
    with virtual.check() as check:
        amdattn.flash_attn_varlen_func(*arrays, causal=True)
    assert not check.errors


def test_few_short_sequences_have_no_schedule():
    lengths = [100, 20]
    plan = planned((lengths, lengths), (4, 4))
    assert [launch.kernel.op for launch in plan.launches] == [select.ATTENTION]


def test_of_few_sequences_each_workgroup_finds_its_tile():
    lengths = [700] + [30] * (MOST_SEQUENCES - 1)
    plan = planned((lengths, lengths), (8, 2), num_splits=1)
    assert [launch.kernel.op for launch in plan.launches] == [select.ATTENTION]
    assert dict(plan.forward.args)["whole_tiles"] == IN_ORDER
    assert "by each workgroup" in plan.explain()
    more = planned(with_empty((lengths, lengths)), (8, 2), num_splits=1)
    assert [launch.kernel.op for launch in more.launches] == [SCHEDULE, select.ATTENTION]


@pytest.mark.parametrize(
    ("mask", "heads"),
    [
        (MASKS[0], (3, 3)),
        (MASKS[1], (8, 2)),
        (MASKS[2], (2, 1)),
        ({"window_size": (50, -1)}, (2, 2)),
    ],
    ids=str,
)
def test_both_orders_write_the_same_bits(mask, heads):
    """Of 64 sequences, and with one more that is empty; every row is written."""
    q_lengths = [n * 7 % 45 for n in range(MOST_SEQUENCES - 2)] + [400, 129]
    k_lengths = [n * 5 % 77 for n in range(MOST_SEQUENCES - 2)] + [500, 60]
    rng = np.random.default_rng(5)
    q, k, v = (
        rng.standard_normal((sum(n), of, 128)).astype(BF16)
        for n, of in zip((q_lengths, *[k_lengths] * 2), (heads[0], *[heads[1]] * 2), strict=True)
    )
    results = []
    for more in ([], [0]):
        out = np.full_like(q, np.nan)
        _, lse = amdattn.flash_attn_varlen_func(
            *(q, k, v, sums(q_lengths + more), sums(k_lengths + more), 400, 500),
            **mask, num_splits=1, out=out, return_lse=True,
        )  # fmt: skip
        results.append((out, lse))
    (out, lse), other = results
    assert out.tobytes() == other[0].tobytes() and lse.tobytes() == other[1].tobytes()
    expected, expected_lse = varlen(q, k, v, sums(q_lengths), sums(k_lengths), **mask)
    np.testing.assert_allclose(out.astype(np.float64), expected, atol=0.01, rtol=0.01)
    np.testing.assert_allclose(lse, expected_lse, atol=2e-3, rtol=1e-5)


def test_more_long_sequences_than_there_is_room_for_are_not_cut():
    """The plan has room for the parts of one; lengths tell that there are more."""
    promised = [2048] + [40] * 3
    plan = planned((promised, promised), (8, 2))
    of_launch = dict(plan.forward.args)
    assert of_launch["parts"] > 1
    lengths = [600, 600, 600, sum(promised) - 1800]
    rng = np.random.default_rng(6)
    q, k, v = (rng.standard_normal((sum(promised), of, 128)).astype(BF16) for of in (8, 2, 2))
    starts = sums(lengths)
    out = plan.run(q, k, v, cu_seqlens_q=starts, cu_seqlens_k=starts)
    expected, _ = varlen(q, k, v, starts, starts)
    np.testing.assert_allclose(np.asarray(out, np.float64), expected, atol=0.01, rtol=0.01)
