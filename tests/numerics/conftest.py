"""Fixtures shared by the tests of the device's arithmetic."""

from __future__ import annotations

import ctypes

import pytest
from scalar_library import ScalarLibrary
from vdev_library import open_library

from amdattn.virtual_library import cpu_level, shipped_library


@pytest.fixture(scope="session")
def scalar(vdev_lib: ctypes.CDLL) -> ScalarLibrary:
    """The scalar arithmetic."""
    return ScalarLibrary(vdev_lib)


@pytest.fixture(scope="session")
def builds() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """The two shipped libraries: portable, and with AVX2."""
    if cpu_level() == "v2":
        pytest.skip("this CPU runs only the portable build")
    return open_library(shipped_library("v2")), open_library(shipped_library("v3"))
