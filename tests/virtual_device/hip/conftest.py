"""Fixtures for tests of the HIP ABI, through whichever hip-python is installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from amdattn.device.virtual_library import library_path
from tests.support.hip_runtime import Runtime


@pytest.fixture(scope="session")
def hip() -> Runtime:
    return Runtime(str(library_path()))


@pytest.fixture(autouse=True)
def clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """Meet no error of an earlier test, and leave none, nor a fault, to the next."""
    if "hip" in request.fixturenames:
        request.getfixturevalue("hip").hip.hipGetLastError()
    yield
    if "hip" in request.fixturenames:
        runtime = request.getfixturevalue("hip")
        for gate in tuple(runtime.gates):
            gate.close()
        runtime.hip.hipDeviceSynchronize()
        runtime.hip.hipGetLastError()
