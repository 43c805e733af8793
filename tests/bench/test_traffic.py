"""Bytes beyond the L2: what XCDs share, and what is gone when it is wanted again."""

import dataclasses

import numpy as np
import pytest

from amdattn.bench.clocks import clocks
from amdattn.bench.items import Items
from amdattn.bench.kernels import Walk
from amdattn.bench.replay import Timeline
from amdattn.bench.shapes import Shape
from amdattn.bench.shipped import Shipped
from amdattn.bench.traffic import beyond_l2

ARCH = clocks("gfx942")
SHAPE = Shape(1, 1, 1, 1024, 1024, 128)
KV = 1024 * 2 * 128 * 2
Q = 1024 * 128 * 2


def walk(rounds, rows=1024, streams=1):
    """A workgroup of every XCD a round, each over all rows of stream number round % streams."""
    count = rounds * ARCH.num_xcds
    nth = np.arange(count) // ARCH.num_xcds
    zeros, ends = np.zeros(count, np.int64), np.full(count, rows)
    timeline = Timeline(np.arange(rounds), np.arange(rounds) + 1.0, np.zeros(rounds, np.int64))
    return Walk(ends, zeros, ends, nth % streams, zeros, ends), [timeline] * ARCH.num_xcds


def test_all_xcds_fetch_and_hbm_serves_once():
    found = beyond_l2(SHAPE, *walk(3), ARCH)
    assert found == {"mall": 8 * KV + Q, "hbm": KV + Q}  # 0.5 MB stay in the L2 for later rounds


def test_what_a_cache_does_not_hold_is_fetched_again():
    small = dataclasses.replace(ARCH, l2_bytes=KV // 4)
    assert beyond_l2(SHAPE, *walk(3), small) == {"mall": 3 * 8 * KV + Q, "hbm": KV + Q}
    smaller = dataclasses.replace(small, mall_bytes=KV // 2)
    assert beyond_l2(SHAPE, *walk(3), smaller) == {"mall": 3 * 8 * KV + Q, "hbm": 3 * KV + Q}
    # Two streams in turn: both fit, or each drives the other out.
    shape = dataclasses.replace(SHAPE, heads_q=2, heads_kv=2)
    both = dataclasses.replace(ARCH, l2_bytes=2 * KV)
    assert beyond_l2(shape, *walk(4, streams=2), both)["mall"] == 2 * 8 * KV + 2 * Q
    one = dataclasses.replace(ARCH, l2_bytes=KV)
    assert beyond_l2(shape, *walk(4, streams=2), one)["mall"] == 4 * 8 * KV + 2 * Q


def test_a_last_chunk_counts_its_rows():
    shape = SHAPE.with_lengths(1024, 1000)
    assert beyond_l2(shape, *walk(1, rows=1024), ARCH)["hbm"] == 1000 * 2 * 128 * 2 + Q


@pytest.mark.parametrize("causal", [False, True])
def test_ours_read_everything_once_from_hbm(causal):
    """Any launch whose K and V fit the last level cache."""
    shape = Shape(2, 8, 2, 2048, 2048, 128, causal)
    of = Items.of(Shipped("rtne", num_splits=1).work(shape)).walk
    most = -(-len(of.stream) // ARCH.num_xcds)
    timeline = Timeline(np.arange(most), np.arange(most) + 5.0, np.zeros(most, np.int64))
    hbm = beyond_l2(shape, of, [timeline] * ARCH.num_xcds, ARCH)["hbm"]
    assert hbm == 2 * 2048 * (8 + 2 * 2) * 128 * 2
