"""Tests of amdattn.jax: on CPU devices of JAX, of which there are eight."""

import importlib.util
import os

import pytest

# Read when JAX first looks for devices, which no import does.
_EIGHT = "--xla_force_host_platform_device_count=8"
if _EIGHT not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_EIGHT}".strip()

if importlib.util.find_spec("jax") is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/tests/jax/" in str(item.path):
            item.add_marker(pytest.mark.oracles)
