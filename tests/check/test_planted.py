"""Every planted defect is reported once, at its instruction; its repaired twin has no finding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu import gpu
from planted import ORDER, PLANTED, Planted, notable, places, run

__all__ = ["gpu"]

EACH = pytest.mark.parametrize("planted", PLANTED, ids=lambda p: p.kernel)


def describe(findings: list[dict[str, Any]]) -> str:
    return "\n".join(
        f"{f['kind']} pc {f['pc'] or 0:#x} {f['text']} <- {f['producer_pc'] or 0:#x} "
        f"lane {f['lane']} [{f['where']}] {f['message']} x{f['count']}"
        for f in findings
    )


@EACH
def test_the_defect_is_found_once_at_its_place(gpu: Any, planted: Planted) -> None:
    outcome = run(gpu, planted, repaired=False)
    found = notable(outcome, planted.severity)
    assert [f["kind"] for f in found] == [planted.kind], describe(outcome.findings)
    finding = found[0]
    assert finding["severity"] == planted.severity
    assert (outcome.error != 0) == planted.fails, gpu.report
    if planted.place is None:
        assert finding["pc"] is None
    else:
        assert finding["pc"] in places(planted, planted.place), describe(found)
    if planted.producer is not None:
        assert finding["producer_pc"] in places(planted, planted.producer), describe(found)
    if planted.where is not None:
        assert finding["where"].startswith(planted.where), describe(found)
    assert finding["message"]


@EACH
def test_the_repaired_twin_is_clean(gpu: Any, planted: Planted) -> None:
    outcome = run(gpu, planted, repaired=True)
    assert not notable(outcome, "counted"), describe(outcome.findings)
    assert outcome.error == 0, gpu.report


@pytest.mark.parametrize("kernel", ORDER)
def test_a_result_that_depends_on_the_schedule(gpu: Any, kernel: str) -> None:
    planted = Planted("order", kernel, "", "", workgroups=16)

    def distinct(repaired: bool) -> int:
        outcomes = [run(gpu, planted, repaired, seed=seed) for seed in range(8)]
        for outcome in outcomes:
            assert outcome.error == 0 and not notable(outcome), describe(outcome.findings)
        return len(np.unique([outcome.out for outcome in outcomes], axis=0))

    assert distinct(repaired=True) == 1
    assert distinct(repaired=False) > 1
