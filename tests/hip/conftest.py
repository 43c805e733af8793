"""Fixtures for tests of the HIP ABI, through whichever hip-python is installed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hip_runtime import Runtime


@pytest.fixture(scope="session")
def hip() -> Runtime:
    library = os.environ.get("AMDATTN_VDEV_LIBRARY")
    if not library:
        pytest.skip("AMDATTN_VDEV_LIBRARY does not name the virtual device")
    return Runtime(library)


@pytest.fixture(autouse=True)
def clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave no fault and no error behind for the next test."""
    yield
    if "hip" in request.fixturenames:
        runtime = request.getfixturevalue("hip")
        runtime.hip.hipDeviceSynchronize()
        runtime.hip.hipGetLastError()
