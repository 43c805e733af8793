"""Attention over a cache with empty arrays: no queries, no keys, or none to append."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amdattn.arrays.buffers import host_empty, upload
from amdattn.arrays.interchange import to_library_of
from amdattn.device import runtime
from amdattn.op.colocation import view_colocated
from amdattn.ops.attention import empty
from amdattn.ops.cache_attention.calls import CacheArguments, CacheCall, CacheKey
from amdattn.ops.cache_attention.planned import planned_for


def has_none(key: CacheKey) -> bool:
    """Whether an array of a call has an axis without elements."""
    return any(0 in shape for shape in (*key.shapes, key.table))


def results(asked: CacheArguments, call: CacheCall, again: Callable[[CacheArguments], Any]) -> Any:
    """The results of a call with empty arrays, after all other checks.

    `again` makes a call with other arguments.
    """
    key, views = call.key, call.views
    q, k_cache, v_cache, k, angles = key.shapes
    if k and k[1] == 0:  # nothing is appended
        v = views["v"].shape
        if len(v) != len(k) or v[:3] != k[:3]:
            raise ValueError(
                f"v has shape {v}; k has {k}, and both must have as many rows and heads"
            )
        return again(asked._replace(k=None, v=None))
    lifted = [_lifted(shape) for shape in (q, k_cache, v_cache, k)]
    of_one = key._replace(shapes=(*lifted, angles), table=_lifted(key.table))
    problem = planned_for(call.ordinal, of_one).problem
    if k and 0 in (*k_cache[:2], *key.table[1:]):
        raise ValueError(
            f"k has {k[1]} rows a sequence; k_cache, of shape {k_cache}, has room for 0"
        )
    if k and q[1] == 0 and q[0]:  # keys are appended nevertheless
        zeros: Any = host_empty((q[0], 1, *q[2:]), views["q"].dtype)
        zeros[...] = 0
        if views["q"].on_device:
            zeros = upload(zeros, runtime.get(views["q"].ordinal))
        again(asked._replace(q=to_library_of(asked.q, zeros), out=None, lse=None))
    inputs = {"q": views["q"]}
    if asked.sinks is not None:
        inputs["sinks"] = view_colocated(asked.sinks, "sinks", inputs["q"].ordinal, call.stream)
    given = asked.out, asked.lse
    found = empty.results(
        asked.q, inputs, given, key.return_lse, "bshd", call.stream, problem.head_dim_v
    )
    return found if key.return_lse else found[0]


def _lifted(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with empty axes lifted to 1, except the last axis, as in the forward."""
    kept = 0 if len(shape) == len(("batch", "page")) else 1
    return tuple(n if i >= len(shape) - kept else max(1, n) for i, n in enumerate(shape))
