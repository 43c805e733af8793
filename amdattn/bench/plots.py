"""Plots of records with matplotlib (pip install amdattn[plot])."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amdattn.bench.clocks import clocks
from amdattn.bench.record import MODELLED, Record, estimate_leads, leading_us
from amdattn.device.profiling import STALLS
from amdattn.device.runtime import device_props
from amdattn.errors import AmdattnError
from amdattn.output_files import replacing

if TYPE_CHECKING:
    from amdattn.bench.decoder import Pass
    from amdattn.device.profiling import LaunchProfile

KINDS = ("roofline", "timeline", "stalls", "sweep")
FORMATS = (".png", ".svg")
# Colour-blind safe (Okabe and Ito).
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
_ISSUE, _LAST_STALL, _LIMIT = "0.85", "0.55", "0.4"
_WIDTH, _LEAST_HEIGHT = 10.0, 4.0  # inches
_LEGEND_COLUMNS = 4
_TIMELINE_CLK = 6000
_UNITS = ("matrix", "vector", "lds", "memory", "wave")
_UNIT_NAMES = ("matrix", "vector", "LDS", "memory", "wave")
_UNDER_WAY = ("lds", "memory")  # units that may have several instructions in flight


class PlotError(AmdattnError):
    """A plot cannot be drawn."""


def check_request(kind: str, path: Path) -> None:
    """Check a request before anything runs.

    Raises
    ------
    ValueError
        `kind` is none of `KINDS`, or the name of the file has no suffix of `FORMATS`.
    PlotError
        matplotlib is missing.
    """
    if kind not in KINDS:
        raise ValueError(f"plot={kind!r} must be one of {', '.join(KINDS)}")
    check_file(path)


def check_file(path: Path) -> None:
    """Raise ValueError for an unknown file format, PlotError if matplotlib is missing."""
    if path.suffix not in FORMATS:
        raise ValueError(f"plot file {path} must end in one of {', '.join(FORMATS)}")
    _figure()


def _figure(height: float = 5.5) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlotError(f"--plot needs matplotlib: pip install amdattn[plot] ({error})") from None
    return Figure(figsize=(_WIDTH, max(height, _LEAST_HEIGHT)), layout="constrained")


def plot(kind: str, path: Path, records: Sequence[Record], profile: LaunchProfile | None) -> None:
    """Draw one of `KINDS` to a .png or .svg file.

    Parameters
    ----------
    kind : {"roofline", "timeline", "stalls", "sweep"}
    path : Path
    records : sequence of Record
    profile : LaunchProfile or None
        The profile of the last kernel, with events; only a timeline needs it.

    Raises
    ------
    ValueError
        `kind` or the suffix of `path` is unknown.
    PlotError
        matplotlib is missing, or the records cannot be drawn in this way.
    """
    check_request(kind, path)
    shown = [record for record in records if not record.refused]
    if not shown:
        raise PlotError(f"--plot {kind} needs a kernel that ran; all records are refusals")
    if kind == "timeline":
        if profile is None or not profile.events:
            raise PlotError("--plot timeline needs a modelled launch with events")
        figure = _timeline(profile)
    else:
        figure = {"roofline": _roofline, "stalls": _stalls, "sweep": _sweep}[kind](shown)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    with replacing(path) as new:
        figure.savefig(new, dpi=150, format=path.suffix[1:])


def passes(path: Path, found: Sequence[Pass]) -> None:
    """Draw the shares of the parts of decoder passes, and the floor of each step."""
    names = list(dict.fromkeys(part.name for one in found for part in one.parts))
    shades = _COLOURS[:-1]  # the floor is black
    figure = _figure(1.5 + 0.7 * len(found))
    axes = figure.add_subplot()
    for row, one in enumerate(found):
        left = 0.0
        for i, name in enumerate(names):
            us = sum(p.times * p.us for p in one.parts if p.name == name)
            axes.barh(row, us / one.us, left=left, color=shades[i % len(shades)])
            left += us / one.us
        axes.barh(row, 1 - left, left=left, color=_ISSUE)
        if one.tokens == 1:
            at = [1 / one.of_floor] * 2, [row - 0.45, row + 0.45]
            axes.plot(*at, color="white", linewidth=4)
            axes.plot(*at, color="black")
    for i, name in enumerate(names):
        axes.barh(0, 0, color=shades[i % len(shades)], label=name)
    axes.barh(0, 0, color=_ISSUE, label=f"launches, {found[0].launch_us:g} us each")
    axes.plot([], [], color="black", label="floor")
    labels = [
        f"b{one.batch}, {one.context} keys" if one.tokens == 1 else f"prompt of {one.tokens}"
        for one in found
    ]
    axes.set_yticks(
        range(len(found)),
        [f"{label}\n{one.us / 1000:.2f} ms" for label, one in zip(labels, found, strict=True)],
    )
    axes.invert_yaxis()
    of = found[0]
    clock = f" at {of.clock_ghz:g} GHz" if of.origin == MODELLED else ""
    axes.set(xlim=(0, 1), xlabel="share of a pass")
    axes.set(title=f"{of.model} on {clocks(device_props()).name}, {of.origin}{clock}")
    figure.legend(frameon=False, loc="outside lower center", ncols=_LEGEND_COLUMNS)
    _save(figure, path)


def _colours(records: Sequence[Record]) -> dict[str, str]:
    labels = dict.fromkeys(record.label for record in records)
    return {label: _COLOURS[i % len(_COLOURS)] for i, label in enumerate(labels)}


def _need_modelled(records: Sequence[Record], kind: str) -> None:
    if any(record.origin != MODELLED for record in records):
        raise PlotError(f"--plot {kind} needs modelled records: run on the virtual device")


def _roofline(records: Sequence[Record]) -> Any:
    """TFLOP/s as in the table, over operations per byte of HBM, below the device's limits."""
    _need_modelled(records, "roofline")
    records = [record for record in records if record.flops]
    if not records:
        raise PlotError("--plot roofline needs a kernel whose operations are known")
    rates = [r.tflops(us) for r, us in zip(records, leading_us(records), strict=True)]
    figure = _figure()
    axes = figure.add_subplot()
    arch = clocks(device_props())
    clock = records[0].clocks["sustained_ghz"]
    intensities = [r.flops / max(r.bytes["hbm"] + r.bytes.get("hbm_write", 0), 1) for r in records]
    low, high = min([100.0, *intensities]) / 2, max([1000.0, *intensities]) * 2
    for ghz, style in ((arch.peak_ghz, "--"), (clock, "-")):
        top = arch.num_cus * arch.matrix_flops_per_clk * ghz / 1000
        ridge = top * 1000 / arch.hbm_bytes_per_ns
        xs = [low, max(ridge, low), high]
        ys = [min(top, x * arch.hbm_bytes_per_ns / 1000) for x in xs]
        axes.plot(xs, ys, style, color=_LIMIT, label=f"limits of HBM and matrix units, {ghz:g} GHz")
    for label, colour in _colours(records).items():
        points = [
            (x, y) for x, y, r in zip(intensities, rates, records, strict=True) if r.label == label
        ]
        axes.scatter(*zip(*points, strict=True), color=colour, label=label, alpha=0.8, zorder=3)
    named = {r.shape: (x, y) for x, y, r in zip(intensities, rates, records, strict=True)}
    for shape, point in named.items():  # at its last kernel
        axes.annotate(shape, point, (6, -3), textcoords="offset points", fontsize=8)
    at = "the clocks of the table" if any(r.short for r in records) else f"{clock:g} GHz"
    axes.set(xscale="log", yscale="log", xlabel="operations per byte of HBM, modelled")
    axes.set(ylabel=f"TFLOP/s, modelled at {at}", xlim=(low, high))
    axes.set(title=f"Roofline of {arch.name}, bfloat16, modelled")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.tick_params(axis="y", which="minor", labelsize=8)
    axes.grid(color="0.92", which="both")
    figure.legend(frameon=False, loc="outside lower center", ncols=_LEGEND_COLUMNS)
    return figure


