"""Tiers of tests: fast, device, slow, oracles; and what holds the first to its promise.

Every test is of one tier. `slow` and `oracles` are marked by hand. Of the others those are `fast`
that the table below names, by folder or module: no kernel is launched, and the whole tier takes
less than 120 seconds on two cores (`pytest -m fast`). The rest is `device`. A mark `fast` or
`device` at a test or in a module goes before the table, also where a test takes long without a
launch. By default both of these run.

A fast test that launches a kernel fails, and so does one that starts another Python, which might.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from amdattn.device.virtual_library import library_path
from tests.support.paths import TESTS

TIERS = ("fast", "device", "slow", "oracles")
# By folder: all of it, or modules by name.
ALL = ("",)
FAST = {
    "": ("elsewhere", "user_files"),
    "arch": ALL,
    "arrays": ("capsules", "edges_of_inputs", "element_types", "overlap"),
    "bench": (
        *("clocks", "exact_records", "items", "listed_tables", "readings", "replay", "report"),
        *("shapes", "tables", "tables_gfx950", "traffic"),
    ),
    "benchmarks": ("compiled_gfx950", "moonmath"),
    "build_scripts": ALL,
    "checking": (
        *("code_object_facts", "surface_arguments", "surface_listing", "surface_session"),
        "surface_suppressions",
    ),
    "cli": ("cli_usage", "command_tables", "listed_options", "what_runs"),
    "device": ("binding_answers", "device_query", "kernel_rows", "manifest_schema", "packs"),
    "docs": ("documented_commands", "kernel_questions", "pages", "refused"),
    "examples/llama": ("checkpoint", "config", "tokenizer"),
    "kernels": ("schedules",),
    "op": ("validation", "workspace"),
    "ops": (
        *("choice_time", "defaults", "explained_facts", "plans_as_listed", "random_plans"),
        *("two_architectures", "what_is_looked_up"),
    ),
    "ops/attention": (
        *("attention_plan", "basis", "head_split", "kv_split", "list_schedule", "mix"),
        "problem",
        "work_item_edges",
    ),
    "ops/attention/adversary": ("bar",),
    "ops/attention_backward": ("attention_backward_plan",),
    "ops/decode": ("decode_plan", "decode_reference", "decode_refusals"),
    "packaging": ("contents", "layout", "levels", "literals"),
    "peers": ("unwaited",),
    "testing": ("do_bench", "reference"),
    "virtual_device/check": ("hazards", "uninitialised", "uninitialised_oracle"),
    "virtual_device/core": ("loader", "loader_compiled", "memory"),
    "virtual_device/isa": ALL,
    "virtual_device/numerics": ALL,
}
_RTLD_NOLOAD = 4
_COMPILER = ["-m", "ziglang"]
_BEFORE = pytest.StashKey[int]()
_running: list[str] = []  # the fast test that runs in this process, if one does


def tier_of(path: Path) -> str:
    """Of tests in a file that have no mark."""
    if not path.is_relative_to(TESTS):
        return "device"
    modules = FAST.get(path.parent.relative_to(TESTS).as_posix().removeprefix("."), ())
    is_fast = modules is ALL or path.stem.removeprefix("test_") in modules
    return "fast" if is_fast else "device"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test with its tier."""
    for item in items:
        marked = {mark.name for mark in item.iter_markers() if mark.name in TIERS}
        if {"fast", "device"} <= marked:
            raise pytest.UsageError(f"{item.nodeid} is marked fast and device")
        if not marked:
            item.add_marker(tier_of(item.path))


def _opened() -> ctypes.CDLL | None:
    """The virtual device's library, if anybody has opened it."""
    try:
        return ctypes.CDLL(str(library_path()), mode=_RTLD_NOLOAD)
    except OSError:
        return None


def forget_faults() -> None:
    """Have no later test be told of launches that have faulted."""
    library = _opened()
    if library is not None:
        library.hipDeviceReset()


def num_launches() -> int:
    """Kernels that the virtual device has run in this process."""
    library = _opened()
    if library is None:
        return 0
    library.hipDeviceSynchronize()
    library.amdattn_vdev_counter.restype = ctypes.c_uint64
    return int(library.amdattn_vdev_counter(b"launches"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """From here on, a fast test's fixtures included, what it must not do fails."""
    if item.get_closest_marker("fast") is not None:
        item.stash[_BEFORE] = num_launches()
        _running.append(item.nodeid)
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Up to here."""
    try:
        result = yield
    finally:
        _running.clear()
    if _BEFORE in item.stash:
        launched = num_launches() - item.stash[_BEFORE]
        assert not launched, (
            f"{item.nodeid} is of the fast tier, and {launched} kernels were launched in its time: "
            "by it, or for results that an earlier test has not waited for"
        )
    return result


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    """What starts a process that may launch: Python, but not the compiler that it runs."""
    if not _running or event not in ("subprocess.Popen", "os.fork"):
        return
    command = list(map(str, arguments[1])) if event == "subprocess.Popen" else [event]
    if event == "os.fork" or (command[0] == sys.executable and command[1:3] != _COMPILER):
        raise RuntimeError(f"{_running[-1]} is of the fast tier, and starts {command[:3]}")


sys.addaudithook(_audit)
