"""One subject under several schedules: every bit of every output must be the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from amdattn.checking.findings import ERROR, ORDER, Finding, FindingLog
from amdattn.checking.session import Check
from amdattn.device import runtime

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Outputs = Mapping[str, NDArray[Any]]

# Cycled with periods that have no common factor, so that 60 schedules have every combination.
_QUANTA = (1, 16, 3, 8, 2)
_LATE_LOADS = (True, False, True)
_RESIDENT = (1, 0, 2, 16)


@dataclass(frozen=True, slots=True)
class Schedule:
    """How waves and workgroups take turns, and when loads arrive.

    Attributes
    ----------
    seed : int
        0: in the order of their index; otherwise shuffled.
    quantum : int
        Instructions of a wave before the next one runs.
    late_loads : bool
        Loads arrive at the last moment that the waits allow; False: some of them at once.
    resident_workgroups : int
        Number of workgroups that run at a time; 0: as many as fit the device.
    """

    seed: int = 0
    quantum: int = 8
    late_loads: bool = True
    resident_workgroups: int = 0

    def __str__(self) -> str:
        resident = self.resident_workgroups or "all"
        loads = "late" if self.late_loads else "mixed"
        return f"(seed {self.seed}, quantum {self.quantum}, {loads} loads, {resident} resident)"


def schedules(count: int, seed: int = 0, residency: int | None = None) -> list[Schedule]:
    """The device's own schedule and `count` - 1 adversarial ones.

    Parameters
    ----------
    count : int
        At least 1.
    seed : int
        Another seed gives other schedules.
    residency : int, optional
        Resident workgroups of every schedule, instead of 1, 2, 16 and all.
    """
    if count < 1:
        raise ValueError(f"schedules={count} must be >= 1")
    if residency is not None and residency < 0:
        raise ValueError(f"residency={residency} must be >= 0 (0 means as many as fit)")
    made = [Schedule(resident_workgroups=residency or 0)]
    for i in range(count - 1):
        resident = _RESIDENT[i % len(_RESIDENT)] if residency is None else residency
        made.append(
            Schedule(
                seed * 1000 + i + 1,
                _QUANTA[i % len(_QUANTA)],
                _LATE_LOADS[i % len(_LATE_LOADS)],
                resident,
            )
        )
    return made


class Subject(Protocol):
    """Something to launch: an operation on some inputs, or a kernel of a code object."""

    @property
    def title(self) -> str:
        """One line for people."""

    def run(self, check: Check) -> Outputs:
        """Allocate, declare what must hold, launch once, and copy the outputs to the host."""


def run(
    subject: Subject, plan: Sequence[Schedule], log: FindingLog, max_errors: int = 0
) -> Iterator[tuple[Schedule, Check]]:
    """Run a subject under every schedule of `plan`, and compare their outputs with the first's.

    Parameters
    ----------
    log : FindingLog
        The log that collects findings.

    Yields
    ------
    schedule, check
        After each run.
    """
    first: tuple[Schedule, Outputs] | None = None
    for schedule in plan:
        check, outputs = _run_once(subject, schedule, max_errors)
        log.merge(check.log)
        if outputs is not None and first is None:
            first = (schedule, outputs)
        elif outputs is not None and first is not None:
            log.add({}, _differences(subject, check, first, (schedule, outputs)))
        yield schedule, check


def _run_once(
    subject: Subject, schedule: Schedule, max_errors: int
) -> tuple[Check, Outputs | None]:
    """Outputs are None if a launch ended with a fault, which is a finding."""
    device = runtime.get()
    exports = device.virtual_exports()
    restore = exports.set_options(
        seed=schedule.seed,
        quantum=schedule.quantum,
        resident_workgroups=schedule.resident_workgroups,
    )
    outputs = None
    try:
        with Check(
            device,
            raise_on=None,
            read_only=(),
            zero_at_end=(),
            suppressions=None,
            max_errors=max_errors,
            late_loads=schedule.late_loads,
        ) as check:
            outputs = subject.run(check)
    finally:
        exports.set_options(**restore)
    return check, outputs


def _differences(
    subject: Subject, check: Check, one: tuple[Schedule, Outputs], other: tuple[Schedule, Outputs]
) -> list[Finding]:
    import numpy as np

    found = []
    launch = next(reversed(check.launches))
    for name, expected in one[1].items():
        actual = other[1][name]
        bits, other_bits = (_bits(x) for x in (expected, actual))
        if np.array_equal(bits, other_bits):
            continue
        differing = bits != other_bits
        at = np.unravel_index(int(np.argmax(differing)), expected.shape)
        index = tuple(int(i) for i in at)
        found.append(
            Finding(
                ORDER,
                ERROR,
                f"{int(np.count_nonzero(differing))} of {expected.size} elements of {name} depend "
                f"on the schedule: {name}{list(index)} is {_value(bits, expected, index)} under "
                f"{one[0]}, and {_value(other_bits, actual, index)} under {other[0]}",
                kernel=launch.kernel,
                code_object=launch.code_object,
                where=f"{name} of {subject.title}",
            )
        )
    return found


def _bits(array: Any) -> Any:
    """The elements as unsigned integers: NaN must equal itself, and -0 is not +0."""
    return array.view(f"u{array.dtype.itemsize}")


def _value(bits: Any, array: Any, index: tuple[int, ...]) -> str:
    width = 2 + 2 * array.dtype.itemsize
    return f"{array[index]} ({int(bits[index]):#0{width}x})"
