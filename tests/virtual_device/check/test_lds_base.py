"""A load to LDS whose M0 is no multiple of 4 goes elsewhere than it says, which is reported."""

from __future__ import annotations

from typing import Any

from tests.support.check.planted import Planted, places, run


def test_m0_of_a_load_to_lds_is_a_multiple_of_four(gpu: Any) -> None:
    planted = Planted("lds_base", "lds_base", "misaligned", "")
    (finding,) = (f for f in run(gpu, planted, repaired=False).findings if f["severity"] == "error")
    assert finding["kind"] == "misaligned" and finding["where"] == "m0"
    assert finding["pc"] in places(planted, "use")
    assert (
        "M0 is 0x2, which is not a multiple of 4: the load to LDS goes to 0x0" in finding["message"]
    )
    repaired = run(gpu, planted, repaired=True)
    assert not [f for f in repaired.findings if f["severity"] == "error"]
