"""Every planted defect is reported once, at its instruction; its repaired twin has no finding."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.check.planted import (
    ORDER,
    PLANTED,
    Planted,
    notable,
    outputs,
    places,
    run,
)
from tests.support.check.planted_page import page
from tests.support.paths import ROOT

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


@pytest.mark.parametrize(
    "planted", [p for p in PLANTED if p.group == "waits" and p.lanes == 64], ids=lambda p: p.kernel
)
def test_a_missing_wait_gives_wrong_data(gpu: Any, planted: Planted) -> None:
    """Loads arrive as late as the waits allow."""
    defect, twin = (run(gpu, planted, repaired) for repaired in (False, True))
    assert defect.out is not None and twin.out is not None
    assert (defect.out[:64] != twin.out[:64]).all()
    assert (defect.out[64:] == 0).all() and (twin.out[64:] == 0).all()


@pytest.mark.parametrize("planted", ORDER, ids=lambda p: p.kernel)
def test_a_result_that_depends_on_the_schedule(gpu: Any, planted: Planted) -> None:
    assert outputs(gpu, planted, repaired=True) == 1
    assert outputs(gpu, planted, repaired=False) > 1


def test_the_page_is_what_is_found(gpu: Any) -> None:
    written = ROOT / "docs" / "generated" / "checked-mode-planted.md"
    assert written.read_text() == page(gpu), "run tests.support.check.planted_page"
