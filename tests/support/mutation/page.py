"""The pages of mutation campaigns: written from results, and read again.

A page holds all that it was written from, so that a kernel that was compiled anew can be run alone
and the rows of the others stay, with the digest of the instructions that they are of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from benchmarks.checker_mutation.campaign import SCHEDULES
from benchmarks.checker_mutation.generate import CLASSES
from benchmarks.checker_mutation.hazards import LLVM_ONLY
from benchmarks.checker_mutation.report import (
    BAR_CLASS,
    BAR_OVERALL,
    COLUMNS,
    Campaign,
    Counts,
    Outcome,
)

_OF_KERNELS = ("kernel", "instructions", "launches", "mutants", "run", "seed")
_OF_COUNTS = ("kernel", "class", *COLUMNS, "reported")
_HEADING = re.compile(r"\*\*(.+)\.\*\*")
_PLACE = re.compile(r"`0x[0-9a-f]+` \(.*?\)(?=, `0x|$)")
_TRITON = re.compile(r"\(Triton:\s+([^)]+)\)")


@dataclass
class Result:
    """What a campaign found of one kernel.

    Attributes
    ----------
    digest, inputs : str
        Of its instructions and of its launches.
    mutants : int
        How many there are, of which so many as `counts` has were run.
    seed : int
        Of the sample.
    missed : list of str
        Class, place and change of each.
    equivalent : dict
        Places by argument and class.
    """

    kernel: str
    digest: str
    inputs: str
    mutants: int
    seed: int
    counts: dict[str, Counts] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)
    equivalent: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    @property
    def run(self) -> int:
        """Mutants that were run."""
        return sum(counts["mutants"] for counts in self.counts.values())


@dataclass(frozen=True, slots=True)
class Text:
    """What a page says besides its results.

    Attributes
    ----------
    title : str
        Its end: of which kernels, on which architecture.
    triton : str
        The version that compiled kernels, if one did.
    notes : str
        What else a reader has to know, as lines of a list.
    explains : bool
        It explains how mutants are made and counted; the others link to the one that does.
    """

    title: str
    triton: str
    notes: str
    explains: bool = True


def results(report: Campaign) -> Iterator[Result]:
    """Of each kernel of a campaign."""
    for original in report.originals:
        found = Result(
            *(original.subject, original.digest, original.inputs, original.mutants, report.seed)
        )
        outcomes = [o for o in report.outcomes if o.subject == original.subject]
        for kind in CLASSES:
            counts = Counts.of(o for o in outcomes if o.kind == kind)
            if counts:
                found.counts[kind] = counts
        found.missed = [_missed(o) for o in report.missed if o.subject == original.subject]
        for o in outcomes:
            if o.equivalent:
                found.equivalent.setdefault((o.argument, o.kind), []).append(place(o.pc, o.what))
        yield found


def place(pc: int, what: str) -> str:
    """Of a mutant."""
    return f"`{pc:#x}` ({what})"


def _missed(o: Outcome) -> str:
    return f"{o.kind}, `{o.pc:#x}`: `{o.what}`. {o.seen}".rstrip()


def totals(found: Iterable[Result]) -> dict[str, Counts]:
    """Counts of all kernels together by class, and of "all" classes."""
    sums: dict[str, Counts] = {}
    for result in found:
        for kind, counts in result.counts.items():
            sums.setdefault(kind, Counts()).update(counts)
    in_order = {kind: sums[kind] for kind in CLASSES if kind in sums}
    everything = Counts()
    for counts in in_order.values():
        everything.update(counts)
    return {**in_order, "all": everything}


# -- written ---------------------------------------------------------------------------------------

_EXPLAINED = """Written by tests/support/mutation/campaign.py. A campaign changes every kernel in
one place of its code object, class by class, and launches each mutant in checked mode on the inputs
of the unmutated kernel{triton}. A mutant counts as

- *in place*: an error finding at the changed instruction, at the consumer that it served or at the
  producer that it waited for;
- *elsewhere*: an error finding or a fault only at another place, mostly where an output that was
  not completely written is copied to the host;
- *output*: no finding, but results that differ from the unmutated kernel's. These are defects of
  data (a wrong offset is a well-formed access), which comparison with a reference shows;
