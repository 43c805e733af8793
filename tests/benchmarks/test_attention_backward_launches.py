"""Launches of attention backward that are composed of workgroups."""

from __future__ import annotations

import dataclasses

import pytest

from amdattn.arch.props import KNOWN_DEVICES
from amdattn.ops.attention_backward.splitting import Splits
from benchmarks.attention_backward_launches import (
    AITER,
    Loop,
    composed,
    composed_aiter,
    composed_causal,
    composed_pairs,
    last_end,
)

pytestmark = pytest.mark.fast
MI300X = KNOWN_DEVICES["MI300X"]
ONE_CU = dataclasses.replace(MI300X, num_cus=1, num_xcds=1)
PLAIN, CAUSAL = (Loop("made up", 192, 100.0, 90.0, outside, 7.0) for outside in (1000.0, 1192.0))


def test_a_cu_takes_the_next_workgroup_when_it_is_free() -> None:
    two = dataclasses.replace(MI300X, num_cus=2, num_xcds=1)
    assert last_end([3, 2, 2, 5], two) == 8
    apart = dataclasses.replace(two, num_xcds=2)  # each has every second one
    assert last_end([3, 2, 2, 5], apart) == 7


def test_rounds_of_whole_blocks() -> None:
    sizes = 1, 4, 2, 384
    assert composed(PLAIN, sizes, ONE_CU) == 4 * (1000 + 2 * 24 * 100 + 7)
    alone = composed(AITER[16, "gfx942", 128, False], (1, 4, 4, 384), ONE_CU)
    assert composed_aiter(sizes, 128, ONE_CU) == alone == 8 * (18932 + 24 * 2170)
    assert composed_aiter(sizes, 128, ONE_CU, 32) == 8 * (19176 + 24 * 2458)


def test_causal_blocks_see_fewer_rows_one_by_one() -> None:
    """Of two heads of q: what is outside once, what cut tiles take for each."""
    assert composed_causal(CAUSAL, PLAIN, (1, 2, 1, 384), ONE_CU) == (
        2 * 1000 + 2 * (24 + 12) * 100 + 2 * 2 * 192 + 2 * 7
    )
    # Of a block that is not full all rows are cut, as some keys are beyond the last one.
    assert composed_causal(CAUSAL, PLAIN, (1, 1, 1, 208), ONE_CU) == (
        2 * 1000 + (13 + 1) * 100 + 192 + 16
    )


def test_splits_of_causal_blocks() -> None:
    """The first tiles of a block are the cut ones; of a short block some splits have none."""
    found = composed_causal(CAUSAL, PLAIN, (1, 2, 1, 384), ONE_CU, Splits(2, 1))
    assert found == 4 * 1000 + 2 * (24 + 12) * 100 + 2 * 2 * 192
    rows = composed_causal(CAUSAL, PLAIN, (1, 1, 1, 384), ONE_CU, Splits(1, 2))
    assert rows == 4 * 1000 + (24 + 12) * 100 + 2 * 192


@pytest.mark.parametrize(("blocks", "steps"), [(2, 24 + 12), (3, 36 + 24 + 12)])
def test_pairs_have_every_block_once(blocks: int, steps: int) -> None:
    found = composed_pairs(CAUSAL, (2, 3, 1, 192 * blocks), ONE_CU)
    assert found == 6 * (blocks * 1192 + steps * 100)
