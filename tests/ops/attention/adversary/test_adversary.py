"""Kernels on inputs that are meant to break them; `benchmarks/attention_inputs.py` has more."""

from __future__ import annotations

import pytest

from tests.support.adversary.classes import CLASSES
from tests.support.adversary.sweep import failures, made, sweep

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
            assert verdict.holds, f"{launch.kernel.name}, head {head}: {verdict.complaint}"


@pytest.mark.slow
@pytest.mark.parametrize(("family", "name"), HELD, ids=IDS)
def test_held_many_times(family: str, name: str) -> None:
    assert not failures(sweep(350, seed=2, names=[name], family=family), LEFT)


def test_the_control_holds() -> None:
    """Plain with its sums in another order passes: a failure is no accident of the bar."""
    for tried in sweep(200, seed=3):
        assert all(verdict.holds for verdict in tried.control), tried.label
