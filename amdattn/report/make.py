"""Makes a report: runs the steps of the device, then those of the model, and writes both files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amdattn.arch.products import REFERENCE
from amdattn.device import binding
from amdattn.output_files import replacing
from amdattn.report import document, facts, supervise
from amdattn.report.steps import GROUPS
from amdattn.report.supervise import SKIPPED, Outcome, Planned

Command = Callable[[int], list[str]]


@dataclass(frozen=True)
class Part:
    """Steps that one child process runs, and its command."""

    planned: Sequence[Planned]
    command: Command
    environment: dict[str, str] | None = None


def parts(quick: bool, limit_s: float | None) -> tuple[Part, Part]:
    """The steps on the bound device, and those of the model on the virtual device."""
    made = []
    for group, steps in GROUPS.items():
        planned = [Planned(s.name, s.title, limit_s or s.limit_s) for s in steps(quick)]
        environment = None
        if group == "model":
            asked = os.environ.get(binding.ENVIRONMENT_VARIABLE, "")
            device = asked if asked.startswith("virtual:") else f"virtual:{REFERENCE.arch}"
            environment = {**os.environ, binding.ENVIRONMENT_VARIABLE: device}
        made.append(Part(planned, supervise.child(group, quick), environment))
    return made[0], made[1]


def make(
    of: tuple[Part, Part],
    files: tuple[Path, Path],
    *,
    quick: bool,
    advance: Callable[[str], None] = lambda title: None,
) -> dict[str, Any]:
    """Run the parts, write (JSON, Markdown) files, and return the document.

    The files are written even if steps fail.
    """
    begin = time.monotonic()
    outcomes: list[list[Outcome]] = []
    interrupted = False
    for part in of:
        if interrupted:
            outcomes.append([Outcome(step, SKIPPED) for step in part.planned])
            continue
        found = supervise.run(
            part.planned, part.command, environment=part.environment, advance=advance
        )
        interrupted = any(outcome.error == supervise.INTERRUPTED for outcome in found)
        outcomes.append(found)
    report = document.document(
        facts.host(), outcomes[0], outcomes[1], time.monotonic() - begin, quick
    )
    for path, text in zip(
        files, (document.to_json(report), document.markdown(report)), strict=True
    ):
        with replacing(path) as new:
            new.write_text(text, encoding="utf-8")
    return report
