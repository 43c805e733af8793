"""Kernels on inputs that are meant to break them; `benchmarks/attention_inputs.py` has more."""

from __future__ import annotations

import pytest
from adversary.classes import CLASSES
from adversary.sweep import made, sweep

# What the kernels of a family do not hold yet. Whoever mends a class takes it out.
NOT_YET: dict[str, frozenset[str]] = {
    "wide": frozenset(
        {
            "keys of minus infinity in a window",
            "keys of minus infinity",
            "scores that overflow",
            "tiny v and few keys",
            "rows without keys",
            "a sink key without value",
            "large v far below",
            "small columns of v",
            "one key with a small v",
            "two levels",
            "scores beyond 30000",
            "large scores in common",
            "scores that grow",
            "scores that jump",
            "a common offset of 2 17",
            "enormous sinks",
            "sinks far above",
            "a scale of zero",
            "v of every size",
            "sums that overflow",
            "large v beside small",
            "several at once",
        }
    ),
    "narrow": frozenset(),
}
HELD = [(f, name) for name in CLASSES for f, not_yet in NOT_YET.items() if name not in not_yet]
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
        if not verdict.holds
    ]
    assert not failures


def test_the_control_holds() -> None:
    """Plain with its sums in another order passes: a failure is no accident of the bar."""
    for tried in sweep(200, seed=3):
        assert all(verdict.holds for verdict in tried.control), tried.label
