"""Calls over caches on inputs meant to break them; `benchmarks/cache_inputs.py` has more."""

from __future__ import annotations

import pytest

from tests.support.adversary.caches import CACHE_CLASSES, KINDS, made, sweep

HELD = [(kind, name) for name in CACHE_CLASSES for kind in KINDS]
IDS = [f"{kind}: {name}" for kind, name in HELD]


@pytest.mark.parametrize(("kind", "name"), HELD, ids=IDS)
def test_held(kind: str, name: str) -> None:
    verdicts, _ = made(kind, name, 0, seed=1).run()
    for head, verdict in enumerate(verdicts):
        assert verdict.holds, (
            f"head {head}: {verdict.kind} {verdict.worst:.3g} times what is allowed, at "
            f"{verdict.where[verdict.kind]}"
        )


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), HELD, ids=IDS)
def test_held_many_times(kind: str, name: str) -> None:
    failures = [
        f"{tried.label} head {head}: {verdict.kind} {verdict.worst:.3g}"
        for tried in sweep(150, seed=2, names=[name], kinds=[kind])
        for head, verdict in enumerate(tried.verdicts)
        if not verdict.holds
    ]
    assert not failures
