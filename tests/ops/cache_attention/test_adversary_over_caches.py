"""Calls over caches on inputs meant to break them; `benchmarks/cache_inputs.py` has more."""

from __future__ import annotations

import pytest

from tests.support.adversary.caches import CACHE_CLASSES, KINDS, made, sweep
from tests.support.adversary.sweep import failures

HELD = [(kind, name) for name in CACHE_CLASSES for kind in KINDS]
IDS = [f"{kind}: {name}" for kind, name in HELD]


@pytest.mark.parametrize(("kind", "name"), HELD, ids=IDS)
def test_held(kind: str, name: str) -> None:
    verdicts, _ = made(kind, name, 0, seed=1).run()
    for head, verdict in enumerate(verdicts):
        assert verdict.holds, f"head {head}: {verdict.complaint}"


# Found by `benchmarks/cache_inputs.py`: kind, class, number, seed.
FOUND = [("cascade", "runs far below", 15, 43)]


@pytest.mark.parametrize(("kind", "name", "number", "seed"), FOUND, ids=str)
def test_found(kind: str, name: str, number: int, seed: int) -> None:
    verdicts, _ = made(kind, name, number, seed).run()
    for head, verdict in enumerate(verdicts):
        assert verdict.holds, f"head {head}: {verdict.complaint}"


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), HELD, ids=IDS)
def test_held_many_times(kind: str, name: str) -> None:
    assert not failures(sweep(150, seed=2, names=[name], kinds=[kind]))
