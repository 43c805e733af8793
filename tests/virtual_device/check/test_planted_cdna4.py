"""Defects that only gfx950's memory instructions can have, in the manner of test_planted.py."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.check.planted import Planted, places
from tests.support.check.planted_cdna4 import CDNA4, found

EACH = pytest.mark.parametrize("planted", CDNA4, ids=lambda p: p.kernel)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, list[dict[str, Any]]]:
    return found()


def errors(outcome: dict[str, Any]) -> list[dict[str, Any]]:
    return [f for f in outcome["findings"] if f["severity"] == "error"]


@EACH
def test_the_defect_is_found_once_at_its_place(outcomes: Any, planted: Planted) -> None:
    outcome = outcomes[planted.kernel][0]
    assert [f["kind"] for f in errors(outcome)] == [planted.kind], outcome["findings"]
    (finding,) = errors(outcome)
    assert (outcome["error"] != 0) == planted.fails
    assert planted.place is not None
    assert finding["pc"] in places(planted, planted.place), finding
    if planted.producer is not None:
        assert finding["producer_pc"] in places(planted, planted.producer), finding
    if planted.where is not None:
        assert finding["where"].startswith(planted.where), finding


@EACH
def test_the_repaired_twin_is_clean(outcomes: Any, planted: Planted) -> None:
    outcome = outcomes[planted.kernel][1]
    assert not [f for f in outcome["findings"] if f["severity"] != "advice"]
    assert outcome["error"] == 0


@pytest.mark.parametrize(
    "planted", [p for p in CDNA4 if p.kind == "use_before_wait"], ids=lambda p: p.kernel
)
def test_a_missing_wait_gives_wrong_data(outcomes: Any, planted: Planted) -> None:
    """Loads arrive as late as the waits allow, all 16 bytes of them."""
    defect, twin = (o["out"] for o in outcomes[planted.kernel])
    assert all(a != b for a, b in zip(defect[:64], twin[:64], strict=True))


def test_the_finding_names_the_lane_that_got_the_element(outcomes: Any) -> None:
    (finding,) = errors(outcomes["transposed_uninitialised_element"][0])
    assert finding["lane"] == 6


def test_stale_data_are_all_old(outcomes: Any) -> None:
    """Each of the 16 bytes of a lane shows what was there before."""
    stale, fresh = (o["out"][:64] for o in outcomes["stale_dwords_in_a_load_to_lds"])
    assert not any(stale) and all(fresh)
