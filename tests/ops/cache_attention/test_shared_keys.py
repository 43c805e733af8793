"""Keys that several workgroups read: sequences that share pages, tiles of rows of one head."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn import tuning, virtual
from amdattn.device import runtime

PAGE, HEADS, KEYS = 16, 8, 1024


def hbm_bytes(plan: Any, **others: Any) -> int:
    """That the simulated XCD asks HBM for, of its first launch."""
    operands = tuning.random_operands(plan) | others
    views, _ = plan.views_of({name: operands[name] for name in plan.input_names}, None)
    workspace = plan.new_workspace()
    with virtual.profile() as found:
        plan.execute(None, views, (operands["out"], None), "", 0, workspace)
        runtime.synchronize()
    return int(found.launches[0].bytes["hbm"])


def planned(batch: int, queries: int, **options: Any) -> Any:
    return amdattn.plan_decode(
        *(batch, queries, KEYS, 8 * HEADS, HEADS, 128),
        num_pages=batch * KEYS // PAGE,
        page_size=PAGE,
        cache_seqlens=True,
        device=amdattn.device_props(),
        **options,
    )


@pytest.mark.parametrize("num_splits", [0, 1, 4])
def test_sequences_that_share_pages(num_splits: int) -> None:
    """Each half of them reads a head once; of pages of their own all is read."""
    plan = planned(8, 1, num_splits=num_splits)
    own = np.arange(8 * KEYS // PAGE, dtype=np.int32).reshape(8, -1)
    alone = hbm_bytes(plan, block_table=amdattn.asarray(own))
    shared = hbm_bytes(plan, block_table=amdattn.asarray(np.tile(own[:1], (8, 1))))
    all_of_xcd = 8 * KEYS * HEADS * 2 * 128 * 2 / 8
    assert alone == pytest.approx(all_of_xcd, rel=0.05)
    assert shared < 0.3 * alone


@pytest.mark.parametrize("num_splits", [0, 1, 4])
def test_tiles_of_rows_of_one_head(num_splits: int) -> None:
    """Four times the rows read no more keys."""
    few, many = (hbm_bytes(planned(1, n, num_splits=num_splits)) for n in (2, 8))
    assert many < 1.25 * few
