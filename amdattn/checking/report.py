"""Checked mode's report on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from amdattn.checking.findings import ADVICE, COUNTED, ERROR, SEVERITIES, Finding, FindingLog
from amdattn.checking.listing import Line
from amdattn.checking.session import notes
from amdattn.checking.suppressions import Suppression

_STYLES = {"error": "bold red", "note": "yellow", "producer": "cyan", "source": "dim"}


def findings_table(findings: Iterable[Finding]) -> Table:
    """One row a finding: what it is, where, and how often it was seen."""
    table = Table(show_lines=True)
    table.add_column("kind", no_wrap=True)
    table.add_column("finding", overflow="fold")
    table.add_column("seen", justify="right", no_wrap=True)
    for finding in findings:
        rows = [finding.place, finding.message]
        rows += [
            f"{key} {value}"
            for key, value in (
                ("source", finding.source),
                ("where", finding.seen_by),
                ("producer", finding.producer),
            )
            if value
        ]
        style = "red" if finding.severity == ERROR else "yellow"
        table.add_row(Text(finding.kind, style), Text("\n".join(rows)), str(finding.count))
    return table


def verdict(log: FindingLog, findings: Sequence[Finding], num_runs: int, advice: bool) -> Text:
    """The last line: how much was checked, and what came of it."""
    num = {severity: sum(f.severity == severity for f in findings) for severity in SEVERITIES}
    text = f"{_count(num[ERROR], 'finding')} in {_count(log.num_launches, 'launch', 'es')}"
    text += f" of {_count(num_runs, 'run')}"
    others = [f"{num[severity]} {severity}" for severity in (COUNTED, ADVICE) if num[severity]]
    if others:
        text += f"; {', '.join(others)}" + ("" if advice else " (--advice shows them)")
    return Text(text, "bold red" if num[ERROR] else "bold green")


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number or 'no'} {noun}{plural * (number != 1)}"


def print_report(
    console: Console,
    log: FindingLog,
    findings: Sequence[Finding],
    suppressed: Mapping[Suppression, int],
    num_runs: int,
    advice: bool,
) -> None:
    """Table of the findings, what was suppressed and why, and the verdict."""
    shown = [finding for finding in findings if advice or finding.severity == ERROR]
    if shown:
        console.print(findings_table(shown))
    for line in notes(suppressed, log):
        console.print(
            Text(line, "magenta" if line.startswith("warning") else "yellow"), soft_wrap=True
        )
    console.print(verdict(log, findings, num_runs, advice), soft_wrap=True)


def print_listing(console: Console, title: str, lines: Iterable[Line]) -> None:
    """A kernel's annotated disassembly."""
    text = Group(*(Text(line.text, _STYLES.get(line.role, "")) for line in lines))
    console.rule(Text(title))
    console.print(text, soft_wrap=True)
