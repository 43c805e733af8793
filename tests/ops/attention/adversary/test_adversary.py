"""Kernels on inputs that are meant to break them; `benchmarks/attention_inputs.py` has more."""

from __future__ import annotations

import pytest

from tests.support.adversary.classes import CLASSES
from tests.support.adversary.sweep import made, sweep

HELD = [(family, name) for name in CLASSES for family in ("wide", "narrow")]
# Of the bar, single rows of the kernels that truncate P: docs/attention-forward.md.
LEFT = 1.25
IDS = [f"{family}: {name}" for family, name in HELD]


@pytest.mark.parametrize(("family", "name"), HELD, ids=IDS)
def test_held(family: str, name: str) -> None:
    for number in range(1 if family == "narrow" else 2):
        launch = made(name, number, seed=1, family=family)
        verdicts, _ = launch.run()
        for head, verdict in enumerate(verdicts):
            assert verdict.holds, (
                f"{launch.kernel.name}, head {head}: {verdict.kind} {verdict.worst:.3g} times what "
                f"is allowed, at {verdict.where[verdict.kind]}"
            )


@pytest.mark.slow
@pytest.mark.parametrize(("family", "name"), HELD, ids=IDS)
def test_held_many_times(family: str, name: str) -> None:
    failures = [
        f"{tried.label} head {head}: {verdict.kind} {verdict.worst:.3g}"
        for tried in sweep(350, seed=2, names=[name], family=family)
        for head, verdict in enumerate(tried.verdicts)
        if verdict.worst > LEFT
    ]
    assert not failures


def test_the_control_holds() -> None:
    """Plain with its sums in another order passes: a failure is no accident of the bar."""
    for tried in sweep(200, seed=3):
        assert all(verdict.holds for verdict in tried.control), tried.label
