"""The child process: runs steps and sends each row to its parent as a line of JSON."""

from __future__ import annotations

import ctypes
import json
import os
import signal
from typing import Any

_PR_SET_PDEATHSIG = 1


def main(group: str, quick: bool, pipe: int) -> None:
    """Run the steps of a group (amdattn.report.steps.GROUPS), and report to `pipe`."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # never outlive the waiting parent

    lines = os.fdopen(pipe, "w", encoding="utf-8")

    def tell(**message: Any) -> None:
        print(json.dumps(message), file=lines, flush=True)

    # The first step's time has begun: imports and planning are part of it.
    from amdattn.report.steps import GROUPS

    for step in GROUPS[group](quick):
        tell(start=step.name)
        error = ""
        try:
            for row in step.run():
                tell(row={"what": row.what, "outcome": row.outcome, "text": row.text,
                          "data": row.data})  # fmt: skip
        except Exception as caught:
            error = f"{type(caught).__name__}: {caught}"
        usable = _usable()
        tell(end=step.name, error=error, usable=usable)
        if not usable:
            break


def _usable() -> bool:
    """Whether the device still answers: after a fault, later steps would mean nothing."""
    from amdattn.device import runtime

    try:
        runtime.synchronize()
    except Exception:  # this also covers a library that lacks functions of hip-python
        return False
    return True