def _stalls(records: Sequence[Record]) -> Any:
    """Shares of the waves' lifetime by stall reason, one bar per record."""
    _need_modelled(records, "stalls")
    figure = _figure(1.2 + 0.3 * len(records))
    axes = figure.add_subplot()
    rows = range(len(records))
    left = [0.0] * len(records)
    colours = (_ISSUE, *_COLOURS, _LAST_STALL)
    for reason, colour in zip(("issue", *STALLS), colours, strict=True):
        shares = [r.issue if reason == "issue" else r.stalls[reason] for r in records]
        axes.barh(rows, shares, left=left, color=colour, label=reason, height=0.6)
        left = [a + b for a, b in zip(left, shares, strict=True)]
    axes.set_yticks(rows, [f"{r.shape}, {r.label}" for r in records], fontsize=8)
    axes.set_ylim(len(records) - 0.5, -0.5)
    axes.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes.set(xlim=(0, 1), xlabel="share of the waves' lifetime, modelled")
    axes.set(title="Issue and stalls, modelled")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _sweep(records: Sequence[Record]) -> Any:
    """TFLOP/s of every kernel over the shapes."""
    figure = _figure()
    axes = figure.add_subplot()
    shapes = list(dict.fromkeys(record.shape for record in records))
    origin = " and ".join(sorted({record.origin for record in records}))
    estimated = estimate_leads(records)
    for label, colour in _colours(records).items():
        own = {r.shape: r.tflops(r.us(estimated)) for r in records if r.label == label}
        values = [own.get(shape) for shape in shapes]
        heights = [math.nan if value is None else value for value in values]
        axes.plot(range(len(shapes)), heights, "o-", color=colour, label=label)
    axes.set_xticks(range(len(shapes)), shapes, rotation=25, ha="right", rotation_mode="anchor")
    clock = records[0].clocks.get("sustained_ghz")
    at = " at the estimated clock" if estimated else f" at {clock:g} GHz"
    at = at if origin == MODELLED else ""
    axes.set(ylim=(0, None), ylabel=f"TFLOP/s, {origin}{at}", title=f"Kernels by shape, {origin}")
    axes.grid(axis="y", color="0.92")
    figure.legend(frameon=False, loc="outside lower center", ncols=_LEGEND_COLUMNS)
    return figure


