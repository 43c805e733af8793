"""Blocks that every row of a tile sees whole, under windows."""

from __future__ import annotations

import numpy as np
import pytest

from amdattn.bench.items import Items
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.ops.attention.work import WorkMap
from tests.support.attention.masked import mask

TILE_Q, TILE_KV = 96, 32


@pytest.mark.parametrize("window", [(100, -1), (64, 0), (-1, 31), (128, 33), (96, 32), (31, 31)])
@pytest.mark.parametrize(("rows", "keys"), [(192, 256), (193, 255), (95, 320)])
@pytest.mark.parametrize("parts", [1, 3])
def test_whole_blocks(window: tuple[int, int], rows: int, keys: int, parts: int) -> None:
    problem = AttentionProblem(1, rows, keys, 1, 1, 128, window_size=window)
    tiles = -(-rows // TILE_Q)
    work = WorkMap(problem, TILE_Q, TILE_KV, tiles if parts == 1 else 0, parts)
    seen = mask(rows, keys, window_size=window)
    padded = np.pad(seen, ((0, 0), (0, -keys % TILE_KV)))
    for workgroup, (one, whole, cut, part) in enumerate(Items.of(work).figures.tolist()):
        item = work.item(workgroup)
        tile = padded[item.q_begin : item.q_begin + TILE_Q]
        blocks = tile.reshape(len(tile), -1, TILE_KV)[:, item.kv_begin : item.kv_end]
        assert (one, part) == (1, parts > 1)
        assert whole == blocks.all(axis=(0, 2)).sum()
        assert whole + cut == item.kv_end - item.kv_begin
