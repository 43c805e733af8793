"""`python -m tests.support.check.planted_page` prints docs/generated/checked-mode-planted.md."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

from tests.support.check import planted_cdna4
from tests.support.check.planted import ORDER, PLANTED, SCHEDULES, Planted, notable, outputs, run
from tests.support.gpu import Gpu

_HEAD = """# Planted defects

One kernel per class of defect (`tests/virtual_device/check/planted/*.hip`), each with
one instruction too few, too many or wrong, and a twin without it (`-DREPAIRED`). Checked
mode reports each defect once, at the marked instruction, and nothing in the twins. Those of
group `cdna4` are of instructions that only gfx950 has.
`python -m tests.support.check.planted_page` writes this page;
`tests/virtual_device/check/test_planted.py` and `test_planted_cdna4.py` assert what it says.
"""
_COLUMNS = ("Group", "Kernel", "Defect", "Finding", "Instruction", "Message", "Twin")

Findings = list[dict[str, Any]]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _found(planted: Planted, defect: Findings, twin: Findings) -> str:
    text = "; ".join(f["text"] for f in defect)
    message = "; ".join(f["message"] for f in defect).replace("|", "\\|")
    return _row(
        (
            planted.group,
            f"`{planted.kernel}`",
            planted.defect,
            "; ".join(f["kind"] for f in defect) or "none",
            f"`{text}`" if text else "",
            re.sub(r"0x7[0-9a-f]{11}", "ADDRESS", message),
            "; ".join(f["kind"] for f in twin) or "none",
        )
    )


def _cdna4() -> list[str]:
    outcomes = planted_cdna4.found()

    def findings(planted: Planted, repaired: bool, kept: set[str]) -> Findings:
        of = outcomes[planted.kernel][repaired]["findings"]
        return [f for f in of if f["severity"] in kept]

    return [
        _found(
            planted,
            findings(planted, False, {"error"}),
            findings(planted, True, {"error", "counted"}),
        )
        for planted in planted_cdna4.CDNA4
    ]


def page(gpu: Gpu) -> str:
    """All of it; the device is a gfx942."""
    lines = [_HEAD, _row(_COLUMNS), "|---" * len(_COLUMNS) + "|"]
    for planted in PLANTED:
        defect = notable(run(gpu, planted, repaired=False), planted.severity)
        lines.append(_found(planted, defect, notable(run(gpu, planted, repaired=True), "counted")))
    lines += _cdna4()
    for planted in ORDER:
        different = outputs(gpu, planted, repaired=False)
        same = outputs(gpu, planted, repaired=True)
        message = f"{different} different outputs under {SCHEDULES} schedules"
        kind = "order" if different > 1 else "none"
        cells = (planted.group, f"`{planted.kernel}`", planted.defect, kind, "", message)
        lines.append(_row((*cells, "none" if same == 1 else "order")))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import tests.conftest  # noqa: F401  (chooses the virtual device)

    sys.stdout.write(page(Gpu()))
