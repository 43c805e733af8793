"""Pictures of records, with matplotlib (pip install amdattn[plot])."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amdattn.bench.clocks import clocks
from amdattn.bench.record import MODELLED, Record
from amdattn.errors import AmdattnError
from amdattn.profiling import STALLS

if TYPE_CHECKING:
    from amdattn.profiling import LaunchProfile

KINDS = ("roofline", "timeline", "stalls", "sweep")
FORMATS = (".png", ".svg")
# Colour-blind safe (Okabe and Ito).
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
_TIMELINE_CLK = 6000


class PlotError(AmdattnError):
    """A picture cannot be made."""


def check_request(kind: str, path: Path) -> None:
    """Raise for an unknown kind or file format, or without matplotlib, before anything runs."""
    if kind not in KINDS:
        raise ValueError(f"plot={kind!r} must be one of {', '.join(KINDS)}")
    if path.suffix not in FORMATS:
        raise ValueError(f"plot file {path} must end in one of {', '.join(FORMATS)}")
    _figure()


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlotError(f"--plot needs matplotlib: pip install amdattn[plot] ({error})") from None
    return Figure(figsize=(10, 5.5), layout="constrained")


def plot(kind: str, path: Path, records: Sequence[Record], profile: LaunchProfile | None) -> None:
    """Draw one of `KINDS`; `profile` is of the last kernel and needed for a timeline."""
    check_request(kind, path)
    shown = [record for record in records if not record.refused]
    if not shown:
        raise PlotError(f"--plot {kind}: no kernel ran")
    figure = _figure()
    axes = figure.add_subplot()
    if kind == "timeline":
        if profile is None or not profile.events:
            raise PlotError("--plot timeline needs a modelled launch with events")
        _timeline(axes, profile)
    else:
        {"roofline": _roofline, "stalls": _stalls, "sweep": _sweep}[kind](axes, shown)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def _label(record: Record) -> str:
    return f"{record.peer} {record.round_mode}".strip()


def _colours(records: Sequence[Record]) -> dict[str, str]:
    labels = dict.fromkeys(map(_label, records))
    return {label: _COLOURS[i % len(_COLOURS)] for i, label in enumerate(labels)}


def _need_modelled(records: Sequence[Record], kind: str) -> None:
    if any(record.origin != MODELLED for record in records):
        raise PlotError(f"--plot {kind} needs modelled records: run on the virtual device")


def _roofline(axes: Any, records: Sequence[Record]) -> None:
    """TFLOP/s over operations per byte of HBM, both modelled, below the device's limits."""
    _need_modelled(records, "roofline")
    arch = clocks("gfx942")
    clock = records[0].clocks["sustained_ghz"]
    intensities = [r.flops / max(r.bytes["hbm"], 1) for r in records]
    low, high = min([10.0, *intensities]) / 2, max([1000.0, *intensities]) * 2
    for ghz, style in ((clock, "-"), (arch.peak_ghz, "--")):
        top = arch.num_cus * arch.matrix_flops_per_clk * ghz / 1000
        ridge = top * 1000 / arch.hbm_bytes_per_ns
        xs = [low, max(ridge, low), high]
        ys = [min(top, x * arch.hbm_bytes_per_ns / 1000) for x in xs]
        axes.plot(xs, ys, style, color="0.4", label=f"matrix and HBM limit at {ghz:g} GHz")
    colours = _colours(records)
    seen: set[str] = set()
    for record, intensity in zip(records, intensities, strict=True):
        label = _label(record)
        axes.scatter(
            [intensity],
            [record.tflops(record.best_us)],
            color=colours[label],
            label=None if label in seen else label,
            zorder=3,
        )
        seen.add(label)
    axes.set(xscale="log", yscale="log", xlabel="operations per byte of HBM")
    axes.set(ylabel=f"TFLOP/s, modelled at {clock:g} GHz", title="Roofline, MI300X, bfloat16")
    axes.legend(frameon=False)


def _stalls(axes: Any, records: Sequence[Record]) -> None:
    """Where the waves' time goes, one bar per record."""
    _need_modelled(records, "stalls")
    names = [f"{_label(record)}\n{record.shape}" for record in records]
    left = [0.0] * len(records)
    for i, reason in enumerate(("issue", *STALLS)):
        shares = [
            max(1 - sum(r.stalls.values()), 0.0) if reason == "issue" else r.stalls[reason]
            for r in records
        ]
        colour = "0.85" if reason == "issue" else _COLOURS[(i - 1) % len(_COLOURS)]
        hatch = "//" if i > len(_COLOURS) else None
        axes.barh(names, shares, left=left, color=colour, hatch=hatch, label=reason, height=0.6)
        left = [a + b for a, b in zip(left, shares, strict=True)]
    axes.invert_yaxis()
    axes.set(xlim=(0, 1), xlabel="share of the waves' lifetime, modelled", title="Stalls")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _sweep(axes: Any, records: Sequence[Record]) -> None:
    """TFLOP/s of every kernel over the shapes."""
    shapes = list(dict.fromkeys(record.shape for record in records))
    origin = {record.origin for record in records}
    for label, colour in _colours(records).items():
        own = {r.shape: r.tflops(r.best_us) for r in records if _label(r) == label}
        axes.plot(
            [shapes.index(shape) for shape in own],
            list(own.values()),
            "o-",
            color=colour,
            label=label,
        )
    axes.set_xticks(range(len(shapes)), shapes, rotation=25, ha="right")
    clock = records[0].clocks.get("sustained_ghz")
    at = f" at {clock:g} GHz" if origin == {MODELLED} else ""
    axes.set(ylim=(0, None), ylabel=f"TFLOP/s, {' and '.join(sorted(origin))}{at}", title="Sweep")
    axes.legend(frameon=False)


def _timeline(axes: Any, profile: LaunchProfile) -> None:
    """A stretch in the middle of what was kept of CU 0: a row per wave, and one per unit."""
    middle = (profile.events[0].start + max(e.end for e in profile.events)) / 2
    begin = middle - _TIMELINE_CLK / 2
    events = [e for e in profile.events if begin <= e.start <= begin + _TIMELINE_CLK]
    tracks = ("matrix", "vector", "lds", "memory", "wave")
    rows = sorted(
        {(e.simd, tracks.index(e.track), e.wave if e.track == "wave" else -1) for e in events}
    )
    at = {row: i for i, row in enumerate(rows)}
    for kind, colour in zip(tracks, _COLOURS, strict=False):
        for row in rows:
            spans = [
                (e.start, max(e.end - e.start, 1))
                for e in events
                if e.track == kind
                and (e.simd, tracks.index(kind), e.wave if kind == "wave" else -1) == row
            ]
            if spans:
                axes.broken_barh(spans, (at[row] - 0.4, 0.8), color=colour, linewidth=0)
    axes.set_yticks(
        range(len(rows)),
        [
            f"SIMD {simd} {tracks[track]}{f' {wave}' if wave >= 0 else ''}"
            for simd, track, wave in rows
        ],
        fontsize=7,
    )
    axes.invert_yaxis()
    axes.set(xlim=(begin, begin + _TIMELINE_CLK), xlabel="clk, modelled")
    axes.set(title=f"CU 0 of {profile.kernel}")
