"""Schedules, on subjects that only pretend, and on kernels that are right and wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amdattn.arch.props import KNOWN_DEVICES
from amdattn.checking import schedules
from amdattn.checking.arguments import read_arguments
from amdattn.checking.findings import Finding, FindingLog
from amdattn.checking.index_subject import OfIndices
from amdattn.checking.schedules import Schedule
from amdattn.checking.session import Check
from amdattn.checking.subjects import CodeObject, OfOperation, every_case
from amdattn.device import manifest, runtime
from amdattn.errors import ManifestError
from amdattn.ops.attention.cases import OPERATION, case
from tests.support.gpu import compiled


def test_the_first_schedule_is_the_devices_own() -> None:
    assert schedules.schedules(1) == [Schedule(0, 8, True, 0)]
    made = schedules.schedules(61)
    assert made[0] == Schedule() and len({s.seed for s in made}) == 61
    assert len({(s.quantum, s.late_loads, s.resident_workgroups) for s in made[1:]}) == 40
    assert {s.resident_workgroups for s in schedules.schedules(9, residency=3)} == {3}
    assert not {s.seed for s in schedules.schedules(9, seed=1)[1:]} & {s.seed for s in made}


@pytest.mark.parametrize("arguments", [(0,), (-3,), (4, 0, -1)])
def test_bad_schedules(arguments: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="must be >= "):
        schedules.schedules(*arguments)


class Vector:
    """A subject that launches attention, and hands out what it is told to."""

    title = "vector"

    def __init__(self, *outputs: Any) -> None:
        self.outputs = list(outputs)
        self.options: list[dict[str, object]] = []

    def run(self, check: Check) -> dict[str, Any]:
        OfOperation(OPERATION, case(1, 1)).run(check)
        self.options.append(dict(runtime.get().virtual_exports()._options))
        return {"out": self.outputs.pop(0)}


def run(subject: Any, count: int, **more: Any) -> list[Finding]:
    log = FindingLog()
    for _ in schedules.run(subject, schedules.schedules(count, **more), log):
        pass
    assert log.num_launches >= count
    return [finding for finding in log if finding.severity == "error"]


def test_any_differing_bit_is_a_finding() -> None:
    zeros = np.zeros((3, 4), np.float32)
    other = zeros.copy()
    other[1, 2] = -0.0
    other[2, 0] = 7
    subject = Vector(zeros, zeros, other, other)
    options = runtime.get().virtual_exports()._options
    before = dict(options)
    (found,) = run(subject, 4)
    assert (found.kind, found.severity, found.count) == ("order", "error", 2)
    assert found.message == (
        "2 of 12 elements of out depend on the schedule: out[1, 2] is 0.0 (0x00000000) under "
        "(seed 0, quantum 8, late loads, all resident), and -0.0 (0x80000000) under "
        "(seed 2, quantum 16, mixed loads, all resident)"
    )
    assert found.kernel.startswith("amdattn_attn_fwd") and found.where == "out of vector"
    # Every run had its own options, and nothing is left of them.
    assert [(o["seed"], o["quantum"], o["resident_workgroups"]) for o in subject.options] == [
        (0, 8, 0),
        (1, 1, 1),
        (2, 16, 0),
        (3, 3, 2),
    ]
    assert [o["late_loads"] for o in subject.options] == [1, 1, 0, 1]
    assert options == before


def test_equal_nan_is_no_difference() -> None:
    x = np.array([np.nan, 1], np.float32)
    assert run(Vector(x, x.copy()), 2) == []


REDUCE = "in in int32[4, 256] low=0 high=1000; out out int32[4]"


def reduce(folder: Path, *defines: str) -> CodeObject:
    file = folder / "lds_reduce.hsaco"
    file.write_bytes(compiled("lds_reduce", *defines))
    return CodeObject(file, None, (4, 1, 1), (256, 1, 1), read_arguments(REDUCE))


def test_a_right_kernel(tmp_path: Path) -> None:
    assert run(reduce(tmp_path), 8) == []


def test_a_missing_barrier(tmp_path: Path) -> None:
    found = run(reduce(tmp_path, "MISSING_BARRIER"), 8)
    assert {f.kind for f in found} == {"order", "lds_race"}
    race = next(f for f in found if f.kind == "lds_race")
    assert race.text.startswith("ds_") and race.producer_text.startswith("ds_")
    assert race.where.startswith("lds 0x") and race.lane >= 0


def test_attention_is_declared_and_checked() -> None:
    declared: list[tuple[Any, ...]] = []
    exports = runtime.get().virtual_exports()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exports, "declare", lambda *call: declared.append(call))
        assert run(OfOperation(OPERATION, case(5, 7, num_heads_q=2)), 2) == []
    assert [name for *_, name in declared] == ["q", "k", "v"] * 2
    assert [nbytes for _, _, nbytes, _ in declared[:3]] == [5 * 2 * 256, 7 * 256, 7 * 256]


@pytest.mark.parametrize("product", ["MI300X", "MI355X"])
def test_no_kernel_is_left_out(product: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "device_props", lambda: KNOWN_DEVICES[product])
    assert every_case(0)  # raises if one is


def test_indices_are_a_subject() -> None:
    assert run(OfIndices(3), 4) == []


def test_every_kernel_is_reached_by_every_operation() -> None:
    problems = [one.case.problem for one in every_case(0, "attention")]
    assert {1, 63, 64, 65, 127, 128, 129} <= {problem.seqlen_q for problem in problems}
    assert any(problem.num_heads_kv < problem.num_heads_q for problem in problems)
    assert {problem.return_lse for problem in problems} == {True, False}
    assert len(every_case(0)) > len(problems)


def test_an_operation_without_kernels_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [row for row in manifest.kernels() if row.op != "embedding"]
    monkeypatch.setattr(manifest, "kernels", lambda: others)
    with pytest.raises(ManifestError, match="no kernel of embedding is shipped for gfx"):
        every_case(0, "embedding")
