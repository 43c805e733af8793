"""Every test runs on the installed virtual device, unless AMDATTN_VDEV_LIBRARY names another."""

import ctypes
import faulthandler
import gc
import importlib
import os
import pkgutil
import signal
from collections.abc import Iterator

import pytest

import amdattn
from amdattn.device.virtual_library import library_path
from tests.support import sweeps, tiers
from tests.support.cli_command import amdattn_command
from tests.support.fixtures import (
    allocations,
    fake_rocm,
    hip_stream,
    launches,
    normal,
    nothing_else_is_freed,
)
from tests.support.gpu import gpu
from tests.support.paths import TESTS
from tests.support.vdev_library import open_library

FIXTURES = (
    *(allocations, amdattn_command, fake_rocm, gpu, hip_stream, launches, normal),
    nothing_else_is_freed,
)


# Before numpy is imported. Workers of the test run share the cores already, and more threads of
# linear algebra would wait for each other without giving a core away.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("AMDATTN_VDEV_LIBRARY", str(library_path()))
os.environ.setdefault("AMDATTN_DEVICE", "virtual:gfx942")
# Not what the user has tuned.
os.environ["AMDATTN_GEMM_TABLE"] = str(TESTS / "support" / "no_tuned_gemm.json")

# All of it before any test: a module that is imported while a test has replaced a name keeps what
# it takes from there for the rest of the run.
for _module in pkgutil.walk_packages(amdattn.__path__, "amdattn."):
    if not _module.name.endswith("__main__"):
        try:
            importlib.import_module(_module.name)
        except ModuleNotFoundError as missing:  # of an optional package
            if (missing.name or "").startswith("amdattn"):
                raise

_SLOW_TEST_SECONDS = 7200
_stderr = os.dup(2)  # where it is seen while a test's output is captured


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts what runs in its background with SIGINT ignored, and children inherit that:
    # nobody could interrupt what tests of interruption start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(tiers)


@pytest.hookimpl(tryfirst=True)  # before `tiers`, which marks the tests that have no mark yet
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    sweeps.leave_out(items)
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_SLOW_TEST_SECONDS))


def pytest_collection_finish() -> None:
    """Tests stay to the end: no search for garbage has to go through thousands of them."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """The time limit fails a test in Python; one that hangs in native code ends the run."""
    marker = item.get_closest_marker("timeout")
    limit = float(marker.args[0] if marker else item.config.getini("timeout") or 0)
    if limit:
        faulthandler.dump_traceback_later(2 * limit, exit=True, file=_stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def faults_stay_in_their_test() -> Iterator[None]:
    """Launches that faulted are told to every thread that waits, in later tests too."""
    yield
    tiers.forget_faults()


@pytest.fixture(scope="session")
def vdev_lib() -> ctypes.CDLL:
    """The virtual device, whose test entry points are vdev_test_*."""
    return open_library()
