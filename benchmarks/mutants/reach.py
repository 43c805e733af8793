"""pytest plugin: which blocks of the virtual device each test runs, and which tests to run.

With AMDATTN_REACH=FILE.npz and a library of `device_build.py`, the blocks and the seconds of every
test that passes are written there. With AMDATTN_CHOSEN=FILE.json, a list of node ids, only those
tests run, in that order.
"""

from __future__ import annotations

import ctypes
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

_rows: list[np.ndarray] = []
_seconds: list[float] = []
_names: list[str] = []
_addresses: list[np.ndarray] = []  # of the blocks, in the library's file
_flags: np.ndarray | None = None


def pytest_configure() -> None:
    """Find the flags of the library under test."""
    global _flags
    if "AMDATTN_REACH" in os.environ:
        library = ctypes.CDLL(os.environ["AMDATTN_VDEV_LIBRARY"])
        library.vdev_test_flags.restype = ctypes.POINTER(ctypes.c_uint8)
        library.vdev_test_num_flags.restype = ctypes.c_size_t
        count = library.vdev_test_num_flags()
        _flags = np.ctypeslib.as_array(library.vdev_test_flags(), (count,))
        library.vdev_test_places.restype = ctypes.POINTER(ctypes.c_size_t)
        table = np.ctypeslib.as_array(library.vdev_test_places(), (count, 2))  # address, kind
        _addresses.append(table[:, 0] - _base(os.environ["AMDATTN_VDEV_LIBRARY"]))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that were chosen, in that order."""
    if chosen := os.environ.get("AMDATTN_CHOSEN"):
        order = {name: at for at, name in enumerate(json.loads(Path(chosen).read_text()))}
        items[:] = sorted(
            (item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid]
        )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """One test with its fixtures."""
    if _flags is None:
        return (yield)
    _flags[:] = 0
    begin, failed = time.perf_counter(), item.session.testsfailed
    try:
        return (yield)
    finally:
        if item.session.testsfailed == failed:
            _names.append(item.nodeid)
            _seconds.append(time.perf_counter() - begin)
            _rows.append(np.packbits(_flags))


def pytest_sessionfinish() -> None:
    """Write what was found."""
    if _flags is not None:
        np.savez_compressed(
            os.environ["AMDATTN_REACH"],
            names=np.array(_names),
            seconds=np.array(_seconds),
            blocks=np.array(_rows),
            addresses=_addresses[0],
        )


def _base(library: str) -> int:
    """Where it is loaded."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(os.path.realpath(library)):
            return int(line.partition("-")[0], 16)
    raise RuntimeError(f"{library} is not loaded")
