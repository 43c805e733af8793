"""Workspace regions: disjoint, aligned, in order."""

import pytest
from hypothesis import given, strategies as st

from amdattn.op.workspace import REGION_ALIGN_BYTES, Region, WorkspaceLayout

SIZES = st.dictionaries(st.text(min_size=1, max_size=4), st.integers(0, 10**6), max_size=8)


@given(sizes=SIZES)
def test_regions_are_disjoint_and_aligned(sizes):
    layout = WorkspaceLayout.of(Region(*item) for item in sizes.items())
    end = 0
    for region in layout.regions:
        assert region.offset % REGION_ALIGN_BYTES == 0
        assert end <= region.offset < end + REGION_ALIGN_BYTES
        assert layout[region.name] == region and region.nbytes == sizes[region.name]
        end = region.offset + region.nbytes
    assert layout.total_bytes == end


def test_refusals():
    with pytest.raises(ValueError, match="twice"):
        WorkspaceLayout.of([Region("a", 1), Region("a", 2)])
    with pytest.raises(ValueError, match="negative"):
        WorkspaceLayout.of([Region("a", -1)])
    with pytest.raises(KeyError):
        WorkspaceLayout.of([Region("a", 1)])["b"]
    assert WorkspaceLayout().total_bytes == 0


def test_what_is_zero_at_rest_comes_first():
    wanted = Region("x", 5), Region("counters", 24, "zero_at_rest"), Region("sums", 9, "zero")
    layout = WorkspaceLayout.of(wanted)
    assert [region.name for region in layout.regions] == ["counters", "x", "sums"]
    assert layout.zero_bytes == 24 and layout.scratch_offset == layout["x"].offset == 256
    assert WorkspaceLayout.of(wanted[1:2]).scratch_offset == 24
    assert WorkspaceLayout.of(wanted[::2]).zero_bytes == 0
