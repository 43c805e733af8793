"""The `amdattn.virtual.check` context manager: checked mode from its begin to its end."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from amdattn import scalars
from amdattn.checking.arrays import Arrays, device_view, element_at, named, runs
from amdattn.checking.findings import (
    ADVICE,
    COUNTED,
    ERROR,
    CheckedLaunch,
    Finding,
    FindingLog,
    read_findings,
)
from amdattn.checking.sources import SourceLines
from amdattn.checking.suppressions import Suppression, Suppressions
from amdattn.device import watching
from amdattn.errors import CheckError, HipError

if TYPE_CHECKING:
    from types import TracebackType

    from amdattn.arrays.views import View
    from amdattn.device.runtime import Runtime
    from amdattn.device.virtual_library import Exports, Instruction

RAISE_ON = ("error", None)


class Check:
    """Checks every launch of the process while its `with` block runs. See `amdattn.virtual.check`.

    Attributes
    ----------
    fault : HipError or None
        The HIP error that a finding caused and that was not raised, because the findings say more.
    log : FindingLog
        Everything found, suppressed or not.
    """

    def __init__(
        self,
        device: Runtime,
        *,
        raise_on: str | None,
        read_only: Arrays,
        zero_at_end: Arrays,
        suppressions: Suppressions | str | os.PathLike[str] | None,
        max_errors: int,
        late_loads: bool,
        late_stores: bool = True,
    ) -> None:
        if raise_on not in RAISE_ON:
            raise ValueError(f"raise_on={raise_on!r} must be one of {RAISE_ON}")
        max_errors = scalars.integer("max_errors", max_errors)
        if max_errors < 0:
            raise ValueError(f"max_errors={max_errors} must be >= 0 (0 means no limit)")
        self.fault: HipError | None = None
        self._device = device
        self._exports: Exports = device.virtual_exports()
        self._raise_on = raise_on
        self._declared = (read_only, zero_at_end)
        self._suppressions = Suppressions.of(suppressions)
        self._options = {
            "max_errors": max_errors,
            "late_loads": int(scalars.boolean("late_loads", late_loads)),
            "late_stores": int(scalars.boolean("late_stores", late_stores)),
        }
        self.log = FindingLog()
        self._numbers: dict[str, int] = {}  # the library's, of this check
        self._images: dict[str, bytes] = {}
        self._sources: dict[str, SourceLines] = {}
        self._views: dict[str, View] = {}

    # -- the block -------------------------------------------------------------------------------

    def __enter__(self) -> Check:
        watching.begin("a check")
        try:
            self._synchronize()  # an earlier launch's error is not this block's
            self._restore = self._exports.set_options(**self._options, check=1)
            try:
                self.declare(read_only=self._declared[0], zero_at_end=self._declared[1])
            except BaseException:
                self._exports.set_options(**self._restore)
                raise
        except BaseException:
            watching.end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        try:
            self.collect()
        finally:
            self._exports.set_options(**self._restore)
            watching.end()
        if isinstance(error, HipError):
            self.fault = error
        elif error is not None:  # the block's own failure, which the findings may explain
            if self.errors and hasattr(error, "add_note"):  # since Python 3.11
                error.add_note(str(self._summary()))
            return False
        if not self.errors and not self.log.dropped_findings:
            if self.fault is not None and error is None:
                raise self.fault
            return False
        if self._raise_on == ERROR:
            raise self._summary() from self.fault
        return True

    def _summary(self) -> CheckError:
        return CheckError(self.errors, notes(self.suppressed, self.log))

    def _synchronize(self) -> None:
        device = self._device
        device.check("hipDeviceSynchronize", device.hip.hipDeviceSynchronize())

    def declare(
        self, *, read_only: Arrays = (), zero_at_end: Arrays = (), others: Arrays = ()
    ) -> None:
        """Declare properties of device arrays from here to the end of the block.

        Parameters
        ----------
        read_only : sequence or mapping of arrays
            No kernel may write to them. The keys of a mapping name them in reports.
        zero_at_end : sequence or mapping of arrays
            Every launch must leave them zero, such as semaphores and reused workspaces.
        others : sequence or mapping of arrays
            Reports name their elements.

        Raises
        ------
        ValueError, TypeError
            An array is not in device memory, or scattered over too many pieces.
        """
        for kind, arrays in (("read_only", read_only), ("zero_at_end", zero_at_end)):
            for name, array in named(kind, arrays):
                view = device_view(name, array)
                self._views[name] = view
                for address, nbytes in runs(name, view):
                    self._exports.declare(kind, address, nbytes, name)
        for name, array in named("others", others):
            self._views[name] = device_view(name, array)

    def collect(self) -> None:
        """Wait for the device and collect the findings so far, as the end of the block does."""
        try:
            self._synchronize()
        except HipError as fault:
            self.fault = fault
        taken = self._exports.take_findings()
        launches, findings = read_findings(taken, self._identify)
        self.log.add(launches, map(self._completed, findings))
        self.log.dropped_launches += taken["dropped_launches"]
        self.log.dropped_findings += taken["dropped_findings"]

    # -- what was found --------------------------------------------------------------------------

    @property
    def findings(self) -> list[Finding]:
        """Everything found and not suppressed: errors first, then by place."""
        return self._suppressions.split(self.log)[0]

    @property
    def errors(self) -> list[Finding]:
        """Defects."""
        return [finding for finding in self.findings if finding.severity == ERROR]

    @property
    def counted(self) -> list[Finding]:
        """Events that are legitimate but counted, such as lanes that a range check dropped."""
        return [finding for finding in self.findings if finding.severity == COUNTED]

    @property
    def advice(self) -> list[Finding]:
        """Possible improvements, such as waits that are stronger than needed."""
        return [finding for finding in self.findings if finding.severity == ADVICE]

    @property
    def launches(self) -> dict[CheckedLaunch, int]:
        """Every launch that was checked, and how often it was made."""
        return dict(self.log.launches)

    @property
    def suppressed(self) -> dict[Suppression, int]:
        """How often each suppression was needed; those with 0 could be removed."""
        return self._suppressions.split(self.log)[1]

    def code_object(self, code_object: str) -> bytes:
        """The ELF image of a code object, by `Finding.code_object`."""
        return self._images[code_object]

    def listing(self, code_object: str, kernel: str) -> list[Instruction]:
        """The kernel's instructions; available until another check begins."""
        return self._exports.listing(self._numbers[code_object], kernel)

    def sources(self, code_object: str) -> SourceLines:
        """Source lines of a code object; empty without debug info."""
        if code_object not in self._sources:
            self._sources[code_object] = SourceLines(self._images[code_object])
        return self._sources[code_object]

    def as_dict(self) -> dict[str, Any]:
        """Findings, launches and suppressions as a JSON document."""
        return document(self.log, *self._suppressions.split(self.log))

    def to_json(self) -> str:
        """`as_dict` as a JSON text."""
        return json.dumps(self.as_dict(), indent=2)

    def _identify(self, number: int) -> str:
        for digest, known in self._numbers.items():
            if known == number:
                return digest
        image = self._exports.code_object(number)
        digest = hashlib.sha256(image).hexdigest()[:16]
        self._numbers[digest], self._images[digest] = number, image
        return digest

    def _completed(self, finding: Finding) -> Finding:
        """The finding with source lines, and with the element to which an address belongs."""
        where, source, producer_source = finding.where, None, None
        if where.startswith("0x"):
            elements = (element_at(int(where, 16), *item) for item in self._views.items())
            element = next(filter(None, elements), "")
            where += f" = {element}" if element else ""
        if finding.code_object is not None:
            lines = self.sources(finding.code_object)
            source, producer_source = lines.text(finding.pc), lines.text(finding.producer_pc)
        return dataclasses.replace(
            finding, where=where, source=source, producer_source=producer_source
        )


def document(
    log: FindingLog, findings: Sequence[Finding], suppressed: Mapping[Suppression, int]
) -> dict[str, Any]:
    """Launches, findings and suppressions as a JSON document."""
    return {
        "launches": [
            {**dataclasses.asdict(launch), "times": times} for launch, times in log.launches.items()
        ],
        "findings": [finding.as_dict() for finding in findings],
        "suppressions": [
            {**dataclasses.asdict(entry), "count": count} for entry, count in suppressed.items()
        ],
        "dropped_launches": log.dropped_launches,
        "dropped_findings": log.dropped_findings,
    }


def notes(suppressed: Mapping[Suppression, int], log: FindingLog) -> list[str]:
    """Notes of a report on each suppression: how often it was needed, or why it was not.

    They also mention findings that were not kept.
    """
    launched = {launch.kernel for launch in log.launches}
    lines = []
    for entry, count in suppressed.items():
        if count:
            lines.append(f"suppressed {count}x: {entry}")
        else:
            why = "no such finding" if entry.kernel in launched else "the kernel was not launched"
            lines.append(f"warning: unused suppression ({why}): {entry}")
    return [*lines, *filter(None, [log.dropped])]
