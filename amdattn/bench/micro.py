"""Runs the shipped micro kernels: modelled on the virtual device, measured on a GPU."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from amdattn.bench import micro_table as table
from amdattn.bench.clocks import clocks
from amdattn.bench.kernels import Launch
from amdattn.bench.micro_launch import PASS_BYTES, Micro
from amdattn.bench.micro_rows import (
    ARCH,
    FEW_PASSES,
    MORE_PASSES,
    WAVES,
    Clk,
    Clock,
    Latency,
    Reading,
    Region,
    Row,
    Stream,
)
from amdattn.bench.record import MEASURED, MODELLED
from amdattn.bench.run import is_virtual
from amdattn.device import runtime
from amdattn.errors import UnsupportedDeviceError
from amdattn.testing.bench import elapsed_ms

REFERENCE_GHZ = 0.1  # of s_memrealtime
LATENCY_MHZ = 2092  # of the published latencies
PEAK_MHZ = round(1000 * clocks(ARCH).peak_ghz)
_CLOSE = 0.08  # a figure that differs by more than this from every reading fits none
# On a GPU: repeated launches, of which the fastest or the median counts, and the factor by which
# loops are longer than in the model.
_REPEATS, _LONGER = 7, 8
_CLOCK_PASSES = (100, 3000, 25000)  # increasing; launches of the last take tens of ms


@dataclass(frozen=True)
class Figure:
    """The result of a row.

    Attributes
    ----------
    row : Row
    origin : {"modelled", "measured"}
    value : float
        In the row's unit.
    low, high : float or None
        Quantiles 0.1 and 0.9, if it was measured several times.
    """

    row: Row
    origin: str
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def fits(self) -> str:
        """The nearest reading, or readings; "none of these" if all differ by more than 8 %."""

        def distance(reading: Reading) -> float:
            high = reading.value if reading.high is None else reading.high
            if reading.value <= self.value <= high:
                return 0.0
            nearer = min((reading.value, high), key=lambda x: abs(self.value - x))
            return abs(self.value / nearer - 1)

        if not self.row.readings:
            return ""
        least = min(map(distance, self.row.readings))
        nearest = [reading.of for reading in self.row.readings if distance(reading) == least]
        return " or ".join(nearest) if least <= _CLOSE else "none of these"

    def as_dict(self) -> dict[str, Any]:
        """The figure as an object of JSON."""
        return {
            "name": self.row.name,
            "what": self.row.what,
            "unit": self.row.unit,
            "origin": self.origin,
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "settles": self.row.settles,
            "readings": [str(reading) for reading in self.row.readings],
            "fits": self.fits if self.origin == MEASURED else "",
        }


def rows(names: str = "") -> list[Row]:
    """The rows whose names contain a part of `names`.

    Parameters
    ----------
    names : str
        Parts of names, separated by commas; "": all rows.

    Raises
    ------
    ValueError
        A part of `names` is in no name.
    """
    parts = [part.strip() for part in names.split(",")] if names else []
    for part in parts:
        if not part or not any(part in row.name for row in table.ROWS):
            known = ", ".join(row.name for row in table.ROWS)
            raise ValueError(f"only={names!r}: {part!r} must be part of one of {known}")
    return [row for row in table.ROWS if not parts or any(part in row.name for part in parts)]


def figures(
    chosen: Sequence[Row], reading: str | None = None, micro: Micro | None = None
) -> Iterator[Figure]:
    """Run rows on the bound device, one at a time; the virtual device omits rows without a model.

    Parameters
    ----------
    chosen : sequence of Row
    reading : str or None
        The reading to model; None: as the virtual device is set.
    micro : Micro or None
        Micro kernels with their memory; None: those of a `with` block of their own.

    Raises
    ------
    UnsupportedDeviceError
        The rows predict another architecture than that of the bound device.
    """
    arch = runtime.get().props.arch
    if arch != ARCH:
        raise UnsupportedDeviceError(f"micro kernels need {ARCH}, the device is {arch}")
    with contextlib.ExitStack() as stack:
        micro = micro or stack.enter_context(Micro())
        for row in chosen:
            if not is_virtual():
                yield measured(micro, row)
            elif not isinstance(row, Clock):
                yield Figure(row, MODELLED, modelled(micro, row, reading))


# -- the model -------------------------------------------------------------------------------------


def modelled(micro: Micro, row: Row, reading: str | None = None) -> float:
    """The figure of the performance model, in the row's unit."""

    def microseconds(launch: Launch, warm: bool = False) -> float:
        return micro.profile(launch, warm=warm, clock_mhz=PEAK_MHZ, reading=reading).microseconds()

    if isinstance(row, Clk):

        def lifetime(copies: int, passes: int) -> float:
            (time,) = micro.profile(micro.of_clk(row, copies, passes), reading=reading).times
            return time.end - time.start

        return row.value(_clk_of_copy(row, lifetime, FEW_PASSES, MORE_PASSES))
    if isinstance(row, Latency):
        profile = micro.profile(
            micro.of_latency(row), clock_mhz=LATENCY_MHZ, trace_events=100_000, reading=reading
        )
        # The loads of the loop, which are not timed, are between the second and the third that are.
        loads = [event for event in profile.events if event.track == "memory"]
        texts = {site.offset: site.text for site in profile.sites}
        timed = [e for e in loads if "offset:2048" in texts[e.offset]]
        return float(timed[row.load].end - timed[row.load].start)
    if isinstance(row, Region):
        few, more = (microseconds(micro.of_region(row, n * row.passes)) for n in (1, 2))
        return _region_rate(micro, row, 1, more - few)
    if isinstance(row, Stream):
        return _stream_rate(micro, row, microseconds(micro.of_stream(row), row.warm))
    raise ValueError(f"row {row.name} has no model")


