"""Fixtures shared by the tests of the device's arithmetic."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from amdattn.device.virtual_library import shipped_library
from amdattn.device.x86_level import runnable_levels
from tests.support.scalar_library import ScalarLibrary
from tests.support.vdev_library import open_library


@pytest.fixture(scope="session")
def scalar(vdev_lib: ctypes.CDLL) -> ScalarLibrary:
    """The scalar arithmetic."""
    return ScalarLibrary(vdev_lib)


@pytest.fixture(scope="session")
def builds() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """The libraries of both levels: portable, and with AVX2."""
    if "v3" not in runnable_levels():
        pytest.skip("this CPU runs only the portable build")
    libraries = shipped_library("v2"), shipped_library("v3")
    # Where all levels were asked for, as .ci/run does, a missing one is a failure.
    if os.environ.get("AMDATTN_LEVELS") != "all" and not all(map(Path.is_file, libraries)):
        pytest.skip("this install has one level: AMDATTN_LEVELS=all builds both")
    portable, avx2 = map(open_library, libraries)
    return portable, avx2
