"""Fixtures for tests of the public API."""

import gc
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.device import runtime
from tests.support import fake_rocm as fakes


@pytest.fixture
def normal():
    """Normally distributed bfloat16 arrays, reproducible within a test."""
    rng = np.random.default_rng(20)

    def make(*shape):
        return rng.standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16)

    return make


@pytest.fixture
def launches(monkeypatch):
    """Launches made through the runtime, as (grid, workgroup, stream)."""
    seen = []
    device = runtime.get()
    original = device.submit

    def submit(configuration, kernargs, stream):
        seen.append((configuration[1:4], configuration[4:7], stream))
        return original(configuration, kernargs, stream)

    monkeypatch.setattr(device, "submit", submit)
    return seen


@pytest.fixture
def allocations(monkeypatch):
    """Sizes of the device allocations made through the runtime."""
    seen = []
    device = runtime.get()
    original = device.malloc

    def malloc(nbytes):
        seen.append(nbytes)
        return original(nbytes)

    monkeypatch.setattr(device, "malloc", malloc)
    return seen


@pytest.fixture
def hip_stream():
    """A stream of its own, destroyed after the test."""
    device = runtime.get()
    stream = device.check("hipStreamCreate", device.hip.hipStreamCreate())
    yield stream
    amdattn.synchronize()
    device.check("hipStreamDestroy", device.hip.hipStreamDestroy(stream))


@pytest.fixture(scope="session")
def fake_rocm(tmp_path_factory):
    """Build a fake ROCm installation with the given macros, once; returns its root."""
    built = {}

    def build(**macros):
        key = tuple(macros.items())
        if key not in built:
            built[key] = fakes.build(tmp_path_factory.mktemp("rocm"), macros)
        return built[key]

    return build


@pytest.fixture
def nothing_else_is_freed() -> Iterator[None]:
    """No array that an earlier test left gives its memory back while the test counts memory."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
