"""Runs the shipped micro kernels: modelled on the virtual device, measured on a GPU."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import json
import statistics
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from amdattn import paths
from amdattn.bench import micro_table as table
from amdattn.bench.clocks import clocks
from amdattn.bench.kernels import Functions, Launch
from amdattn.bench.micro_table import LANES, Clk, Clock, Latency, Region, Row, Stream
from amdattn.bench.modelled import profiled
from amdattn.bench.record import MEASURED, MODELLED
from amdattn.bench.run import is_virtual
from amdattn.device import runtime
from amdattn.device.profiling import LaunchProfile
from amdattn.errors import CorruptKernel, ManifestError, UnsupportedDeviceError
from amdattn.testing.bench import elapsed_ms

SCHEMA = 1
REFERENCE_GHZ = 0.1  # of s_memrealtime
LATENCY_MHZ = 2092  # of the published latencies
PEAK_MHZ = round(1000 * clocks(table.ARCH).peak_ghz)
_CLOSE = 0.08  # a figure farther than this from every reading fits none
_MEMORY = 16 << 20  # bytes that the kernels of clk and latencies may read,
_VALUES = 8192  # and of them, that become operands
_ARGUMENTS = struct.Struct("<IIQQIIII")
_PASS_BYTES = table.LOAD_BYTES * table.UNROLLED  # of a workgroup
# Of a GPU: launches of which the fastest or the middle one counts, and how much longer loops are.
_REPEATS, _LONGER = 7, 8
_CLOCK_PASSES = (100, 3000, 25000)  # grow; the last ones take tens of ms


@dataclass(frozen=True)
class Figure:
    """What a row gave.

    Attributes
    ----------
    origin : {"modelled", "measured"}
    low, high : float or None
        Of what was measured several times: quantiles 0.1 and 0.9.
    """

    row: Row
    origin: str
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def fits(self) -> str:
        """The reading that is nearest, or those that are; "none of these" if all are far."""

        def distance(reading: table.Reading) -> float:
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
        """As JSON has it."""
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
    """Those whose names contain one of `names`, separated by commas; "": all.

    Raises
    ------
    ValueError
        A part of `names` is in no name.
    """
    parts = [part.strip() for part in names.split(",")] if names else []
    for part in parts:
        if not part or not any(part in row.name for row in table.ROWS):
            known = ", ".join(row.name for row in table.ROWS)
            raise ValueError(f"only={names!r}: {part!r} is in no name of {known}")
    return [row for row in table.ROWS if not parts or any(part in row.name for part in parts)]


@functools.cache
def image() -> bytes:
    """The code object of the micro kernels.

    Raises
    ------
    ManifestError, CorruptKernel
        It, or its manifest, is missing or not what was shipped.
    """
    folder = paths.hsaco_dir() / "micro"
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        if manifest["schema"] != SCHEMA:
            raise ValueError(f"schema {manifest['schema']!r} is not {SCHEMA}")
        found = (folder / manifest["file"]).read_bytes()
        recorded = manifest["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ManifestError(f"{folder} does not hold the micro kernels: {error!r}") from None
    if hashlib.sha256(found).hexdigest() != recorded:
        raise CorruptKernel(f"the micro kernels in {folder} do not have their recorded sha256")
    return bytes(found)


class Micro:
    """The micro kernels on the bound device, with memory for them, in a `with` block.

    Raises
    ------
    UnsupportedDeviceError
        They are for another architecture.
    """

    def __init__(self) -> None:
        self._device = runtime.get()
        props = self._device.props
        if props.arch != table.ARCH:
            raise UnsupportedDeviceError(
                f"the micro kernels are for {table.ARCH}, the device is {props.target}"
            )
        self._functions = Functions()
        self._stack = contextlib.ExitStack()
        self._allocated: dict[str, tuple[int, int]] = {}

    def __enter__(self) -> Micro:
        data = np.random.default_rng(0).standard_normal(_VALUES // 4, np.float32)
        self._memory = self.memory("values", _MEMORY)
        self._device.upload(self._memory, data.ctypes.data, data.nbytes)
        self._results = self.memory("results", 1 << 20)
        self._device.synchronize(0)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def memory(self, name: str, nbytes: int) -> int:
        """Device memory until the end of the block, the same for a name while it is enough."""
        address, size = self._allocated.get(name, (0, 0))
        if size < nbytes:
            address = self._device.malloc(nbytes)
            self._stack.callback(self._device.free, address)
            self._allocated[name] = address, nbytes
        return address

    @property
    def workgroups(self) -> int:
        """One for every CU."""
        return self._device.props.num_cus

    def launch(
        self,
        symbol: str,
        workgroups: int = 1,
        waves: int = 1,
        *,
        passes: int = 1,
        memory: int = 0,
        results: int = 0,
        stride: int = 0,
        array: int = 0,
        apart: int = 0,
        mask: int = 0,
    ) -> Launch:
        """A launch of a kernel of the object."""
        packed = _ARGUMENTS.pack(
            *(passes, waves, memory or self._memory, results or self._results),
            *(stride, array, apart, mask),
        )
        return Launch(image(), symbol, (workgroups, 1, 1), (LANES * waves, 1, 1), packed)

    def function(self, launch: Launch) -> Any:
        """Its loaded kernel."""
        return self._functions.of(launch.image, launch.symbol)

    @staticmethod
    def arguments(launch: Launch) -> list[Any]:
        """Those of a launch, each as a ctypes value of its own."""
        types = {"I": ctypes.c_uint32, "Q": ctypes.c_uint64}
        return [
            types[code](value)
            for code, value in zip(
                _ARGUMENTS.format[1:], _ARGUMENTS.unpack(launch.kernarg), strict=True
            )
        ]

    def enqueue(self, launch: Launch) -> None:
        """On the default stream."""
        launch.enqueue(self._functions)

    def profile(self, launch: Launch, *, warm: bool = False, **options: Any) -> LaunchProfile:
        """What the model says of it, or of a second one; options of `amdattn.virtual.profile`."""

        def run() -> None:
            for _ in range(1 + warm):
                self.enqueue(launch)

        return profiled(run, **options)[-1]

    def results(self, launch: Launch, count: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """Launch, wait, and read so many dwords that it wrote."""
        self.enqueue(launch)
        found = np.zeros(count, np.uint32)
        self._device.download(found.ctypes.data, self._results, found.nbytes)
        self._device.synchronize(0)
        return found

    def times(self, launch: Launch) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """(waves, 4): engine and 100 MHz clock of each wave at its start, then at its end."""
        waves = launch.num_workgroups * launch.num_waves
        return self.results(launch, 8 * waves).view(np.uint64).reshape(waves, 4)

    def flush(self) -> None:
        """Of a GPU: empty the caches."""
        self._device.flush_caches()

    # -- launches of a row -------------------------------------------------------------------------

    def of_clk(self, row: Clk, copies: int, passes: int) -> Launch:
        """One workgroup."""
        return self.launch(row.symbol(copies), 1, row.waves, passes=passes)

    def of_stream(self, row: Stream) -> Launch:
        """Over all arrays."""
        nbytes = self.array_bytes(row)
        memory = self.memory("arrays", row.arrays * nbytes)
        return self.launch(
            row.symbol,
            self.workgroups,
            table.WAVES,
            passes=row.passes,
            memory=memory,
            stride=table.LOAD_BYTES * self.workgroups,
            array=nbytes,
        )

    def array_bytes(self, row: Stream) -> int:
        """Of one array."""
        return _PASS_BYTES * self.workgroups * row.passes

    def of_region(self, row: Region, passes: int) -> Launch:
        """All workgroups over one region."""
        memory = self.memory("arrays", row.nbytes)
        return self.launch(
            row.symbol,
            self.workgroups,
            table.WAVES,
            passes=passes,
            memory=memory,
            apart=row.apart,
            mask=row.nbytes - 1,
        )

    def of_latency(self, row: Latency) -> Launch:
        """One wave."""
        return self.launch(row.symbol, passes=row.evicted >> 15)


def figures(
    chosen: Sequence[Row], trans: str | None = None, micro: Micro | None = None
) -> Iterator[Figure]:
    """The rows on the bound device, one at a time; rows that have no model are left out there.

    trans : the reading of transcendentals to model; None: as it is set.
    """
    with contextlib.ExitStack() as stack:
        micro = micro or stack.enter_context(Micro())
        for row in chosen:
            if not is_virtual():
                yield measured(micro, row)
            elif not isinstance(row, Clock):
                yield Figure(row, MODELLED, modelled(micro, row, trans))


# -- the model -------------------------------------------------------------------------------------


def modelled(micro: Micro, row: Row, trans: str | None = None) -> float:
    """What the performance model says, in the row's unit."""

    def microseconds(launch: Launch, warm: bool = False) -> float:
        return micro.profile(launch, warm=warm, clock_mhz=PEAK_MHZ, trans=trans).microseconds()

    if isinstance(row, Clk):

        def lifetime(copies: int, passes: int) -> float:
            (time,) = micro.profile(micro.of_clk(row, copies, passes), trans=trans).times
            return time.end - time.start

        return row.value(_clk_of_copy(row, lifetime, table.FEW_PASSES, table.MORE_PASSES))
    if isinstance(row, Latency):
        profile = micro.profile(
            micro.of_latency(row), clock_mhz=LATENCY_MHZ, trace_events=100_000, trans=trans
        )
        # The loads of its loop are between the second and the third that count.
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
    """From lifetimes of the workgroup by copies in the loop and passes of it."""

    def of_pass(copies: int) -> float:
        return (lifetime(copies, more) - lifetime(copies, few)) / (more - few)

    return (of_pass(2 * row.copies) - of_pass(row.copies)) / row.copies


