"""What the executor does for operations that there are not yet: made-up plans without launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn.device import runtime
from amdattn.dtypes import as_dtype
from amdattn.op.executor import RunnablePlan
from amdattn.op.plan import Plan
from amdattn.op.spec import OperandSpec, Specs
from amdattn.op.workspace import Region, WorkspaceLayout

F32 = as_dtype("float32")


@dataclass(frozen=True)
class Problem:
    text: str = "made up"
    brief: str = "made up"


class Cache(RunnablePlan[Problem]):
    """A cache that is updated in place, what is added to it, and a result."""

    def operands(self, variant: str) -> Specs:
        specs = (
            OperandSpec("cache", "inout", (8, 4), F32, ("row",)),
            OperandSpec("new", "in", (4,), F32, ()),
            OperandSpec("out", "out", (3,), F32, ()),
        )
        return {spec.name: spec for spec in specs}


def plan(*regions: Region) -> Cache:
    props, layout = amdattn.device_props(), WorkspaceLayout.of(regions)
    return Cache.of(Plan(Problem(), props, (), layout, ()))  # type: ignore[arg-type]


def run(made: Cache, new: Any, cache: Any, workspace: Any = None, stream: Any = None) -> Any:
    views, handle = made.views_of({"cache": cache, "new": new}, stream)
    return made.execute(new, views, (None,), "", handle, workspace)[0]


def test_what_is_updated_in_place(hip_stream: Any) -> None:
    made = plan()
    assert made.input_names == ("cache", "new")
    new, cache = amdattn.empty(4, "float32"), amdattn.empty((8, 4), "float32")
    stream = runtime.stream_handle(hip_stream)
    for _ in range(3):  # checked; packed; submitted as it was packed
        out = run(made, new, cache, stream=hip_stream)
        assert out.shape == (3,) and out.stream == stream
        assert cache.stream == stream and new.stream is None
        cache.stream = None
    with pytest.raises(ValueError, match="cache overlaps new in memory"):
        run(made, cache[2], cache)
    frozen = np.zeros((8, 4), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="cache is read-only"):
        run(made, np.zeros(4, np.float32), frozen)
    one_row = np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (8, 4), (0, 4))
    with pytest.raises(ValueError, match="cache has overlapping elements"):
        run(made, np.zeros(4, np.float32), one_row)


def test_what_is_updated_in_place_is_not_on_the_host() -> None:
    new, cache = np.ones(4, np.float32), np.arange(32, dtype=np.float32).reshape(8, 4)
    with pytest.raises(TypeError, match="cache is written in place: it must be in device memory"):
        run(plan(), new, cache)


def test_regions_are_as_launches_have_to_find_them() -> None:
    """Given by the caller: what has to be zero before every run is; no other memory is touched."""
    made = plan(
        Region("scratch", 40), Region("sums", 24, "zero"), Region("counters", 16, "zero_at_rest")
    )
    new, cache = amdattn.empty(4, "float32"), amdattn.empty((8, 4), "float32")
    layout = made.workspace
    dirty = np.full(layout.total_bytes, 7, np.uint8)
    dirty[: layout.zero_bytes] = 0
    for _ in range(3):
        workspace = amdattn.asarray(dirty)
        run(made, new, cache, workspace)
        after = workspace.numpy()
        sums = layout["sums"]
        assert not after[sums.offset : sums.offset + sums.nbytes].any()
        after[sums.offset : sums.offset + sums.nbytes] = 7
        np.testing.assert_array_equal(after, dirty)
    assert not made.new_workspace().numpy().any()
    for _ in range(3):  # of its own
        run(made, new, cache)
