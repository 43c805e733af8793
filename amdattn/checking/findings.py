"""Findings of checked mode, and the log that gathers them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

ERROR, COUNTED, ADVICE = "error", "counted", "advice"
SEVERITIES = (ERROR, COUNTED, ADVICE)
ORDER = "order"

# The names of virtual_device/check/finding.h, in its order, and ORDER, which is found by
# comparing the outputs of several schedules.
KINDS = (
    *("use_before_wait", "overwrite_before_wait", "counter_saturated", "over_wait", "hazard"),
    *("hazard_advice", "clause_overwrite", "lds_race"),
    *("global_race", "stale_read", "same_value_race"),
    *("illegal_address", "use_after_free", "misaligned", "ambiguous_range"),
    *("range_swallowed", "uninitialised_store", "uninitialised_address", "uninitialised_branch"),
    *("unwritten_output", "read_only_write", "kernarg_overread", "barrier_mismatch"),
    *("no_active_lane", "runaway", "deadlock", "dirty_memory", "scratch_bounds", "lds_bounds"),
    *("outside_kernel", "illegal_instruction", "trap", "unchecked", ORDER),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One defect (or advice) with the place where it was first seen.

    Attributes
    ----------
    kind : str
        One of KINDS.
    severity : {"error", "counted", "advice"}
        "counted" is legitimate and worth a number.
    message : str
        One line.
    kernel : str
        "" for a finding of a host call, such as a copy of bytes that nothing wrote.
    pc, offset : int or None
        The instruction's ELF virtual address, as a disassembler prints it, and its distance from
        the kernel's entry. None for a host call.
    text : str
        The instruction, disassembled.
    producer_pc, producer_text
        The load, write or barrier that it conflicts with, if there is one: the first one seen.
    other_producers : tuple of int
        Addresses of producers that were seen later at the same instruction, at most 15.
    workgroup, wave, lane
        Where it happened first; lane -1 means that it belongs to no single lane.
    where : str
        Register or address: "v12", "s[4:5]", "lds 0x40", "0x7f0000001000 = out[3, 7]".
    count : int
        Times it was seen.
    source, producer_source : str or None
        "file:line" where the code object has debug info.
    code_object : str or None
        The first 16 digits of the sha256 of the code object's image.
    """

    kind: str
    severity: str
    message: str
    kernel: str = ""
    pc: int | None = None
    offset: int | None = None
    text: str = ""
    producer_pc: int | None = None
    producer_text: str = ""
    other_producers: tuple[int, ...] = ()
    workgroup: tuple[int, int, int] = (0, 0, 0)
    wave: int = 0
    lane: int = -1
    where: str = ""
    count: int = 1
    source: str | None = None
    producer_source: str | None = None
    code_object: str | None = None

    @property
    def place(self) -> str:
        """Kernel and instruction in one line; "host call" without a kernel."""
        if not self.kernel:
            return "host call"
        if self.pc is None:
            return f"kernel {self.kernel}"
        offset = "" if self.offset is None else f" ({self.offset:+#x})"
        return f"kernel {self.kernel} at {self.pc:#x}{offset}: {self.text}"

    @property
    def seen_by(self) -> str:
        """Workgroup, wave, lane and register or address; without an instruction the last only."""
        if self.pc is None:
            return self.where
        lane = "" if self.lane < 0 else f", lane {self.lane}"
        where = f": {self.where}" if self.where else ""
        return f"workgroup {self.workgroup}, wave {self.wave}{lane}{where}"

    @property
    def producer(self) -> str:
        """The producer's pc, instruction and source line in one line; "" without one."""
        if self.producer_pc is None:
            return ""
        source = f" [{self.producer_source}]" if self.producer_source else ""
        others = ", ".join(f"{pc:#x}" for pc in self.other_producers)
        also = f" (also {others})" if others else ""
        return f"{self.producer_pc:#x}: {self.producer_text}{source}{also}"

    def __str__(self) -> str:
        rows = (
            ("", self.message),
            ("source", self.source),
            ("where", self.seen_by),
            ("producer", self.producer),
            ("seen", f"{self.count} times" if self.count > 1 else ""),
        )
        lines = [f"{self.kind}: {self.place}"]
        lines += [
            f"    {key:<10}{value}" if key else f"    {value}" for key, value in rows if value
        ]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The attributes as JSON has them."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True)
class CheckedLaunch:
    """A launch that was checked."""

    kernel: str
    code_object: str
    grid: tuple[int, int, int]
    workgroup_size: tuple[int, int, int]