def _region_rate(micro: Micro, row: Region, longer: int, microseconds: float) -> float:
    return longer * row.passes * _PASS_BYTES * micro.workgroups / microseconds / 1e6


def _stream_rate(micro: Micro, row: Stream, microseconds: float) -> float:
    return micro.array_bytes(row) * row.arrays / microseconds / 1e6


# -- a GPU -----------------------------------------------------------------------------------------


def measured(micro: Micro, row: Row) -> Figure:
    """What the GPU takes, by its own clocks or by events around launches."""
    if isinstance(row, Clk):

        def lifetime(copies: int, passes: int) -> float:
            times = [micro.times(micro.of_clk(row, copies, passes)) for _ in range(_REPEATS)]
            return float(min(of[:, 2].max() - of[:, 0].min() for of in times))

        few, more = (_LONGER * passes for passes in (table.FEW_PASSES, table.MORE_PASSES))
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
    """Of launches that find the caches flushed, or as a launch before has left them."""
    found = []
    for _ in range(_REPEATS):
        micro.flush()
        if warm:
            micro.enqueue(launch)
        found.append(1000 * elapsed_ms(runtime.get(), lambda: micro.enqueue(launch)))
    return found


def _clock(micro: Micro, row: Clock) -> Figure:
    (of,) = (clk for clk in table.CLK if clk.name == row.of)
    workgroups, waves = (micro.workgroups, table.WAVES) if row.loaded else (1, 1)
    for passes in _CLOCK_PASSES:
        launch = micro.launch(of.symbol(of.copies), workgroups, waves, passes=passes)
        found = [_ghz(micro.times(launch)) for _ in range(_REPEATS)]
    return _middle(row, found)


def _ghz(times: np.ndarray[Any, np.dtype[np.uint64]]) -> float:
    """Of the engine, by the clock of 100 MHz."""
    engine, reference = times[:, 2] - times[:, 0], times[:, 3] - times[:, 1]
    return float(np.median(engine / np.maximum(reference, 1))) * REFERENCE_GHZ


def _middle(row: Row, found: Sequence[float]) -> Figure:
    low, *_, high = statistics.quantiles(found, n=10)
    return Figure(row, MEASURED, statistics.median(found), low, high)


# -- tables ----------------------------------------------------------------------------------------

COLUMNS = ("micro kernel", "unit", "settles", "readings", "value", "fits")


def cells(figure: Figure) -> tuple[str, ...]:
    """Of a table, by COLUMNS."""
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
    """A table."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(cells(figure)) + " |" for figure in found]
    return "\n".join(lines) + "\n"