def _clk_of_copy(row: Clk, lifetime: Callable[[int, int], float], few: int, more: int) -> float:
    """Clk of one copy, from lifetimes of the workgroup by copies in the loop and by passes."""

    def of_pass(copies: int) -> float:
        return (lifetime(copies, more) - lifetime(copies, few)) / (more - few)

    return (of_pass(2 * row.copies) - of_pass(row.copies)) / row.copies


def _region_rate(micro: Micro, row: Region, longer: int, microseconds: float) -> float:
    return longer * row.passes * PASS_BYTES * micro.workgroups / microseconds / 1e6


def _stream_rate(micro: Micro, row: Stream, microseconds: float) -> float:
    return micro.array_bytes(row) * row.arrays / microseconds / 1e6


# -- a GPU -----------------------------------------------------------------------------------------


def measured(micro: Micro, row: Row) -> Figure:
    """The figure of a GPU, by its own clocks or by events around launches."""
    if isinstance(row, Clk):

        def lifetime(copies: int, passes: int) -> float:
            times = [micro.times(micro.of_clk(row, copies, passes)) for _ in range(_REPEATS)]
            return float(min(of[:, 2].max() - of[:, 0].min() for of in times))

        few, more = (_LONGER * passes for passes in (FEW_PASSES, MORE_PASSES))
        return Figure(row, MEASURED, row.value(_clk_of_copy(row, lifetime, few, more)))
    if isinstance(row, Latency):
        found = []
        for _ in range(_REPEATS):
            micro.flush()
            of_loads = micro.results(micro.of_latency(row), 4)
            found.append(float(of_loads[row.load]) - float(of_loads[3]))
        return _middle(row, found)
    if isinstance(row, Region):
        short, long = (
            statistics.median(_microseconds(micro, micro.of_region(row, n * _LONGER * row.passes)))
            for n in (1, 2)
        )
        return Figure(row, MEASURED, _region_rate(micro, row, _LONGER, long - short))
    if isinstance(row, Stream):
        times = _microseconds(micro, micro.of_stream(row), row.warm)
        return _middle(row, [_stream_rate(micro, row, us) for us in times])
    if isinstance(row, Clock):
        return _clock(micro, row)
    raise ValueError(f"row {row.name} cannot be measured")


def _microseconds(micro: Micro, launch: Launch, warm: bool = False) -> list[float]:
    """Times of launches; caches are flushed or, if `warm`, as an earlier launch left them."""
    found = []
    for _ in range(_REPEATS):
        micro.flush()
        if warm:
            micro.enqueue(launch)
        found.append(1000 * elapsed_ms(runtime.get(), lambda: micro.enqueue(launch)))
    return found


def _clock(micro: Micro, row: Clock) -> Figure:
    (of,) = (clk for clk in table.CLK if clk.name == row.of)
    workgroups, waves = (micro.workgroups, WAVES) if row.loaded else (1, 1)
    for passes in _CLOCK_PASSES:
        launch = micro.launch(of.symbol(of.copies), workgroups, waves, passes=passes)
        found = [_ghz(micro.times(launch)) for _ in range(_REPEATS)]
    return _middle(row, found)


def _ghz(times: np.ndarray[Any, np.dtype[np.uint64]]) -> float:
    """The engine clock, by the clock of 100 MHz."""
    engine, reference = times[:, 2] - times[:, 0], times[:, 3] - times[:, 1]
    return float(np.median(engine / np.maximum(reference, 1))) * REFERENCE_GHZ


def _middle(row: Row, found: Sequence[float]) -> Figure:
    low, *_, high = statistics.quantiles(found, n=10)
    return Figure(row, MEASURED, statistics.median(found), low, high)


# -- tables ----------------------------------------------------------------------------------------

COLUMNS = ("micro kernel", "unit", "settles", "readings", "value", "fits")


def cells(figure: Figure) -> tuple[str, ...]:
    """The texts of a row of the table, by COLUMNS."""
    spread = ""
    if figure.low is not None and figure.high is not None:
        spread = f" ({figure.low:.4g} to {figure.high:.4g})"
    return (
        figure.row.what,
        figure.row.unit,
        figure.row.settles,
        "; ".join(map(str, figure.row.readings)),
        f"{figure.value:.4g}{spread}",
        figure.fits if figure.origin == MEASURED else MODELLED,
    )


def markdown(found: Sequence[Figure]) -> str:
    """The figures as a table in Markdown."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(cells(figure)) + " |" for figure in found]
    return "\n".join(lines) + "\n"
