"""One row of a benchmark: what ran, on which device, its cost, and the origin of each number."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import amdattn
from amdattn.arch.readings import DEFAULT
from amdattn.bench.inputs import NORMAL
from amdattn.user_files import read_json

SCHEMA = 2
MODELLED, MEASURED = "modelled", "measured"
# A shorter launch hardly reaches the power cap, or not for long. The constant clock, which is that
# of launches at the cap, is then further from the truth than the estimate.
SHORT_US = 1000.0


@dataclass(frozen=True)
class Times:
    """Microseconds of one operation.

    Attributes
    ----------
    at_peak_us, at_sustained_us : float or None
        Modelled cycles at the peak or the sustained clock. The overhead of the first launch is not
        included; that between several launches is. The time at the peak clock is a lower bound.
    estimated_us : float or None
        Modelled cycles at the clock of the energy estimate, if there is one. A short launch is
        simulated at that clock; of other launches the cycles are those of the sustained clock, but
        the time is at least what HBM needs for its bytes.
    by_use_us : float or None
        Modelled cycles at the clock by matrix use of `amdattn.arch.power_cap`, if there is one. It
        is meant for long launches, and does not include the launch.
    median_us, low_us, high_us : float or None
        Measured with events of a GPU: the median, and the quantiles 0.1 and 0.9.
    """

    at_peak_us: float | None = None
    at_sustained_us: float | None = None
    estimated_us: float | None = None
    by_use_us: float | None = None
    median_us: float | None = None
    low_us: float | None = None
    high_us: float | None = None


@dataclass(frozen=True)
class Record:
    """The result of a kernel at a shape.

    Attributes
    ----------
    operation, shape : str
        E.g. "attention", and the shape as tables show it.
    sizes : dict
        The parameters of the problem.
    peer : str
        The owner of the kernel: "amdattn", another project, or object=FILE.
    round_mode : str
        Rounding of the probabilities; "" for other operations.
    origin : {"modelled", "measured"}
    refused : str
        The reason why there are no numbers; "" if there are.
    kernel, sha256 : str
        Symbol, and digest of the code object; with " + " between those of several launches.
    flops : int
        Useful operations; 0: unknown, or the cycles are of a part of the launch.
    inputs : str
        Contents of q, k and v: a class of `amdattn.bench.inputs`, or a file; "" for other
        operations.
    cycles : float or None
        Modelled; None if measured.
    times : Times
    use : dict of str to float
        Share of the cycles in which MFMA, VALU and LDS are busy, over the CUs that got a workgroup;
        mfma_device: MFMA over all CUs of the device.
    stalls : dict of str to float
        Share of the waves' lifetime by reason.
    bytes : dict of str to float
        Bytes of the whole device by the level that served them (l1, l2, mall, hbm) or accepted them
        (l2_write, mall_write, hbm_write).
    workgroups, residents, rounds : int
        Workgroups of the launch, workgroups that share a CU, and rounds in which they run.
    clocks : dict
        Assumed clocks: peak_ghz, sustained_ghz, and by_use_ghz if there is one; launch_us, which no
        other number includes; gemm_tflops, the greatest published rate of a product.
    reading : str
        The reading that was modelled: "default", or the name of an assumption that differs
        (docs/generated/readings.md). "" if measured.
    caches : str
        Contents of the model's caches when the operation starts; "" if measured.
    sampled : dict
        What was simulated in place of the whole launch; empty if all of it was.
    hottest : list of dict
        The instructions at which waves waited longest.
    launches : list of dict
        For an operation of several launches, the kernel and the figures of each; else empty. The
        record has sums, and means of the shares weighted by cycles.
    energy : dict
        An estimate, not part of the model (amdattn.energy): joules, microseconds and clock_ghz
        under the power cap, the cycles to which they apply, watts by consumer; operations of MFMAs
        by MxNxK, and per thousand of them VALU slots of 64 lanes and bytes of LDS, L1, L2 and HBM.
        Or "refused": the reason why there is no estimate.
    """

    operation: str
    shape: str
    sizes: dict[str, Any]
    peer: str
    round_mode: str
    origin: str
    refused: str = ""
    kernel: str = ""
    sha256: str = ""
    flops: int = 0
    inputs: str = ""
    cycles: float | None = None
    times: Times = field(default_factory=Times)
    use: dict[str, float] = field(default_factory=dict)
    stalls: dict[str, float] = field(default_factory=dict)
    bytes: dict[str, float] = field(default_factory=dict)
    workgroups: int = 0
    residents: int = 0
    rounds: int = 0
    clocks: dict[str, float] = field(default_factory=dict)
    reading: str = ""
    caches: str = ""
    sampled: dict[str, Any] = field(default_factory=dict)
    hottest: list[dict[str, Any]] = field(default_factory=list)
    launches: list[dict[str, Any]] = field(default_factory=list)
    energy: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The name of the kernel in comparisons at the same shape."""
        other_plan = ", parts merged apart" * bool(self.sampled.get("merged_apart"))
        name = f"{self.peer} {self.round_mode}".strip() + other_plan
        other_inputs = f" {self.inputs}" * (self.inputs not in ("", NORMAL.name))
        return name + other_inputs + self.other_reading

    @property
    def other_reading(self) -> str:
        """The reading as the end of a title; "" for the default one and if measured."""
        return f", {self.reading}" if self.reading not in ("", DEFAULT) else ""

    @property
    def short(self) -> bool:
        """Whether to compare by the time at the estimated clock, not at the sustained one."""
        times = self.times
        return times.estimated_us is not None and (times.at_sustained_us or 0.0) < SHORT_US

    @property
    def issue(self) -> float:
        """Share of the waves' lifetime in which they issue: the remainder after all stalls."""
        return max(1 - sum(self.stalls.values()), 0.0)

    def us(self, estimated: bool) -> float | None:
        """The time for comparisons: measured, or modelled at the estimated or sustained clock."""
        if self.origin == MEASURED:
            return self.times.median_us
        return self.times.estimated_us if estimated else self.times.at_sustained_us

    def tflops(self, microseconds: float | None) -> float | None:
        """TFLOP/s of the useful operations in this time; None if one of the two is unknown."""
        return self.flops / microseconds / 1e6 if microseconds and self.flops else None

    def as_dict(self) -> dict[str, Any]:
        """The record as an object of JSON, with the TFLOP/s of each time."""
        row = dataclasses.asdict(self)
        row["tflops"] = {
            name.removesuffix("_us"): self.tflops(value)
            for name, value in row["times"].items()
            if value is not None
        }
        return row


