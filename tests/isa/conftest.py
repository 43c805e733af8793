"""The library under test, and the modules of this folder on the path."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from disassembler import Disassembler  # noqa: E402


@pytest.fixture(scope="session")
def vdev_lib() -> ctypes.CDLL:
    """The virtual device, whose test entry points are vdev_test_*."""
    return ctypes.CDLL(os.environ["AMDATTN_VDEV_LIBRARY"])


@pytest.fixture(scope="session")
def disassembler(vdev_lib: ctypes.CDLL) -> Disassembler:
    """Decoder and printer."""
    return Disassembler(vdev_lib)
