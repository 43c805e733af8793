"""The defects of docs/studies/found.md in the public objects are as documented.

AMDATTN_AITER_DIR names a checkout of https://github.com/ROCm/aiter, AMDATTN_FLYDSL_DIR what
`benchmarks/flydsl_hgemm.py` compiled; see tests/support/peers/found.py.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.peers.found import reproduce
from tests.support.peers.found_defects import DEFECTS, FLYDSL, Defect

PAGE = (ROOT / "docs" / "studies" / "found.md").read_text()
AITER, FLY = (os.environ.get(f"AMDATTN_{name}_DIR") for name in ("AITER", "FLYDSL"))


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda d: d.name)
@pytest.mark.slow
@pytest.mark.skipif(not AITER, reason="AMDATTN_AITER_DIR names no aiter checkout")
def test_aiter(defect: Defect) -> None:
    path = Path(AITER or "") / "hsa" / "gfx942" / defect.object
    if not path.exists():
        pytest.skip(f"no {path}")
    assert reproduce(defect, path)


@pytest.mark.slow
@pytest.mark.skipif(not FLY, reason="AMDATTN_FLYDSL_DIR names no compiled kernels")
def test_flydsl() -> None:
    assert reproduce(FLYDSL, Path(FLY or "") / FLYDSL.object)


@pytest.mark.parametrize("defect", (*DEFECTS, FLYDSL), ids=lambda d: d.name)
def test_the_page_names_it(defect: Defect) -> None:
    """The object's hash and each documented address are on the page."""
    assert f"`{defect.sha256}`" in PAGE
    for pc in defect.places:
        assert f"{pc:#x}" in PAGE
