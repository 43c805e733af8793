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
FEW = 8  # cases that always run, and values of a parameter of which each is in some case that runs
SHARE = 4  # of more cases, one in so many runs
TURN = "AMDATTN_SWEEP"


def some(cases: Sequence[pytest.Function], turn: str) -> list[pytest.Function]:
    """One in SHARE, FEW at least, with every value of each parameter that has few."""
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
    rest = [case for case in shuffled if case not in set(chosen)]
    return chosen + rest[: max(0, max(FEW, -(-len(cases) // SHARE)) - len(chosen))]


def leave_out(items: Sequence[pytest.Item]) -> None:
    """Mark the other cases as slow."""
    sweeps: dict[str, list[pytest.Function]] = defaultdict(list)
    for item in items:
        whole = any(item.path.is_relative_to(TESTS / folder) for folder in WHOLE)
        if not whole and isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            sweeps[item.nodeid.split("[", maxsplit=1)[0]].append(item)
    turn = os.environ.get(TURN, "0")
    for cases in sweeps.values():
        marked = [case for case in cases if case.get_closest_marker("slow")]
        others = [case for case in cases if case not in marked]
        kept = set(some(others, turn)) if len(others) > FEW else set(others)
        for case in others:
            if case not in kept:
                case.add_marker("slow")