- *missed*: none of these. A mutant that no launch reaches is missed;
- *equivalent*: an argument says why nothing can be observed, either a static analysis of all paths
  that shares no code with the checker (benchmarks/checker_mutation/equivalence.py) or a stated one
  (arguments, idioms.py). Equivalent mutants are run as well; one that is noticed fails the
  campaign.

In the arguments, *additional* lanes are those that the mutant enables, and *disabled* lanes those
that it does not enable again. *Reported* are all mutants that are neither missed nor equivalent."""
_MAIN = "[checked-mode-mutation.md](checked-mode-mutation.md)"
_EXPLAINED_ELSEWHERE = f"""Written by tests/support/mutation/campaign.py{{triton}}.
How mutants are made and counted, what the columns mean and what else the numbers rest on is
explained in {_MAIN}."""
_ALL_PAGES = f"""- Waits and barriers between coherent accesses show only if one of
  {len(SCHEDULES)} orders of waves and workgroups makes the result wrong.
- The rules on what has to be waited for at a barrier and at a release were narrowed after
  comparison with the memory model that the checker documents.
"""
_WHERE_LLVM_DIFFERS = """that
  differs from LLVM's. The table asks for no wait states where a VALU reads, as carry-in or lane
  mask, an SGPR that a VALU wrote; and where DPP reads a VGPR that a VALU wrote, it is taken to mean
  only the source that lanes exchange. LLVM keeps two states in both cases, and the checker reports
  their absence as advice."""
_AS_EXPLAINED = "that\n  LLVM does not share."
_OF_ROWS = """The digests are of the instructions and of the launches that the rows below are of
("?": not recorded); `python -m tests.support.mutation.campaign --stale` runs those kernels again
that have changed since. Where fewer mutants were run than exist, they were drawn from the classes
in turn.

"""


def render(text: Text, found: Sequence[Result]) -> str:
    """The document."""
    compiled = "" if text.triton == "none" else f" (Triton: {text.triton})"
    head = _EXPLAINED if text.explains else _EXPLAINED_ELSEWHERE
    return f"""# Mutation campaign of checked mode{text.title}

{head.format(triton=compiled)}

The bars are {BAR_OVERALL:.0%} overall and {BAR_CLASS:.0%} of each class. {_below(found)}
The unmutated kernels have no findings under any of the orders of waves and workgroups that mutants
are run under.

## What the numbers rest on

{_assumptions(found, text)}
{text.notes}{_ALL_PAGES if text.explains else ""}
## Kernels

{_OF_ROWS if text.explains else ""}{_kernels(found)}
## Counts

{_counts(found)}
## Missed

{_list_of_missed(found)}
## Equivalent

