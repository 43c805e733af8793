"""Slots of gfx950's vector instructions: those of ROCm/gfx950-gluon-tutorials."""

from __future__ import annotations

import pytest

from tests.support.valu_probes import PROBED, found


@pytest.fixture(scope="module")
def clk() -> dict[str, float]:
    return found()


@pytest.mark.parametrize("text", PROBED)
def test_slots(clk: dict[str, float], text: str) -> None:
    """A slot of 4 clk; five of a swap of rows between lanes, two of a transcendental."""
    slots = 5 if "permlane" in text else 2 if "exp" in text else 1
    assert clk[text] == 4 * slots
