"""Annotated disassembly: a kernel's instructions with findings and source lines beside them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from amdattn.checking.findings import ERROR, Finding
from amdattn.checking.sources import SourceLines
from amdattn.device.virtual_library import Instruction


@dataclass(frozen=True, slots=True)
class Line:
    """One line; `role` is "source", "instruction", "error", "note" or "producer"."""

    role: str
    text: str


def annotate(
    instructions: Iterable[Instruction], findings: Iterable[Finding], sources: SourceLines
) -> Iterator[Line]:
    """Lines of a kernel's listing.

    Parameters
    ----------
    instructions : iterable of Instruction
        The kernel, from its entry on.
    findings : iterable of Finding
        Of this kernel; each appears below its instruction and is named below its producer.
    """
    at: dict[int | None, list[Finding]] = {}
    produced: dict[int | None, list[Finding]] = {}
    for finding in findings:
        at.setdefault(finding.pc, []).append(finding)
        produced.setdefault(finding.producer_pc, []).append(finding)
    last: tuple[str, int] | None = None
    kept = list(instructions)
    while kept and kept[-1].text in _PADDING and kept[-1].pc not in at:
        kept.pop()
    for instruction in kept:
        pc, entry = instruction.pc, kept[0].pc
        place = sources.at(pc)
        if place is not None and place != last:
            yield Line("source", f"; {sources.text(pc)}  {_source_text(*place)}".rstrip())
            last = place
        yield Line("instruction", f"{pc:#10x} +{pc - entry:<#7x} {instruction.text}")
        for finding in at.get(pc, ()):
            role = "error" if finding.severity == ERROR else "note"
            times = f" ({finding.count}x)" if finding.count > 1 else ""
            yield Line(role, f"{_INDENT}^ {finding.kind}{times}: {finding.message}")
            yield Line(role, f"{_INDENT}  {finding.seen_by}")
            if finding.producer_pc is not None:
                yield Line(role, f"{_INDENT}  producer {finding.producer}")
        for finding in produced.get(pc, ()):
            if finding.pc not in (pc, None):
                yield Line("producer", f"{_INDENT}> producer of {finding.kind} at {finding.pc:#x}")


_INDENT = " " * 12
_PADDING = ("s_nop 0", "s_code_end")  # after the last instruction, for the instruction prefetch


def _source_text(file: str, line: int) -> str:
    lines = _source_file(file)
    return lines[line - 1].strip() if line <= len(lines) else ""


@functools.lru_cache(maxsize=64)
def _source_file(file: str) -> tuple[str, ...]:
    """The lines of a source file, if it is here: code objects travel without them."""
    try:
        return tuple(Path(file).read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        return ()