def estimate_leads(records: Sequence[Record]) -> bool:
    """Whether to compare records at the estimated clock: if all modelled ones are short."""
    modelled = [r for r in records if r.origin == MODELLED and not r.refused]
    return bool(modelled) and all(record.short for record in modelled)


def leading_us(records: Sequence[Record]) -> list[float | None]:
    """The time of each record for comparisons, of the same kind for all records of a shape."""
    shapes: dict[str, list[Record]] = {}
    for record in records:
        shapes.setdefault(record.shape, []).append(record)
    leads = {shape: estimate_leads(of) for shape, of in shapes.items()}
    return [None if r.refused else r.us(leads[r.shape]) for r in records]


def document(records: Sequence[Record], seconds: float) -> dict[str, Any]:
    """The document of a run for --json: versions, device, seconds of the run, and records."""
    from amdattn.device import runtime

    device = runtime.get()
    return {
        "schema": SCHEMA,
        "versions": {
            "amdattn": amdattn.__version__,
            "model": model_version(),
            "python": platform.python_version(),
            "hip_runtime": device.version(),
        },
        "device": {
            "name": device.props.name,
            "target": device.props.target,
            "virtual": device.choice.kind == "virtual",
            "cus": device.props.num_cus,
        },
        "seconds": round(seconds, 3),
        "records": [record.as_dict() for record in records],
    }


def model_version() -> str:
    """The first 12 digits of the sha256 of the library with the model; "" on a GPU."""
    import hashlib

    from amdattn.device import runtime

    choice = runtime.get().choice
    if choice.kind != "virtual":
        return ""
    return hashlib.sha256(Path(choice.library).read_bytes()).hexdigest()[:12]


def read(path: Path) -> tuple[dict[str, Any], list[Record]]:
    """Read a document that --json wrote; return it and its records.

    Raises
    ------
    ValueError
        The file is not such a document.
    """
    try:
        found = read_json(path)
        if found["schema"] != SCHEMA:
            raise ValueError(f"schema {found['schema']!r} is not {SCHEMA}")
        return found, [_record(row) for row in found["records"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} was not written by `amdattn bench --json` ({type(error).__name__}: {error})"
        ) from None


# The types that JSON has for the annotations of a Record and its Times.
_JSON_TYPES: dict[str, tuple[type, ...]] = {
    **{"str": (str,), "int": (int,), "float | None": (int, float, type(None))},
    **{"Times": (dict,), "dict[str, Any]": (dict,), "dict[str, float]": (dict,)},
    "list[dict[str, Any]]": (list,),
}


def _record(row: Any) -> Record:
    if not isinstance(row, dict):
        raise TypeError(f"a record is {row!r}")
    fields = _checked(Record, row)
    return Record(**fields | {"times": Times(**_checked(Times, fields["times"]))})


def _checked(kind: type[Any], row: dict[str, Any]) -> dict[str, Any]:
    """The fields of `kind` that the row has; raises TypeError for a value of another type."""
    types = {f.name: str(f.type) for f in dataclasses.fields(kind)}
    found = {name: value for name, value in row.items() if name in types}
    for name, value in found.items():
        if type(value) not in _JSON_TYPES[types[name]]:
            raise TypeError(f"{name} is {value!r}, not of type {types[name]}")
    return found
