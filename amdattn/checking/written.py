"""Findings that another program's process has written because of $AMDATTN_FINDINGS."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

from amdattn.checking.findings import Finding, FindingLog, read_findings
from amdattn.checking.sources import SourceLines
from amdattn.user_files import read_json


def read_log(findings: Path, code_objects: Path) -> FindingLog:
    """The findings, with source lines for code objects that have them.

    Parameters
    ----------
    findings : Path
        The file that $AMDATTN_FINDINGS named.
    code_objects : Path
        The folder that $AMDATTN_CODE_OBJECTS named.

    Raises
    ------
    ValueError
        The file holds something else.
    OSError
        It does not exist.
    """
    lines: dict[str, SourceLines] = {}

    def identify(number: int) -> str:
        try:
            image = (code_objects / str(number)).read_bytes()
        except OSError:  # more than the virtual device keeps
            return str(number)
        digest = hashlib.sha256(image).hexdigest()[:16]
        if digest not in lines:
            lines[digest] = SourceLines(image)
        return digest

    def completed(finding: Finding) -> Finding:
        known = lines.get(finding.code_object or "")
        if known is None:
            return finding
        return dataclasses.replace(
            finding, source=known.text(finding.pc), producer_source=known.text(finding.producer_pc)
        )

    document = read_json(findings)
    launches, found = read_findings(document, identify)
    log = FindingLog()
    log.add(launches, map(completed, found))
    log.dropped_launches += document["dropped_launches"]
    log.dropped_findings += document["dropped_findings"]
    return log
