"""What foreign kernels do by right is no error, and no error hides another.

Unaligned access, a select behind its comparison, launches with more errors than are read at once,
one instruction in conflict with many. The same value written twice is among the planted defects.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import amdattn
from amdattn.checking.findings import FindingLog, read_findings
from amdattn.device import runtime
from tests.support.check.planted import WORDS, Planted, places, run


def tolerated(kernel: str, **more: Any) -> Planted:
    return Planted("tolerated", kernel, "", "", **more)


def of_severity(findings: list[dict[str, Any]], severity: str) -> list[dict[str, Any]]:
    return [f for f in findings if f["severity"] == severity]


def test_loads_and_stores_take_any_address(gpu: Any) -> None:
    outcome = run(gpu, tolerated("unaligned"), repaired=False)
    assert outcome.error == 0, gpu.report
    assert not of_severity(outcome.findings, "error"), outcome.findings
    data = np.random.default_rng(len("unaligned")).integers(1, 1 << 31, WORDS, dtype=np.uint32)
    given = data.view(np.uint8)
    assert outcome.out is not None
    out = outcome.out.view(np.uint8)
    lanes = 16 * np.arange(64)[:, None]
    np.testing.assert_array_equal(out[3 : 3 + 1023], given[1 : 1 + 1023])
    np.testing.assert_array_equal(out[lanes + 1026 + np.arange(8)], given[lanes + 6 + np.arange(8)])
    # What LDS holds from byte 1 of a lane on is what the lane had loaded from byte 1 on.
    read = out[lanes + 2049 + np.arange(14)]
    source = np.concatenate([np.arange(1, 9), np.arange(3, 7), np.arange(7, 9)])
    np.testing.assert_array_equal(read, given[lanes + source])


def test_a_select_behind_its_comparison_is_advice(gpu: Any) -> None:
    planted = tolerated("compare_and_select")
    outcome = run(gpu, planted, repaired=False)
    assert not of_severity(outcome.findings, "error"), outcome.findings
    (advice,) = (f for f in outcome.findings if f["kind"] == "hazard_advice")
    assert advice["pc"] in places(planted, "use")
    assert advice["message"].startswith("valu-sgpr-select: ")


def test_a_call_and_its_return_stay_inside(gpu: Any) -> None:
    """Unlike a jump or a fall out of the kernel: s_swappc_b64 there, s_setpc_b64 back."""
    outcome = run(gpu, tolerated("calls"), repaired=False)
    assert outcome.error == 0 and outcome.out is not None, gpu.report
    assert not of_severity(outcome.findings, "error"), outcome.findings
    np.testing.assert_array_equal(outcome.out[:64], 3 * np.arange(64))


def test_a_launch_with_many_errors_shows_all_of_them(gpu: Any) -> None:
    outcome = run(gpu, tolerated("many_errors"), repaired=False)
    assert outcome.error == 0 and outcome.out is not None, gpu.report
    errors = of_severity(outcome.findings, "error")
    assert len({f["pc"] for f in errors}) == len(errors) == 150
    np.testing.assert_array_equal(outcome.out[:64], 1)
    ended = run(gpu, tolerated("many_errors"), repaired=False, max_errors=100)
    gpu.option("max_errors", 0)
    assert ended.error != 0 and len(of_severity(ended.findings, "error")) == 100


def test_one_instruction_is_one_finding(gpu: Any) -> None:
    """Whatever it is in conflict with: the first producers are named, all are counted."""
    planted = tolerated("many_producers", lanes=128)
    outcome = run(gpu, planted, repaired=False)
    (error,) = of_severity(outcome.findings, "error")
    assert error["kind"] == "lds_race" and error["pc"] in places(planted, "use")
    producers = [error["producer_pc"], *error["other_producers"]]
    assert len(producers) == len(set(producers)) == 16
    assert error["count"] >= 40


def test_findings_of_several_launches_are_grouped_alike() -> None:
    def launch(*producers: int) -> dict[str, Any]:
        keys = ("kind", "severity", "message", "pc", "offset", "text", "producer_text", "where")
        first = dict.fromkeys(keys, "x") | {"pc": 64, "offset": 0, "count": 2, "lane": 0, "wave": 0}
        first |= {"kind": "lds_race", "severity": "error", "workgroup": [0, 0, 0]}
        first |= {"producer_pc": producers[0], "other_producers": list(producers[1:])}
        entry = {"kernel": "k", "code_object": 0, "grid": [1, 1, 1], "workgroup_size": [64, 1, 1]}
        entry |= {"times": 1}
        return {"launches": [entry | {"findings": [first]}], "host_findings": []}

    log = FindingLog()
    for producers in ((4, 8), (8, 12), tuple(range(16, 96, 4))):
        log.add(*read_findings(launch(*producers), str))
    (found,) = log
    assert (found.count, found.producer_pc) == (6, 4)
    assert found.other_producers == (8, 12, *range(16, 68, 4))
    assert "0x4: x (also 0x8, 0xc, 0x10" in str(found)


def test_no_launch_is_ended_for_its_errors_unless_asked() -> None:
    with amdattn.virtual.check(raise_on=None):
        exports = runtime.get().virtual_exports()
        assert exports.set_options(max_errors=0) == {"max_errors": 0}