def _timeline(profile: LaunchProfile) -> Any:
    """The middle of the events that were kept of CU 0: a row per wave, and one per unit."""
    first, last = profile.events[0].start, max(e.end for e in profile.events)
    length = min(_TIMELINE_CLK, last - first)
    begin = (first + last - length) / 2
    spans: dict[tuple[int, int, int], list[tuple[float, float]]] = {}
    for event in profile.events:
        start, end = max(event.start, begin), min(event.end, begin + length)
        if start <= begin + length and end >= begin:
            wave = event.wave if event.track == "wave" else -1
            row = event.simd, _UNITS.index(event.track), wave
            spans.setdefault(row, []).append((start - begin, max(end - start, 1)))
    rows = sorted(spans)
    figure = _figure(1.2 + 0.24 * len(rows))
    axes = figure.add_subplot()
    names = []
    for at, row in enumerate(rows):
        simd, unit, wave = row
        name = _UNIT_NAMES[unit] + f" {wave}" * (wave >= 0)
        if _UNITS[unit] in _UNDER_WAY:
            most = _draw_under_way(axes, at, spans[row], _COLOURS[unit])
            name += f" (up to {most})" * (most > 1)
        else:
            axes.broken_barh(spans[row], (at - 0.4, 0.8), color=_COLOURS[unit], linewidth=0)
        starts_simd = not at or rows[at - 1][0] != simd
        if at and starts_simd:
            axes.axhline(at - 0.5, color="0.7", linewidth=0.8)
        names.append(f"SIMD {simd}  " * starts_simd + name)
    axes.set_yticks(range(len(rows)), names, fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set(ylim=(len(rows) - 0.5, -0.5), xlim=(0, length))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set(
        xlabel=f"clk after clk {begin:,.0f} of the launch, modelled; the height of LDS and memory "
        "is the number of instructions in flight"
    )
    at_clock = f"modelled at {profile.clock_ghz:g} GHz"
    axes.set_title(f"One CU, {at_clock}: {readable(profile.kernel)}", fontsize=11)
    return figure


def _draw_under_way(axes: Any, at: int, spans: Sequence[tuple[float, float]], colour: str) -> int:
    """Draw the number of overlapping spans as the height of a row; return the greatest number."""
    changes = sorted([(x, 1) for x, _ in spans] + [(x + width, -1) for x, width in spans])
    xs = [x for x, _ in changes]
    counts = list(accumulate(change for _, change in changes))
    most = max(counts)
    tops = [at + 0.4 - 0.8 * count / most for count in counts]
    axes.fill_between(xs, [at + 0.4] * len(xs), tops, step="post", color=colour, linewidth=0)
    return most


def readable(symbol: str) -> str:
    """Demangle a C++ name without arguments; return any other symbol unchanged."""
    found = re.fullmatch(r"_ZN(.*)E", symbol)
    rest, parts = found[1] if found else "", []
    while rest:
        length = re.match(r"\d+", rest)
        if length is None:
            return symbol
        end = length.end() + int(length[0])
        parts.append(rest[length.end() : end])
        rest = rest[end:]
    return "::".join(parts) or symbol
