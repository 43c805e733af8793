"""What the two HIP runtimes answer otherwise, as the table of docs/real-gpu.md has it."""

from __future__ import annotations

from typing import Any

from tests.support.amd_difference import ENDS, PRELUDE, Difference
from tests.support.amd_differences import DIFFERENCES
from tests.support.forked_programs import Outcome, run_each

SAID = "said: "


def answer(outcome: Outcome) -> str:
    """What a program said, or that it ended; AMD's runtime writes to stdout, too."""
    status, out, err = outcome
    said = [line.partition(SAID)[2] for line in out.splitlines() if SAID in line]
    if status < 0:
        said.append(ENDS)
    return "; ".join(said) or err.strip()[-500:]


def test_answers(hip: Any) -> None:
    outcomes = run_each(hip, [PRELUDE + row.program for row in DIFFERENCES])

    def expected(row: Difference) -> list[str]:
        return (row.amd if hip.is_amd else row.ours).split(", or ")

    assert {
        row.call: found
        for row, outcome in zip(DIFFERENCES, outcomes, strict=True)
        if (found := answer(outcome)) not in expected(row)
    } == {}