{_list_of_equivalent(found)}"""


def _below(found: Sequence[Result]) -> str:
    """What does not reach its bar."""
    rates = {kind: counts.rate for kind, counts in totals(found).items()}
    below = [
        f"{kind} {rate:.1%}"
        for kind, rate in rates.items()
        if rate < (BAR_OVERALL if kind == "all" else BAR_CLASS)
    ]
    return f"Below them: {', '.join(below)}." if below else "All are reached."


def _assumptions(found: Sequence[Result], text: Text) -> str:
    """What a reader has to grant, and what the rates are if it is not granted."""
    assumed = sum(
        len(places)
        for result in found
        for (argument, _), places in result.equivalent.items()
        if any(rule in argument for rule in LLVM_ONLY)
    )
    sums, rates = totals(found), {}
    for kind in ("s_nop", "all"):
        counts = sums.get(kind, sums["all"])
        counted = counts["mutants"] - counts["equivalent"] + assumed
        rates[kind] = 1 - (counts["missed"] + assumed) / counted if counted else 1.0
    s_nop, everything = f"{rates['s_nop']:.1%}", f"{rates['all']:.1%}"
    why = _WHERE_LLVM_DIFFERS if text.explains else _AS_EXPLAINED
    counted_as = f"{assumed} s_nop mutants count as equivalent by a reading of the manual's table"
    return f"""- {counted_as} {why}
  If that is not granted, {s_nop} of the s_nop mutants and {everything} of all are reported."""


def _table(head: Sequence[str], words: int, rows: Iterable[Sequence[object]]) -> str:
    """Of which so many columns are words, and the others numbers."""
    lines = [head, ["---"] * words + ["---:"] * (len(head) - words), *rows]
    return "".join(f"| {' | '.join(map(str, cells))} |\n" for cells in lines)


def _kernels(found: Sequence[Result]) -> str:
    rows = [(r.kernel, r.digest, r.inputs, r.mutants, r.run, r.seed) for r in found]
    return _table(_OF_KERNELS, 3, rows)


def _counts(found: Sequence[Result]) -> str:
    rows = [(r.kernel, kind, counts) for r in found for kind, counts in r.counts.items()]
    rows += [("all", kind, counts) for kind, counts in totals(found).items()]
    cells = [
        (kernel, kind, *(counts[column] for column in COLUMNS), f"{counts.rate:.1%}")
        for kernel, kind, counts in rows
    ]
    return _table(_OF_COUNTS, 2, cells)


def _list_of_missed(found: Sequence[Result]) -> str:
    lines = [f"- {result.kernel}, {one}\n" for result in found for one in result.missed]
    return "".join(lines) or "None.\n"


def _list_of_equivalent(found: Sequence[Result]) -> str:
    lines = sorted(
        (argument, kind, result.kernel, places)
        for result in found
        for (argument, kind), places in result.equivalent.items()
    )
    text, previous = "", ""
    for argument, kind, kernel, places in lines:
        if argument != previous:
            text += f"\n**{argument[0].upper()}{argument[1:]}.**\n\n"
            previous = argument
        text += f"- {kernel}, {kind}, {len(places)}: {', '.join(places)}\n"
    return text.removeprefix("\n")


# -- read ------------------------------------------------------------------------------------------


def read(document: str) -> tuple[str, list[Result]]:
    """The version of Triton and the results of a page.

    Raises
    ------
    ValueError
        It has other tables than `render` writes.
    """
    version = _TRITON.search(document)
    found = [
        Result(kernel, digest, inputs, int(mutants), int(seed))
        for kernel, digest, inputs, mutants, _, seed in _rows(document, "Kernels", _OF_KERNELS)
    ]
    by_name = {result.kernel: result for result in found}
    for kernel, kind, *numbers, _ in _rows(document, "Counts", _OF_COUNTS):
        if kernel != "all":
            by_name[kernel].counts[kind] = Counts(
                dict(zip(COLUMNS, map(int, numbers), strict=True))
            )
    for line in _section(document, "Missed"):
        if line.startswith("- "):
            result, rest = _of_kernel(line, found)
            result.missed.append(rest)
    argument = ""
    for line in _section(document, "Equivalent"):
        if heading := _HEADING.fullmatch(line):
            argument = heading[1][0].lower() + heading[1][1:]
        elif line.startswith("- "):
            result, rest = _of_kernel(line, found)
            kind, _, places = rest.partition(", ")
            result.equivalent[argument, kind] = _PLACE.findall(places)
    return version[1] if version else "none", found


def _section(document: str, heading: str) -> Iterator[str]:
    """Lines of a section."""
    _, found, rest = document.partition(f"\n## {heading}\n")
    if not found:
        raise ValueError(f"the page has no section {heading!r}")
    return takewhile(lambda line: not line.startswith("## "), rest.splitlines())


def _rows(document: str, heading: str, head: Sequence[str]) -> list[list[str]]:
    """Cells of a table's rows."""
    lines = [line for line in _section(document, heading) if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    if not rows or tuple(rows[0]) != tuple(head):
        raise ValueError(f"the table of {heading!r} must have the columns {', '.join(head)}")
    return rows[2:]


def _of_kernel(line: str, found: Sequence[Result]) -> tuple[Result, str]:
    """Of a line of a list: the kernel that it is about, and what follows."""
    text = line.removeprefix("- ")
    for result in sorted(found, key=lambda result: -len(result.kernel)):
        if text.startswith(f"{result.kernel}, "):
            return result, text.removeprefix(f"{result.kernel}, ")
    raise ValueError(f"{line!r} is about none of the page's kernels")
