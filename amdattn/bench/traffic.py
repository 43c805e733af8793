"""Bytes from the last level cache and from HBM, from the times at which workgroups read K and V.

A simulation covers one XCD and an eighth of the last level cache. It cannot see that data fetched
by one XCD is in the cache for the others, nor what later tiles of a sampled launch find there. Both
follow from the times of all workgroups: each reads its rows of K and V at an even pace, through the
L2 of its XCD and the cache that all XCDs share.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from amdattn.bench.kernels import BYTES_PER_ELEMENT, Walk
from amdattn.bench.shapes import Shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from amdattn.bench.clocks import Clocks
    from amdattn.bench.replay import Timeline

_LEAST_CHUNK, _MOST_TOUCHES = 64, 400_000


class _Cache:
    """A cache of chunks of K and V that evicts the least recently used one."""

    def __init__(self, most: float) -> None:
        self._held: OrderedDict[int, None] = OrderedDict()
        self._most = max(int(most), 1)

    def misses(self, chunk: int) -> bool:
        """Whether a chunk has to be fetched; afterwards the cache holds it."""
        if chunk in self._held:
            self._held.move_to_end(chunk)
            return False
        self._held[chunk] = None
        if len(self._held) > self._most:
            self._held.popitem(last=False)
        return True


def beyond_l2(
    shape: Shape, walk: Walk, timelines: Sequence[Timeline], arch: Clocks
) -> dict[str, float]:
    """Bytes that the last level cache and HBM serve to a launch whose operands are not cached.

    Parameters
    ----------
    shape : Shape
    walk : Walk
        What all workgroups read, by flat id.
    timelines : sequence of Timeline
        By XCD.
    arch : Clocks
        The sizes of the caches.

    Returns
    -------
    dict of str to float
        Bytes of the device, as "mall" and "hbm".
    """
    row_bytes = (shape.head_dim + shape.head_dim_v) * BYTES_PER_ELEMENT
    rows = int((walk.kv_end - walk.kv_begin).sum())
    chunk = max(_LEAST_CHUNK, 1 << math.ceil(math.log2(max(rows / _MOST_TOUCHES, 1))))
    of_stream = -(-shape.seqlen_kv // chunk)
    times, xcds, places = _touches(walk, timelines, chunk, of_stream)
    l2 = [_Cache(arch.l2_bytes / row_bytes / chunk) for _ in timelines]
    mall = _Cache(arch.mall_bytes / row_bytes / chunk)
    order = np.argsort(times, kind="stable")
    # 0: served by the L2; 1: by the last level cache; 2: by HBM.
    levels = [
        l2[xcd].misses(place) and 1 + mall.misses(place)
        for xcd, place in zip(xcds[order].tolist(), places[order].tolist(), strict=True)
    ]
    nbytes = np.minimum(chunk, shape.seqlen_kv - places[order] % of_stream * chunk) * row_bytes
    served = [float(nbytes[np.array(levels, int) >= level].sum()) for level in (1, 2)]
    q_bytes = shape.batch * shape.heads_q * shape.seqlen_q * shape.head_dim * BYTES_PER_ELEMENT
    return {"mall": served[0] + q_bytes, "hbm": served[1] + q_bytes}


def _touches(
    walk: Walk, timelines: Sequence[Timeline], chunk: int, of_stream: int
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Times, XCDs and chunks (over all streams) of the reads; chunk numbers wrap in a stream."""
    flat = np.arange(len(walk.stream))
    xcd, nth = flat % len(timelines), flat // len(timelines)
    start, end = np.zeros(len(flat)), np.zeros(len(flat))
    for i, timeline in enumerate(timelines):
        here = xcd == i
        start[here], end[here] = timeline.start[nth[here]], timeline.end[nth[here]]
    first = walk.kv_begin // chunk
    counts = np.maximum(-(-walk.kv_end // chunk) - first, 0)
    owner = np.repeat(flat, counts)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    times = start[owner] + (end - start)[owner] * (within + 0.5) / counts[owner]
    places = walk.stream[owner] * of_stream + (first[owner] + within) % of_stream
    return times, xcd[owner], places
