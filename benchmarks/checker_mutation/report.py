"""What a campaign found: counts per kernel and class, misses, arguments, bars."""

from __future__ import annotations

import dataclasses
import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.table import Column, Table

from benchmarks.checker_mutation.generate import CLASSES

BAR_OVERALL, BAR_CLASS = 0.99, 0.97  # of the mutants that are not equivalent


class Verdict(str, enum.Enum):
    """How a mutant was noticed."""

    IN_PLACE = "in place"  # an error finding at the mutated instruction, its consumer or producer
    ELSEWHERE = "elsewhere"  # an error finding at another place, or a fault
    OUTPUT = "output"  # no finding, but other results than the unmutated kernel's
    MISSED = "missed"


@dataclass
class Original:
    """The unmutated kernel.

    Attributes
    ----------
    violations, findings : list of str
        Of the static analysis and of checked mode: none, or they are wrong, or it is.
    digest, inputs : str
        Of its instructions and of its launches.
    mutants : int
        How many there are of all classes.
    stale : list of str
        What is stated about the kernel and does not hold of it.
    """

    subject: str
    violations: list[str]
    findings: list[str]
    digest: str
    inputs: str
    mutants: int
    stale: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One mutant; `argument` is why it is equivalent, "" if it is not."""

    subject: str
    kind: str
    pc: int
    what: str
    verdict: Verdict
    seen: str
    argument: str
    seconds: float

    @property
    def equivalent(self) -> bool:
        """Not counted."""
        return bool(self.argument)


COLUMNS = ("mutants", "equivalent", *(verdict.value for verdict in Verdict))


class Counts(Counter[str]):
    """Mutants by column of the table."""

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> Counts:
        """Count; equivalent mutants are in no column but the first two."""
        counts = cls()
        for outcome in outcomes:
            counts["mutants"] += 1
            counts["equivalent" if outcome.equivalent else outcome.verdict.value] += 1
        return counts

    @property
    def rate(self) -> float:
        """Part that is reported of those that are not equivalent."""
        counted = self["mutants"] - self["equivalent"]
        return 1 - self[Verdict.MISSED.value] / counted if counted else 1.0


@dataclass
class Campaign:
    """Everything a campaign found."""

    originals: list[Original]
    outcomes: list[Outcome]
    sample: int | None
    seed: int

    def rows(self) -> Iterator[tuple[str, str, Counts]]:
        """(kernel, class, counts) where there are mutants."""
        for original in self.originals:
            for kind in CLASSES:
                counts = Counts.of(
                    o for o in self.outcomes if o.subject == original.subject and o.kind == kind
                )
                if counts:
                    yield original.subject, kind, counts

    def by_class(self) -> dict[str, Counts]:
        """Counts of all kernels together, and "all" classes."""
        found = {kind: Counts.of(o for o in self.outcomes if o.kind == kind) for kind in CLASSES}
        found = {kind: counts for kind, counts in found.items() if counts}
        return {**found, "all": Counts.of(self.outcomes)}

    @property
    def missed(self) -> list[Outcome]:
        """Mutants that are neither equivalent nor reported."""
        return [o for o in self.outcomes if not o.equivalent and o.verdict is Verdict.MISSED]

    @property
    def contradictions(self) -> list[Outcome]:
        """Mutants that an argument calls equivalent and that were noticed all the same."""
        return [o for o in self.outcomes if o.equivalent and o.verdict is not Verdict.MISSED]

    @property
    def failures(self) -> list[str]:
        """What keeps the campaign from passing; empty if it does."""
        found = [
            f"{original.subject}, unmutated: {text}"
            for original in self.originals
            for text in (*original.findings, *original.violations, *original.stale)
        ]
        for kind, counts in self.by_class().items():
            bar = BAR_OVERALL if kind == "all" else BAR_CLASS
            if counts.rate < bar:
                found.append(
                    f"{kind}: {counts.rate:.2%} of the mutants are reported, not {bar:.0%}"
                )
        found += [f"called equivalent, but seen: {o.subject} {o.kind} {o.what}: {o.seen}"
                  for o in self.contradictions]  # fmt: skip
        return found

    @staticmethod
    def from_dict(given: Mapping[str, Any]) -> Campaign:
        """What `as_dict` made."""
        return Campaign(
            [Original(**original) for original in given["originals"]],
            [Outcome(**{**o, "verdict": Verdict(o["verdict"])}) for o in given["mutants"]],
            given["sample"],
            given["seed"],
        )

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "sample": self.sample,
            "seed": self.seed,
            "originals": [dataclasses.asdict(original) for original in self.originals],
            "table": [
                {"kernel": kernel, "class": kind, **_row(counts)}
                for kernel, kind, counts in self.rows()
            ],
            "classes": {kind: _row(counts) for kind, counts in self.by_class().items()},
            "mutants": [dataclasses.asdict(outcome) for outcome in self.outcomes],
            "failures": self.failures,
        }

    def table(self) -> Table:
        """Counts per kernel and class, for the terminal."""
        table = Table(Column("class", no_wrap=True), box=box.SIMPLE, pad_edge=False, padding=(0, 1))
        for column in (*COLUMNS, "reported"):
            table.add_column(column.replace("equivalent", "equiv."), justify="right")
        kernel = ""
        for name, kind, counts in self.rows():
            if name != kernel:
                table.add_section()
                table.add_row(f"[bold]{name}[/]")
                kernel = name
            table.add_row(kind, *_cells(counts))
        table.add_section()
        table.add_row("[bold]all kernels[/]")
        for kind, counts in self.by_class().items():
            table.add_row(kind, *_cells(counts))
        return table


def _row(counts: Counts) -> dict[str, Any]:
    return {**{column: counts[column] for column in COLUMNS}, "reported": counts.rate}


def _cells(counts: Counts) -> list[str]:
    return [*(str(counts[column]) for column in COLUMNS), f"{counts.rate:.1%}"]
