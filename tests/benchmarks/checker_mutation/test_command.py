"""python -m benchmarks.checker_mutation, as its user types it; nothing is launched."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from amdattn.device import manifest
from benchmarks.checker_mutation import __main__ as command
from tests.support.gpu import compiled
from tests.support.shipped import shipped

ARGS = "in in int32[4, 256] low=0 high=1000; out out int32[4]"
GEOMETRY = ("--grid", 4, "--workgroup", "256,1")


class FakeCampaign:
    """What a campaign gives, without launching anything."""

    def __init__(self, *failures: str) -> None:
        self.failures = list(failures)

    def table(self) -> str:
        return "a table"

    def as_dict(self) -> dict[str, Any]:
        return {"failures": self.failures}


@pytest.fixture
def mutate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["checker_mutation", *map(str, args)])
        code = command.main()
        return code, *capsys.readouterr()

    return run


@pytest.mark.parametrize("op", ["merge_state", pytest.param("", marks=pytest.mark.slow)])
def test_mutate(mutate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    """ "all" is every kernel; where `op` is given, there are no others."""
    rows = [row for row in shipped() if not op or row.op == op]
    monkeypatch.setattr(manifest, "kernels", lambda: rows)
    calls: list[tuple[Any, ...]] = []

    def campaign(subjects: Any, *, sample: Any, seed: int, progress: Any) -> FakeCampaign:
        progress("mutants", 1, 2)
        calls.append((subjects, sample, seed))
        return FakeCampaign(*["a class is missed"] * (len(calls) - 1))

    monkeypatch.setattr(command, "campaign", campaign)
    status, out, errors = mutate("all", "--sample", 3, "--seed", 5)
    assert status == 0 and "a table" in out, out + errors
    assert [subject.name for subject in calls[0][0]] == [row.name for row in rows]
    assert calls[0][1:] == (3, 5)
    status, out, _ = mutate("merge_state" if op else "attention")
    assert status == 1 and "a class is missed" in out
    file = tmp_path / "reduce.hsaco"
    file.write_bytes(compiled("lds_reduce"))
    status, out, _ = mutate(file, *GEOMETRY, "--args", ARGS, "--json")
    assert status == 1 and len(json.loads(out)["failures"]) == 2
    (subject,) = calls[2][0]
    (case,) = subject.cases
    assert (subject.symbol, case.grid, case.workgroup) == ("lds_reduce", (4, 1, 1), (256, 1, 1))
    assert [(b.name, b.nbytes, b.output, b.contract) for b in case.buffers] == [
        ("in", 4096, False, "read_only"),
        ("out", 16, True, ""),
    ]
    assert case.buffers[1].data is None and case.pointers == ((0, 0), (8, 1))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("attention", "--sample", 0), "--sample"),
        (("attention", "--grid", "4"), "--grid cannot be combined with attention"),
        (("narrow_indices", "--grid", "4"), "--grid cannot be combined with narrow_indices"),
        (
            ("nosuch", "--grid", "4"),
            "subject 'nosuch' is neither one of attention, attention_backward,",
        ),
    ],
)
def test_a_wrong_command_line(mutate: Any, args: tuple[object, ...], message: str) -> None:
    status, out, errors = mutate(*args)
    assert status == 2 and not out and message in errors
