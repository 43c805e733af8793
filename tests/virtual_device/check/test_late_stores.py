"""Coherent stores and atomics that take effect late, and waves that stand still.

No rule finds these defects: every access is coherent. Under some schedules the result is wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amdattn.checking import schedules
from amdattn.checking.arguments import read_arguments
from amdattn.checking.findings import ORDER, FindingLog
from amdattn.checking.subjects import CodeObject
from tests.support.check.checked_launch import Checked, code_object

WORKGROUPS = 16
RIGHT = ("atomics", "atomics_written_back", "stores")
WRONG = ("atomics_no_wait", "atomics_no_barrier", "stores_no_wait", "stores_no_barrier")
SEEDS = range(24)


def add_up(checked: Checked, kernel: str, **options: int) -> tuple[list[dict[str, Any]], bool]:
    """Findings of one launch, and whether the sums are right."""
    count = 128 * WORKGROUPS if kernel.startswith("stores") else 128
    arrays = [np.zeros(words, np.uint32) for words in (count, 1, 128)]
    found, (_, counter, out) = checked.run(
        "arrivals", kernel, *arrays, WORKGROUPS, workgroups=WORKGROUPS, lanes=128, **options
    )
    assert counter[0] == WORKGROUPS
    values = np.outer(np.arange(WORKGROUPS) + 1, np.arange(128) + 1)
    return found, bool((out == values.sum(axis=0)).all())


@pytest.mark.parametrize("residency", [0, 2])
@pytest.mark.parametrize("kernel", RIGHT)
def test_sums_are_right_under_every_schedule(checked: Checked, kernel: str, residency: int) -> None:
    for seed in SEEDS:
        assert add_up(checked, kernel, seed=seed, resident_workgroups=residency) == ([], True)


@pytest.mark.parametrize("kernel", WRONG)
def test_missing_wait_or_barrier_shows(checked: Checked, kernel: str) -> None:
    runs = [add_up(checked, kernel, seed=seed) for seed in SEEDS]
    assert not all(right for _, right in runs)
    # Only of data that are loaded does a rule tell.
    assert any(found for found, _ in runs) == (kernel == "stores_no_wait")


def test_stores_that_are_not_late_hide_a_missing_wait(checked: Checked) -> None:
    for seed in SEEDS:
        assert add_up(checked, "atomics_no_wait", seed=seed, late_stores=0) == ([], True)


@pytest.mark.parametrize("kernel", ["atomics", "atomics_no_wait", "atomics_no_barrier"])
def test_kind_of_the_finding(tmp_path: Path, kernel: str) -> None:
    file = tmp_path / "arrivals.hsaco"
    file.write_bytes(code_object("arrivals"))
    arguments = read_arguments(
        "sums zero uint32[128]; counter inout uint32[1] zeros; out out uint32[128];"
        f"workgroups uint32 {WORKGROUPS}"
    )
    subject = CodeObject(file, kernel, (WORKGROUPS, 1, 1), (128, 1, 1), arguments)
    log = FindingLog()
    for _ in schedules.run(subject, schedules.schedules(40), log):
        pass
    errors = {finding.kind for finding in log if finding.severity == "error"}
    assert (ORDER in errors) == (kernel != "atomics"), [str(finding) for finding in log]


def test_order_within_a_workgroup(checked: Checked) -> None:
    words, out = np.zeros(128, np.uint32), np.zeros(64, np.uint32)
    for seed in SEEDS:
        _, (left, seen) = checked.run(
            "arrivals", "own_workgroup", words, out, workgroups=1, lanes=128, seed=seed
        )
        np.testing.assert_array_equal(left, np.repeat([12, 7], 64))
        np.testing.assert_array_equal(seen, np.full(64, 12 * 256 + 7))


def test_late_is_not_never(checked: Checked) -> None:
    flag, answer, out = (np.zeros(words, np.uint32) for words in (1, 1, 128))
    for seed in SEEDS:
        _, arrays = checked.run("arrivals", "answered", flag, answer, out, seed=seed)
        assert all((array == 1).all() for array in arrays)
