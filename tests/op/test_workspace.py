"""Workspace regions: disjoint, aligned, in order."""

import pytest
from hypothesis import given, strategies as st

from amdattn.op.workspace import REGION_ALIGN_BYTES, WorkspaceLayout

SIZES = st.dictionaries(st.text(min_size=1, max_size=4), st.integers(0, 10**6), max_size=8)


@given(sizes=SIZES)
def test_regions_are_disjoint_and_aligned(sizes):
    layout = WorkspaceLayout.of(sizes.items())
    end = 0
    for region in layout.regions:
        assert region.offset % REGION_ALIGN_BYTES == 0
        assert end <= region.offset < end + REGION_ALIGN_BYTES
        assert layout[region.name] == region and region.nbytes == sizes[region.name]
        end = region.offset + region.nbytes
    assert layout.total_bytes == end


def test_refusals():
    with pytest.raises(ValueError, match="twice"):
        WorkspaceLayout.of([("a", 1), ("a", 2)])
    with pytest.raises(ValueError, match="negative"):
        WorkspaceLayout.of([("a", -1)])
    with pytest.raises(KeyError):
        WorkspaceLayout.of([("a", 1)])["b"]
    assert WorkspaceLayout().total_bytes == 0