_TUPLES = ("workgroup", "grid", "workgroup_size", "other_producers")
_OTHER_PRODUCERS = 15
_HAZARDS, _OVER_WAIT = ("hazard", "hazard_advice"), "over_wait"


def _from_json(cls: Any, record: Mapping[str, Any]) -> Any:
    """Build a dataclass from what the library wrote; it has every field, and no other."""
    values = {k: tuple(v) if k in _TUPLES else v for k, v in record.items()}
    return cls(**values)


def read_findings(
    document: Mapping[str, Any], identify: Callable[[int], str]
) -> tuple[dict[CheckedLaunch, int], list[Finding]]:
    """Read what `amdattn_vdev_take_findings` returns.

    Parameters
    ----------
    identify : callable
        Gives `Finding.code_object` for the library's number of a code object.

    Returns
    -------
    launches : dict of CheckedLaunch to int
        How often each was made.
    findings : list of Finding
    """
    launches: dict[CheckedLaunch, int] = {}
    found: list[Finding] = []
    for entry in document["launches"]:
        facts = {key: value for key, value in entry.items() if key not in ("findings", "times")}
        facts["code_object"] = identify(entry["code_object"])
        launches[_from_json(CheckedLaunch, facts)] = entry["times"]
        place = {key: facts[key] for key in ("kernel", "code_object")}
        found.extend(_from_json(Finding, {**record, **place}) for record in entry["findings"])
    found.extend(_from_json(Finding, record) for record in document["host_findings"])
    return launches, found


def _joined(known: Finding, again: Finding) -> Finding:
    """The known finding after it was seen again."""
    seen = (*known.other_producers, again.producer_pc, *again.other_producers)
    others = [pc for pc in dict.fromkeys(seen) if pc is not None and pc != known.producer_pc]
    return dataclasses.replace(
        known,
        count=known.count + again.count,
        other_producers=tuple(others[:_OTHER_PRODUCERS]),
    )


class FindingLog:
    """Findings of any number of launches; a defect that several launches share is one finding.

    Attributes
    ----------
    launches : dict of CheckedLaunch to int
        How often each was launched.
    dropped_launches, dropped_findings : int
        Launches and findings that the virtual device had no room for: it keeps 16384 different
        launches and 32768 different findings.
    """

    def __init__(self) -> None:
        self.launches: dict[CheckedLaunch, int] = {}
        self.dropped_launches = self.dropped_findings = 0
        self._merged: dict[object, Finding] = {}

    def add(self, launches: Mapping[CheckedLaunch, int], findings: Iterable[Finding]) -> None:
        """Add the findings of one `take_findings`, or other findings."""
        for launch, times in launches.items():
            self.launches[launch] = self.launches.get(launch, 0) + times
        for finding in findings:
            # Without a pc: a whole output, or a host call, whose address differs from run to run.
            place: object = finding.pc
            if finding.pc is None:
                place = finding.where if finding.kind == ORDER else finding.message
            elif finding.kind in _HAZARDS:
                place = (finding.pc, finding.producer_pc)  # as the library tells them apart
            elif finding.kind == _OVER_WAIT:
                place = (finding.pc, finding.where)  # a wait has two counters
            key = (finding.kind, finding.kernel, finding.code_object, place)
            known = self._merged.get(key)
            self._merged[key] = _joined(known, finding) if known else finding

    def merge(self, other: FindingLog) -> None:
        """Add everything of another log."""
        self.add(other.launches, other)
        self.dropped_launches += other.dropped_launches
        self.dropped_findings += other.dropped_findings

    def __iter__(self) -> Iterator[Finding]:
        return iter(sorted(self._merged.values(), key=_reading_order))

    @property
    def num_launches(self) -> int:
        """Launches that were checked."""
        return sum(self.launches.values()) + self.dropped_launches

    @property
    def dropped(self) -> str:
        """The note of a report about findings that were not kept; "" if all were."""
        if not self.dropped_launches and not self.dropped_findings:
            return ""
        return (
            f"warning: {self.dropped_findings} findings and {self.dropped_launches} launches were "
            "more than the virtual device keeps: check fewer launches at a time, or call collect()"
        )

    def kernels(self) -> list[tuple[str, str]]:
        """(code object, kernel) of every kernel that was launched, in order."""
        return list(dict.fromkeys((launch.code_object, launch.kernel) for launch in self.launches))


def _reading_order(finding: Finding) -> tuple[object, ...]:
    severity = SEVERITIES.index(finding.severity)
    return (severity, finding.kernel, finding.code_object or "", finding.pc or 0, finding.kind)
