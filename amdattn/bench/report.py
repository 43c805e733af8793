"""Records as tables: for a terminal, as Markdown and as CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from amdattn.bench.inputs import NORMAL
from amdattn.bench.record import MEASURED, MODELLED, Record, estimate_leads, leading_us
from amdattn.bench.terminal import Line, print_groups, print_wide
from amdattn.output_files import replacing

_DASH = "-"
_NOTED = 0.01
_WHOLE = 10  # TFLOP/s from which digits after the point are noise
UNITS = {"ms": (1e-3, 3), "us": (1.0, 2)}  # of times: factor from microseconds, and digits


def _time(microseconds: float | None, unit: str) -> str:
    factor, digits = UNITS[unit]
    return _DASH if microseconds is None else f"{microseconds * factor:.{digits}f}"


def _columns(records: Sequence[Record], unit: str) -> list[str]:
    columns = ["shape", "kernel"]
    if any(r.origin == MODELLED for r in records):
        columns += ["Mclk", "TFLOP/s est.", f"{unit} est.", "GHz est."]
        if any(r.times.by_use_us is not None for r in records):
            columns += [f"{unit} by use", "GHz by use"]
        columns += ["TFLOP/s", unit, "TFLOP/s peak", f"{unit} peak"]
        columns += ["MFMA/CU", "MFMA/all", "VALU", "LDS"]
        columns += ["stalls", "HBM GB", "J est.", "WG", "rounds"]
    if any(r.origin == MEASURED for r in records):
        columns += [f"measured {unit}", "10..90 %", "TFLOP/s measured"]
    return columns


def _cells(record: Record, unit: str) -> dict[str, str]:
    times = record.times
    cells = {"shape": record.shape, "kernel": record.label}
    if record.refused:
        return cells

    def number(value: float | None, digits: int = 3, scale: float = 1.0) -> str:
        return _DASH if value is None else f"{value * scale:.{digits}f}"

    if record.origin == MEASURED:
        cells[f"measured {unit}"] = _time(times.median_us, unit)
        cells["10..90 %"] = _spread(record, unit)
        cells["TFLOP/s measured"] = number(record.tflops(times.median_us), 0)
        return cells
    cells |= {
        "Mclk": number(record.cycles, 3, 1e-6),
        "TFLOP/s est.": number(record.tflops(times.estimated_us), 0),
        f"{unit} est.": _time(times.estimated_us, unit),
        "GHz est.": number(record.energy.get("clock_ghz"), 2),
        f"{unit} by use": _time(times.by_use_us, unit),
        "GHz by use": number(record.clocks.get("by_use_ghz"), 2),
        "TFLOP/s": number(record.tflops(times.at_sustained_us), 0),
        unit: _time(times.at_sustained_us, unit),
        "TFLOP/s peak": number(record.tflops(times.at_peak_us), 0),
        f"{unit} peak": _time(times.at_peak_us, unit),
        "stalls": stall_text(record),
        "HBM GB": number(_hbm_bytes(record), 3, 1e-9),
        "J est.": number(record.energy.get("joules"), 4),
        "WG": str(record.workgroups),
        "rounds": f"{record.rounds} x {record.residents}/CU",
    }
    return cells | _uses(record)


def _uses(record: Record) -> dict[str, str]:
    names = {"MFMA/CU": "mfma", "MFMA/all": "mfma_device", "VALU": "valu", "LDS": "lds"}
    return {
        column: f"{record.use[name]:.1%}" for column, name in names.items() if name in record.use
    }


def _hbm_bytes(record: Record) -> float | None:
    """Bytes read and written; files of older versions have no writes."""
    read = record.bytes.get("hbm")
    return None if read is None else read + record.bytes.get("hbm_write", 0)


def _have_flops(records: Sequence[Record]) -> bool:
    """Whether TFLOP/s can be stated: the operations of most code objects are unknown."""
    return any(record.flops for record in records)


def _gigabytes_per_second(count: float | None, us: float | None) -> str:
    return _DASH if count is None or not us else f"{count / us / 1000:,.0f}"


def stall_text(record: Record, most: int = 2) -> str:
    """The `most` most frequent reasons for stalls, with their shares."""
    ordered = sorted(record.stalls.items(), key=lambda item: -item[1])[:most]
    return ", ".join(f"{reason} {share:.0%}" for reason, share in ordered)


def conditions(records: Sequence[Record]) -> list[str]:
    """Lines that say how the times were obtained: modelled at which clock, or measured."""
    modelled = [r for r in records if r.origin == MODELLED and not r.refused]
    lines = []
    if modelled:
        clocks = modelled[0].clocks
        rates = "TFLOP/s" if _have_flops(records) else "GB/s"
        lines.append("modelled, not measured: cycles are converted to time at the clock that an")
        lines.append(
            f"energy estimate gives (est.) and at a constant {clocks['sustained_ghz']:g} GHz;"
        )
        lines.append(
            f"{rates} and ratios use the first time, because the launches are short"
            if estimate_leads(modelled)
            else f"{rates} and ratios use the first time if all launches of a shape are short"
            if any(r.short for r in modelled)
            else f"{rates} and ratios use the second time"
        )
        if held := list(dict.fromkeys(r.inputs for r in records if r.inputs)):
            lines.append(f"q, k and v: {', '.join(held)}")
        others = dict.fromkeys(r.reading for r in modelled if r.other_reading)
        if others:
            lines.append(f"readings other than the default: {', '.join(others)}")
    if any(r.origin == MEASURED for r in records):
        lines.append("measured with events: median, and the 10 % and 90 % quantiles")
    return lines


def notes(records: Sequence[Record]) -> list[str]:
    """Lines with caveats and explanations of the numbers, and the refusals."""
    modelled = [r for r in records if r.origin == MODELLED and not r.refused]
    lines = []
    if modelled:
        clocks = modelled[0].clocks
        lines.append(
            f"At the peak clock, {clocks['peak_ghz']:g} GHz, the same cycles give a lower bound of "
            f"the time. Each operation also costs {clocks['launch_us']:g} us for its launch, which "
            "no number here includes."
        )
        sampled = [r for r in modelled if "check_error" in r.sampled]
        if sampled:
            worst = max(abs(r.sampled["check_error"]) for r in sampled)
            lines.append(
                f"{len(sampled)} of {len(modelled)} are sampled: extrapolated from KV lengths "
                f"{sampled[0].sampled['lengths']}, of which the others predict the last within "
                f"{worst:.2%}"
            )
    lines += [
        f"{r.shape} {r.peer} {r.round_mode}: this is not the plan that runs. That plan merges "
        "parts in the launch that computes them, so it cannot be sampled, and it takes too long to "
        "be simulated in full by default; planning estimates that it is faster. --sampling full "
        "simulates it"
        for r in modelled
        if r.sampled.get("merged_apart")
    ]
    lines += [
        f"{r.shape} {r.label}: the samples use the beginning of q, k and v"
        for r in modelled
        if r.sampled and r.inputs not in ("", NORMAL.name)
    ]
    lines += [
        f"{r.peer}: cycles are those of the first {r.sampled['first_workgroups']} of "
        f"{r.sampled['of_workgroups']} workgroups of an XCD"
        for r in modelled
        if "first_workgroups" in r.sampled
    ]
    for r in modelled:
        low, high = r.sampled.get("order_range", (0.0, 0.0))
        if max(-low, high) > _NOTED:
            lines.append(
                f"{r.shape} {r.label}: {low:+.1%} to {high:+.1%} if the times of the unequal "
                "workgroups vary by 1 %, which distributes them over CUs differently"
            )
    lines += [
        f"{r.shape} {r.label}: no energy estimate: {r.energy['refused']}"
        for r in modelled
        if "refused" in r.energy
    ]
    lines += [
        f"{r.shape} {r.label}: {len(r.launches)} launches; the time includes "
        f"{r.clocks['launch_us'] * (len(r.launches) - 1):g} us between them"
        for r in modelled
        if r.launches
    ]
    for r, us in zip(modelled, leading_us(modelled), strict=True):
        most, rate = r.clocks.get("gemm_tflops"), r.tflops(us)
        if most and rate and rate > most:
            lines.append(
                f"{r.shape} {r.label}: {rate:.0f} TFLOP/s is more than the {most:.0f} that a "
                "matrix product reached at this device's power cap, so the clock will be lower"
            )
    refusals: dict[tuple[str, str], list[str]] = {}
    for r in records:
        if r.refused:
            refusals.setdefault((r.label, r.refused), []).append(r.shape)
    for (label, why), shapes in refusals.items():
        where = shapes[0] if len(shapes) == 1 else f"{len(shapes)} shapes"
        lines.append(f"{where} {label}: {why}")
    return lines


def print_table(
    console: Console,
    title: str,
    records: Sequence[Record],
    *,
    wide: bool = False,
    unit: str = "ms",
) -> None:
    """Print one row per record, grouped by shape, between conditions and notes.

    Parameters
    ----------
    console : Console
    title : str
    records : sequence of Record
    wide : bool
        Print all columns; otherwise those that fit 80 characters.
    unit : {"ms", "us"}
        Of times.
    """
    console.print(Text(title, "bold"), soft_wrap=True)
    for line in conditions(records):
        console.print(line, highlight=False)
    console.print()
    if wide:
        _print_all_columns(console, records, unit)
    else:
        _print_few_columns(console, records, unit)
    console.print()
    for line in notes(records):
        console.print(line, style="dim", markup=False, highlight=False)


def _print_few_columns(console: Console, records: Sequence[Record], unit: str) -> None:
    measured = any(r.origin == MEASURED for r in records)
    ghz = next((r.clocks["sustained_ghz"] for r in records if "sustained_ghz" in r.clocks), 0.0)
    constant = f"{unit} {ghz:g} GHz"
    columns = ["kernel"] + ["mode"] * any(r.round_mode for r in records)
    left = len(columns)
    columns += [f"measured {unit}"] if measured else [f"{unit} est.", constant]
    if _have_flops(records):
        columns += ["TFLOP/s"] + ["MFMA/CU", "MFMA/all"] * (not measured)
    elif not measured:
        columns += ["HBM GB/s", "MFMA/CU", "VALU", "LDS"]
    columns += ["10..90 %"] * measured
    ratios, leading = relative_speeds(records), leading_us(records)
    if len(ratios) > len({(r.shape, r.other_reading) for r in records}):
        columns.append("vs first")
    best = fastest(records)
    groups: dict[str, list[Line]] = {}
    for i, record in enumerate(records):
        kernel = record.peer + " (other plan)" * bool(record.sampled.get("merged_apart"))
        cells = {"kernel": kernel, "mode": record.round_mode, "TFLOP/s": _DASH}
        if not record.refused:
            times = record.times
            for name, us in (
                (f"measured {unit}", times.median_us),
                (f"{unit} est.", times.estimated_us),
                (constant, times.at_sustained_us),
            ):
                cells[name] = _time(us, unit)
            tflops = record.tflops(leading[i])
            if tflops is not None:
                cells["TFLOP/s"] = f"{tflops:.0f}" if tflops >= _WHOLE else f"{tflops:.2g}"
            cells["HBM GB/s"] = _gigabytes_per_second(_hbm_bytes(record), leading[i])
            cells["10..90 %"] = _spread(record, unit)
            cells |= _uses(record)
            cells["vs first"] = f"{ratios[i]:.2f}x" if i in ratios else _DASH
        else:
            cells[columns[left]] = "refused"
        style = "dim" if record.refused else "bold" if record in best else ""
        groups.setdefault(record.shape + record.other_reading, []).append(Line(cells, style))
    print_groups(console, columns, groups, left=left)


def _print_all_columns(console: Console, records: Sequence[Record], unit: str) -> None:
    columns = _columns(records, unit)
    table = Table()
    for column in columns:
        left = column in ("shape", "kernel", "stalls")
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    best = fastest(records)
    for record in records:
        cells = _cells(record, unit)
        style = "dim" if record.refused else "bold" if record in best else None
        table.add_row(*(Text(cells.get(c, _DASH)) for c in columns), style=style)
    print_wide(console, table)


def relative_speeds(records: Sequence[Record]) -> dict[int, float]:
    """Speed relative to the first kernel that ran at the same shape and reading, by index."""
    first: dict[tuple[str, str], float] = {}
    speeds = {}
    for i, (record, us) in enumerate(zip(records, leading_us(records), strict=True)):
        if us:
            key = record.shape, record.other_reading
            speeds[i] = first.setdefault(key, us) / us
    return speeds


def _spread(record: Record, unit: str) -> str:
    low, high = record.times.low_us, record.times.high_us
    return "" if low is None or high is None else f"{_time(low, unit)}..{_time(high, unit)}"


def print_details(console: Console, record: Record) -> None:
    """Print the stalls, bytes by level and longest waits of one record, and its energy estimate."""
    stalls = Table("stall", "share of wave lifetime", title="stalls (modelled)")
    shares = {"issue, no stall": record.issue} | record.stalls
    for reason, share in sorted(shares.items(), key=lambda item: -item[1]):
        stalls.add_row(reason, f"{share:.1%}")
    stalls.add_section()
    stalls.add_row("all", f"{sum(shares.values()):.1%}")
    us = leading_us([record])[0]
    level = Table("level", "bytes", "GB/s", title="bytes by level (modelled)")
    for name, count in record.bytes.items():
        level.add_row(name, f"{count:,.0f}", _gigabytes_per_second(count, us))
    sites = Table("offset", "instruction", "issued", "waits", "for", title="waits (modelled)")
    for site in record.hottest:
        sites.add_row(
            f"+0x{site['offset']:x}",
            Text(site["text"]),
            str(site["issued"]),
            f"{site['share']:.1%}",
            site["reason"],
        )
    tables = [stalls, level, sites]
    if "joules" in record.energy:
        energy = Table("consumer", "W", title="power under the cap (estimated, not modelled)")
        for name, watts in record.energy["watts"].items():
            energy.add_row(name, f"{watts:.1f}")
        energy.add_row("all", f"{sum(record.energy['watts'].values()):.1f}")
        for name, value in (
            ("clock, GHz", record.energy["clock_ghz"]),
            ("time, ms", record.energy["microseconds"] / 1000),
            ("energy, J", record.energy["joules"]),
        ):
            energy.add_row(name, f"{value:.4g}")
        tables.append(energy)
    if record.launches:
        launches = Table("launch", "clk", "ms", "MFMA/CU", "MFMA/all", title="launches (modelled)")
        for part in record.launches:
            launches.add_row(
                part["kernel"],
                f"{part['cycles']:,}",
                f"{part['times']['at_sustained_us'] / 1000:.3f}",
                f"{part['use']['mfma']:.1%}",
                f"{part['use']['mfma_device']:.1%}",
            )
        tables = [launches, *tables]
    for table in tables:
        console.print(table)
    console.print(matrix_use(record), highlight=False, soft_wrap=True)


def matrix_use(record: Record) -> str:
    """A sentence that relates the use of the matrix units per CU to that of the device."""
    of_cu, of_device = record.use["mfma"], record.use["mfma_device"]
    if of_cu == 0:
        return "No matrix instruction is issued."
    return (
        f"Matrix units (modelled): on the CUs that got a workgroup they are busy in {of_cu:.1%} of "
        f"the cycles from the start of the launch to its end (MFMA/CU). These are "
        f"{of_device / of_cu:.1%} of all CUs, so over all CUs it is {of_device:.1%} (MFMA/all)."
    )


def fastest(records: Sequence[Record]) -> list[Record]:
    """The fastest record of each shape and reading."""
    best: dict[tuple[str, str], tuple[float, Record]] = {}
    for record, us in zip(records, leading_us(records), strict=True):
        if us is None:
            continue
        key = record.shape, record.other_reading
        if key not in best or best[key][0] > us:
            best[key] = us, record
    return [record for _, record in best.values()]


def markdown(records: Sequence[Record], unit: str = "ms") -> str:
    """A table in GitHub's Markdown with all columns, followed by conditions and notes."""
    columns = _columns(records, unit)
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for record in records:
        cells = _cells(record, unit)
        lines.append("| " + " | ".join(cells.get(c, _DASH) for c in columns) + " |")
    said = [*conditions(records), *notes(records)]
    return "\n".join([*lines, "", *(f"{line}\n" for line in said)])


def write_csv(path: Path, records: Sequence[Record]) -> None:
    """Write one flat row per record."""
    rows = [_flat(record) for record in records]
    names = list(dict.fromkeys(name for row in rows for name in row))
    with replacing(path) as new, open(new, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def _flat(record: Record) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in record.as_dict().items():
        if name in ("hottest", "sampled", "launches"):
            continue
        row |= _leaves(name, value)
    row["is_sampled"] = bool(record.sampled)
    return row


def _leaves(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {name: value}
    inner = [_leaves(f"{name}_{key}", of_key) for key, of_key in value.items()]
    return {leaf: of_leaf for part in inner for leaf, of_leaf in part.items()}
