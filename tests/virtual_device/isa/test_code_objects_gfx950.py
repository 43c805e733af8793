"""Other people's code for gfx950 decodes completely, and LLVM's assembler agrees with every text.

AMDATTN_AITER_DIR names a checkout of https://github.com/ROCm/aiter, AMDATTN_GFX950_DIR a directory
of other code objects (*.hsaco); nothing of them is copied here.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from tests.support.isa.code_objects import misdecoded
from tests.support.isa.disassembler import Disassembler

AITER, OTHERS = (os.environ.get(f"AMDATTN_{name}_DIR") for name in ("AITER", "GFX950"))
AITER_OBJECTS = Path(AITER or "") / "hsa" / "gfx950"
FAMILIES = (
    *("bf16gemm", "f4gemm", "fmha_v3_bwd", "fmha_v3_fwd", "fmha_v4_fwd", "fmoe", "fmoe_2stages"),
    *("fp8gemm_blockscale", "i8gemm", "mla", "mla_v4", "pa", "topksoftmax", "."),
)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def disassembler(vdev_lib: ctypes.CDLL) -> Disassembler:
    """Of gfx950."""
    return Disassembler(vdev_lib, "gfx950")


@pytest.mark.skipif(not AITER, reason="AMDATTN_AITER_DIR names no aiter checkout")
@pytest.mark.parametrize("family", FAMILIES)
def test_aiter(disassembler: Disassembler, family: str) -> None:
    folder = AITER_OBJECTS / family
    files = sorted(folder.glob("*.co") if family == "." else folder.rglob("*.co"))
    assert files, folder
    wrong = misdecoded(disassembler, files)
    assert not wrong, wrong[:10]


@pytest.mark.skipif(not AITER, reason="AMDATTN_AITER_DIR names no aiter checkout")
def test_no_family_is_left_out() -> None:
    found = {f.relative_to(AITER_OBJECTS).parts[0] for f in AITER_OBJECTS.rglob("*/*.co")}
    assert found <= set(FAMILIES)


@pytest.mark.skipif(not OTHERS, reason="AMDATTN_GFX950_DIR names no code objects")
def test_others(disassembler: Disassembler) -> None:
    files = sorted(Path(OTHERS or "").glob("*.hsaco"))
    assert files, OTHERS
    wrong = misdecoded(disassembler, files)
    assert not wrong, wrong[:10]
