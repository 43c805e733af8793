"""Records as tables: for a terminal, as Markdown and as CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from amdattn.bench.record import MEASURED, MODELLED, Record

_DASH = "-"
_NOTED = 0.01


def _columns(records: Sequence[Record]) -> list[str]:
    columns = ["shape", "kernel"]
    if any(r.origin == MODELLED for r in records):
        columns += ["Mclk", "TFLOP/s", "ms", "TFLOP/s peak", "ms peak"]
        columns += ["MFMA", "VALU", "LDS", "stalls", "HBM GB", "WG", "rounds"]
    if any(r.origin == MEASURED for r in records):
        columns += ["measured ms", "10..90 %", "TFLOP/s measured"]
    return columns


def _cells(record: Record) -> dict[str, str]:
    times = record.times
    label = record.peer if record.round_mode == "" else f"{record.peer} {record.round_mode}"
    cells = {"shape": record.shape, "kernel": label}
    if record.refused:
        return cells

    def number(value: float | None, digits: int = 3, scale: float = 1.0) -> str:
        return _DASH if value is None else f"{value * scale:.{digits}f}"

    if record.origin == MEASURED:
        low, high = number(times.low_us, 3, 1e-3), number(times.high_us, 3, 1e-3)
        cells["measured ms"] = number(times.median_us, 3, 1e-3)
        cells["10..90 %"] = f"{low}..{high}"
        cells["TFLOP/s measured"] = number(record.tflops(times.median_us), 0)
        return cells
    cells |= {
        "Mclk": number(record.cycles, 3, 1e-6),
        "TFLOP/s": number(record.tflops(times.at_sustained_us), 0),
        "ms": number(times.at_sustained_us, 3, 1e-3),
        "TFLOP/s peak": number(record.tflops(times.at_peak_us), 0),
        "ms peak": number(times.at_peak_us, 3, 1e-3),
        "stalls": stall_text(record),
        "HBM GB": number(record.bytes.get("hbm"), 3, 1e-9),
        "WG": str(record.workgroups),
        "rounds": f"{record.rounds} x {record.residents}/CU",
    }
    for column in ("MFMA", "VALU", "LDS"):
        cells[column] = f"{record.use[column.lower()]:.1%}"
    return cells


def stall_text(record: Record, most: int = 2) -> str:
    """The greatest reasons why waves did not issue."""
    ordered = sorted(record.stalls.items(), key=lambda item: -item[1])[:most]
    return ", ".join(f"{reason} {share:.0%}" for reason, share in ordered)


def notes(records: Sequence[Record]) -> list[str]:
    """What must be said beside the numbers."""
    modelled = [r for r in records if r.origin == MODELLED and not r.refused]
    lines = []
    if modelled:
        clocks = modelled[0].clocks
        lines.append(
            f"modelled, not measured: time at the sustained clock {clocks['sustained_ghz']:g} GHz; "
            f"'peak' columns are at {clocks['peak_ghz']:g} GHz, a lower bound of the time. Each "
            f"launch adds {clocks['launch_us']:g} us, which no column contains."
        )
        sampled = [r for r in modelled if "check_error" in r.sampled]
        if sampled:
            worst = max(abs(r.sampled["check_error"]) for r in sampled)
            lines.append(
                f"{len(sampled)} of {len(modelled)} sampled: KV lengths "
                f"{sampled[0].sampled['lengths']} extrapolated; the first two predict the third "
                f"within {worst:.2%}"
            )
    lines += [
        f"{r.peer}: cycles of the first {r.sampled['first_workgroups']} of "
        f"{r.sampled['of_workgroups']} workgroups of an XCD"
        for r in modelled
        if "first_workgroups" in r.sampled
    ]
    lines += [
        f"{r.shape} {r.peer} {r.round_mode}: cycles are of XCD 0, which has "
        f"{r.sampled['xcd0_kv_rows'] / r.sampled['largest_xcd_kv_rows']:.0%} of the work of the "
        "busiest one"
        for r in modelled
        if "xcd0_kv_rows" in r.sampled
    ]
    for r in modelled:
        low, high = r.sampled.get("order_range", (0.0, 0.0))
        if max(-low, high) > _NOTED:
            lines.append(
                f"{r.shape} {r.peer} {r.round_mode}: {low:+.1%} to {high:+.1%} if workgroups, "
                "which are unequal, vary by 1 % and so share CUs differently"
            )
    lines += [f"{r.shape} {r.peer} {r.round_mode}: {r.refused}" for r in records if r.refused]
    return lines


def print_table(console: Console, title: str, records: Sequence[Record]) -> None:
    """One row per record; what does not fit a number is below."""
    columns = _columns(records)
    table = Table(title=title, title_justify="left")
    for column in columns:
        left = column in ("shape", "kernel", "stalls")
        table.add_column(column, justify="left" if left else "right")
    best = fastest(records)
    for record in records:
        cells = _cells(record)
        style = "dim" if record.refused else "bold" if record in best else None
        table.add_row(*(Text(cells.get(c, _DASH)) for c in columns), style=style)
    console.print(table)
    for line in notes(records):
        console.print(line, style="dim", markup=False, highlight=False)


def print_details(console: Console, record: Record) -> None:
    """Stalls, bytes by level, and the instructions that waves wait for, of one record."""
    stalls = Table("stall", "share of wave lifetime", title="stalls (modelled)")
    for reason, share in sorted(record.stalls.items(), key=lambda item: -item[1]):
        stalls.add_row(reason, f"{share:.1%}")
    level = Table("level", "bytes", title="bytes by level (modelled)")
    for name, count in record.bytes.items():
        level.add_row(name, f"{count:,.0f}")
    sites = Table("offset", "instruction", "issued", "waits", "for", title="waits (modelled)")
    for site in record.hottest:
        sites.add_row(
            f"+0x{site['offset']:x}",
            Text(site["text"]),
            str(site["issued"]),
            f"{site['share']:.1%}",
            site["reason"],
        )
    for table in (stalls, level, sites):
        console.print(table)


def fastest(records: Sequence[Record]) -> list[Record]:
    """The best record of each shape."""
    best: dict[str, Record] = {}
    for record in records:
        time = record.best_us
        if time is None:
            continue
        known = best.get(record.shape)
        if known is None or (known.best_us or 0.0) > time:
            best[record.shape] = record
    return list(best.values())


def markdown(records: Sequence[Record]) -> str:
    """A table that GitHub renders, with the notes below."""
    columns = _columns(records)
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for record in records:
        cells = _cells(record)
        lines.append("| " + " | ".join(cells.get(c, _DASH) for c in columns) + " |")
    return "\n".join([*lines, "", *(f"{line}\n" for line in notes(records))])


def write_csv(path: Path, records: Sequence[Record]) -> None:
    """One flat row per record."""
    rows = [_flat(record) for record in records]
    names = list(dict.fromkeys(name for row in rows for name in row))
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def _flat(record: Record) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in record.as_dict().items():
        if name in ("hottest", "sampled"):
            continue
        if isinstance(value, dict):
            row |= {f"{name}_{key}": inner for key, inner in value.items()}
        else:
            row[name] = value
    row["is_sampled"] = bool(record.sampled)
    return row
