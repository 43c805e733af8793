"""Every test runs on the installed virtual device, unless AMDATTN_VDEV_LIBRARY names another."""

import ctypes
import os
import tempfile

import pytest
from vdev_library import open_library

from amdattn.virtual_library import library_path

os.environ.setdefault("AMDATTN_VDEV_LIBRARY", str(library_path()))
os.environ.setdefault("AMDATTN_DEVICE", "virtual:gfx942")
# Not what the user has tuned.
os.environ["AMDATTN_GEMM_TABLE"] = os.path.join(tempfile.gettempdir(), "amdattn-none", "gemm.json")


@pytest.fixture(scope="session")
def vdev_lib() -> ctypes.CDLL:
    """The virtual device, whose test entry points are vdev_test_*."""
    return open_library()
