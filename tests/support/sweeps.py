"""Of a test with many cases, the default run takes some, and the rest is `slow`.

All cases of sweeps over kernels, sizes and options took most of the time of a run and found little
more than some of them do. Which ones run depends on AMDATTN_SWEEP, 0 by default: `.ci/run` takes
other ones every time. A file's whole sweeps run with `-m ""`.
"""

from __future__ import annotations

import os
import zlib
from collections import defaultdict
from collections.abc import Sequence

import pytest

from tests.support.paths import TESTS

WHOLE = ("docs", "packaging")  # folders whose sweeps are over files that a change may break
# A test with at most so many cases runs all of them, one with more runs at least so many. Of a
# parameter with at most so many values, each is in some case that runs.
FEW = 8
SHARE = 4  # of more cases, one in so many runs
TURN = "AMDATTN_SWEEP"  # any word; another one chooses other cases


def some(cases: Sequence[pytest.Function], turn: str) -> list[pytest.Function]:
    """Choose one case in SHARE, at least FEW, and every value of each parameter that has few."""
    shuffled = sorted(cases, key=lambda case: zlib.crc32(f"{turn} {case.name}".encode()))
    values = {case: set(case.callspec.indices.items()) for case in shuffled}
    long = {name for of in values.values() for name, index in of if index >= FEW}
    chosen: list[pytest.Function] = []
    seen: set[tuple[str, int]] = set()
    for case in shuffled:
        new = {(name, index) for name, index in values[case] if name not in long} - seen
        if new:
            chosen.append(case)
            seen |= new
    covering = set(chosen)
    rest = [case for case in shuffled if case not in covering]
    return chosen + rest[: max(0, max(FEW, -(-len(cases) // SHARE)) - len(chosen))]


def leave_out(items: Sequence[pytest.Item]) -> None:
    """Mark the cases that are not chosen as slow."""
    sweeps: dict[str, list[pytest.Function]] = defaultdict(list)
    for item in items:
        whole = any(item.path.is_relative_to(TESTS / folder) for folder in WHOLE)
        if not whole and isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            sweeps[item.nodeid.split("[", maxsplit=1)[0]].append(item)
    turn = os.environ.get(TURN, "0")
    for cases in sweeps.values():
        unmarked = [case for case in cases if not case.get_closest_marker("slow")]
        chosen = set(some(unmarked, turn)) if len(unmarked) > FEW else set(unmarked)
        for case in unmarked:
            if case not in chosen:
                case.add_marker("slow")
