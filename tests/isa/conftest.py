"""The library under test, and the modules of this folder on the path."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "isa_semantics"), str(HERE.parents[1])]

from disassembler import Disassembler  # noqa: E402


@pytest.fixture(scope="session")
def vdev_lib() -> ctypes.CDLL:
    """The virtual device with its test entry points."""
    named = os.environ.get("AMDATTN_VDEV_LIBRARY")
    if named:
        return ctypes.CDLL(named)
    import machine

    return ctypes.CDLL(str(machine.build()))


@pytest.fixture(scope="session")
def disassembler(vdev_lib: ctypes.CDLL) -> Disassembler:
    """Decoder and printer."""
    return Disassembler(vdev_lib)
