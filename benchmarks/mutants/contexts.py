"""A pytest plugin: which tests run which lines of amdattn, how long each takes, which fail; JSON.

AMDATTN_CONTEXTS=out.json python -m pytest -n0 -p benchmarks.mutants.contexts tests/op ...
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

_SOURCE = Path(__file__).resolve().parents[2] / "amdattn"
_measured = coverage.Coverage(data_file=None, source=[str(_SOURCE)], config_file=False)
_measured.start()
_seconds: dict[str, float] = defaultdict(float)
_failed: set[str] = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """Everything that a test runs, its fixtures included, is of its context."""
    _measured.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        _measured.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Set-up, call and tear-down together."""
    _seconds[report.nodeid] += report.duration
    if report.failed:
        _failed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    """Write what was seen."""
    _measured.stop()
    data = _measured.get_data()
    lines = {
        str(Path(file).relative_to(_SOURCE.parent)): {
            line: sorted(filter(None, contexts))
            for line, contexts in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
    Path(os.environ["AMDATTN_CONTEXTS"]).write_text(
        json.dumps({"lines": lines, "seconds": _seconds, "failed": sorted(_failed)})
    )
