"""Fixtures for tests of the HIP ABI, through whichever hip-python is installed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from amdattn.device import binding
from tests.support import amd_tests
from tests.support.hip_runtime import Runtime

RUNTIME = os.environ.get(binding.RUNTIME_VARIABLE, "amdattn")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    amd_tests.skip_others(items, on_amds=RUNTIME != "amdattn")


@pytest.fixture(scope="session")
def hip() -> Runtime:
    """The virtual device's own HIP runtime, or the one that AMDATTN_RUNTIME names."""
    device = os.environ.get(binding.ENVIRONMENT_VARIABLE, "virtual:gfx942")
    choice = binding.choose(device, "", RUNTIME)
    return Runtime(choice.library, choice.device)


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
