"""The work of each workgroup of the attention family, as the figures that determine its time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from amdattn.bench.kernels import Walk
from amdattn.ops.attention.work import WorkItem, WorkMap

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Items:
    """The workgroups of a launch, by flat id.

    Attributes
    ----------
    figures : (workgroups, 4) float64
        1; the KV blocks that every row of the tile sees completely; other KV blocks; and whether
        the workgroup computes a part, whose result is merged later.
    walk : Walk
        What each workgroup reads.
    """

    figures: NDArray[np.float64]
    walk: Walk

    @staticmethod
    def of(work: WorkMap) -> Items:
        """The workgroups of a planned launch."""
        items = [work.item(workgroup) for workgroup in range(work.num_workgroups)]
        blocks = np.array([item.kv_end - item.kv_begin for item in items], np.int64)
        whole = np.array([_whole_blocks(work, item) for item in items], np.int64)
        part = [item.part >= 0 for item in items]
        ends = [min(item.q_begin + work.q_tile, work.problem.seqlen_q) for item in items]
        heads_kv = work.problem.num_heads_kv
        group = work.problem.num_heads_q // heads_kv
        return Items(
            np.column_stack([np.ones(len(items)), whole, blocks - whole, part]),
            Walk(
                blocks * work.kv_tile,
                np.array([item.batch for item in items], np.int64),
                np.array(ends, np.int64),
                np.array([item.batch * heads_kv + item.head // group for item in items], np.int64),
                np.array([item.kv_begin for item in items], np.int64) * work.kv_tile,
                np.array([item.kv_end for item in items], np.int64) * work.kv_tile,
            ),
        )


def _whole_blocks(work: WorkMap, item: WorkItem) -> int:
    """The KV blocks of an item of which neither a mask nor the end of the sequence hides a key."""
    problem = work.problem
    left, right = problem.window
    first_row = item.q_begin + problem.diagonal
    last_row = min(item.q_begin + work.q_tile, problem.seqlen_q) - 1 + problem.diagonal
    begin = 0 if left < 0 else max(0, last_row - left)
    end = problem.seqlen_kv if right < 0 else min(problem.seqlen_kv, first_row + right + 1)
    first = max(-(-begin // work.kv_tile), item.kv_begin)
    return max(min(end // work.kv_tile, item.kv_end) - first, 0)
