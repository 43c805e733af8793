"""Runs campaigns and writes their pages of docs/studies, which hold all that is known.

`python -m tests.support.mutation.campaign [--arch gfx950] [--of FAMILY]` runs every kernel of a
page; with Triton installed its kernels are part of the one without a family. `--sample` draws some
of the mutants of the largest kernels, which are thousands.

Of a page that is there,

    --check        names the kernels that are not those of its rows any more, and mutants that it
                   says are equivalent by an argument that is no more; runs nothing
    --stale        runs these again, and keeps the rows of the others
    --only NAME    runs this kernel again

Rows stay right as long as the checker is the same, too. With `--kernel` no page
is written: that is for a new kernel. Of what was run, those mutants that nothing shows are printed
with their surroundings, as benchmarks/checker_mutation/arguments has it, to be filled with reasons
or to be taken as they are.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from amdattn.arch.products import of_arch
from amdattn.arch.props import KNOWN_DEVICES, DeviceProps
from amdattn.compiler import DEFAULT_ARCH
from benchmarks.checker_mutation.campaign import campaign
from benchmarks.checker_mutation.equivalence import Judge
from benchmarks.checker_mutation.generate import CLASSES, mutants
from benchmarks.checker_mutation.kernel import KernelCode
from benchmarks.checker_mutation.report import Campaign
from benchmarks.checker_mutation.sites import Pattern, smallest
from benchmarks.checker_mutation.subject import Subject, shipped_subjects
from tests.support.mutation.hip_subjects import hip_subjects
from tests.support.mutation.page import Result, Text, place, read, render, results
from tests.support.paths import ROOT

# Of the members of a family, which have the same sources, one. These have thousands of mutants.
FORWARD = "attn_fwd_bf16_d128_rtne"
DECODE = "attn_decode_bf16_d128_q16"
_DECODE = (DECODE, "attn_decode_bf16_d128_q64")  # rows of one tile, and of several
_BACKWARD = ("attn_bwd_bf16_d128", "attn_bwd_bf16_d64")
LARGE = (FORWARD, *_DECODE, *_BACKWARD)
_LOCK = """- The Triton kernels were chosen while the campaign was written. `locked_increment` of
  tests/support/peers is not among them: one lane works on a lock and a counter, in a wave whose
  lanes all hold the same values. Of its 63 mutants 10 are proved equivalent and 34 reported; 19
  show nothing (6 waits between a write-back and the compare-and-swap that takes the lock, when
  nothing is left to publish, and 13 changes of EXEC), and no proof exists that they are equivalent.
  EXEC reaches its bar with erf and scatter_add f16, which were added last.
"""
_LEFT_OUT = """- Triton's causal attention was run and is not among the kernels: of its
  184 mutants 2 show nothing, a deleted wait and the same wait weakened.
- In the unmutated forward kernel, as in that attention of Triton's, loads to LDS are pending at
  barriers because only reads after a later barrier need them. The static analysis does not know
  which reads those are, and asks for waits where checked mode has no finding; such pairs count for
  no mutant.
"""
_NOT_REACHED = """- In a second sample of the forward kernel, 100 mutants of seed 0, two show
  nothing because no case reaches their code: a wait for a scale of V and a mask of the logarithm,
  both after the second attempt.
"""


@dataclass(frozen=True, slots=True)
class Study:
    """The campaign of an architecture.

    Attributes
    ----------
    shipped : tuple of str
        Of the manifest.
    triton : tuple of str
        Of Triton's subjects, without "triton"; none: every one.
    of_shipped : str
        What the shipped kernels have in common, of a study that has no others.
    notes : str
        What else a reader has to know.
    page : str
        In docs/studies.
    """

    arch: str
    shipped: tuple[str, ...]
    triton: tuple[str, ...] = ()
    of_shipped: str = ""
    notes: str = ""
    page: str = ""

    def text(self, triton: str) -> Text:
        """What its page says besides results."""
        kernels = f": {self.of_shipped}" if self.of_shipped else ""
        title = kernels + ("" if self.arch == DEFAULT_ARCH else f" on {self.arch}")
        return Text(title, triton, self.notes, explains=not title)

    @property
    def props(self) -> DeviceProps:
        """Of the device that the launches are planned for."""
        return KNOWN_DEVICES[of_arch(self.arch).name]

    def subjects(self) -> tuple[list[Subject], str]:
        """What is mutated, the forward kernel first, and which Triton compiled a part of it."""
        found = shipped_subjects(self.props, self.shipped)
        if self.of_shipped:
            return found, "none"
        found += hip_subjects(self.arch)
        found.sort(key=lambda subject: subject.name != FORWARD)
        if importlib.util.find_spec("triton") is None:
            return found, "not installed"
        from tests.support.mutation.triton_subjects import triton_subjects

        names = {f"triton {name}" for name in self.triton}
        compiled = [s for s in triton_subjects() if not names or s.name in names]
        return found + compiled, importlib.metadata.version("triton")


_MERGE = "attn_merge_bf16_d128_rtne"
STUDIES = {
    study.arch: study
    for study in (
        Study(
            "gfx942",
            (FORWARD, "attn_fwd_bf16_d64_narrow_rtne", _MERGE, "gather_rows",
             "gemm_nt_bf16_m32n32k2", "narrow_indices"),
            notes=_LOCK,
            page="checked-mode-mutation.md",
        ),
        Study(
            "gfx950",
            (FORWARD, _MERGE, "gather_rows", "gemm_nt_bf16_m16n16k1", "merge_state_bf16_b8",
             "rms_norm_bf16_c4096_l256", "narrow_indices"),
            triton=("softmax, 4 waves", "matmul bf16", "matmul fp8"),
            notes=_LEFT_OUT + _NOT_REACHED,
            page="checked-mode-mutation-gfx950.md",
        ),
    )
}  # fmt: skip


def _of(name: str, of_shipped: str, *kernels: str) -> dict[str, Study]:
    """The studies of a family, whose pages have its name."""
    return {
        arch: Study(
            arch,
            kernels,
            of_shipped=of_shipped,
            page=study.page.replace("mutation", f"mutation-{name}"),
        )
        for arch, study in STUDIES.items()
    }


OF_FAMILIES = {
    "decode": _of("decode", "attention over a cache", *_DECODE),
    "backward": _of(
        *("backward", "the gradients of attention", *_BACKWARD),
        *("attn_bwd_rows_bf16", "attn_bwd_sum_bf16", "attn_bwd_round_bf16", "attn_bwd_sinks"),
    ),
    "merges": _of(
        *("merges", "merges of partial results"),
        *(_MERGE, "cascade_merge_bf16", "merge_state_bf16_b8", "merge_state_bf16_b16_s2"),
    ),
}


def merged(old: Sequence[Result], new: Sequence[Result], names: Sequence[str]) -> list[Result]:
    """The new results and what is left of the old ones, of these kernels and in their order."""
    known = {result.kernel: result for result in (*old, *new)}
    return [known[name] for name in names if name in known]


def stale(subjects: Sequence[Subject], found: Sequence[Result]) -> list[Subject]:
    """Those that a page has no rows of, or rows of other code or other launches."""
    known = {(result.kernel, result.digest, result.inputs) for result in found}
    return [s for s in subjects if (s.name, digest(s), s.inputs) not in known]


def unargued(subject: Subject, found: Result) -> list[str]:
    """Mutants that a page of this kernel says are equivalent, and no argument does any more."""
    code = KernelCode(subject.image, subject.symbol)
    judge = Judge(subject, code)
    known = {(m.kind, place(m.pc, m.what)): m for m in mutants(code, subject.has_semaphores)}
    said = [(kind, at) for (_, kind), places in found.equivalent.items() for at in places]
    return [
        f"{kind} {at}"
        for kind, at in said
        if (mutant := known.get((kind, at))) is None or not judge(mutant).argument
    ]


def digest(subject: Subject) -> str:
    """Of its instructions."""
    return KernelCode(subject.image, subject.symbol).digest


def surroundings(report: Campaign, subjects: Sequence[Subject]) -> Iterator[str]:
    """The missed mutants as patterns that find them."""
    codes = {s.name: KernelCode(s.image, s.symbol) for s in subjects}
    for o in report.missed:
        text = smallest(codes[o.subject], o.pc)
        count = len(Pattern(text).find(codes[o.subject]))
        yield f"# {o.subject}, {o.kind}, {o.pc:#x}, {o.what}: one of {count}\n{text}"


def main() -> int:
    """Run, write, say what fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", choices=list(STUDIES), default=DEFAULT_ARCH)
    parser.add_argument("--of", choices=list(OF_FAMILIES), help="the page of this family")
    parser.add_argument("--json", type=Path, help="write what was run there as well")
    parser.add_argument("--workers", type=int, default=2, help="processes that launch mutants")
    parser.add_argument("--seconds", type=float, default=900.0, help="of CPU time, for each mutant")
    parser.add_argument(
        "--sample",
        type=int,
        help=f"so many mutants of each of {LARGE} and of those named; default: all",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--check", action="store_true", help="whether the page is of the kernels")
    which.add_argument("--stale", action="store_true", help="kernels that have changed")
    which.add_argument("--only", action="append", help="this kernel of the page")
    which.add_argument("--kernel", action="append", help="this shipped kernel; write no page")
    parser.add_argument(
        "--class", action="append", dest="classes", help="this one only", choices=CLASSES
    )
    given = parser.parse_args()
    if given.classes and not given.kernel:
        parser.error("--class needs --kernel: the page has every class")
    study = OF_FAMILIES.get(given.of, STUDIES)[given.arch]
    os.environ["AMDATTN_DEVICE"] = f"virtual:{study.arch}"  # Triton compiles for it
    path = ROOT / "docs" / "studies" / study.page
    old: list[Result] = []
    if given.kernel:
        every, triton = shipped_subjects(study.props, given.kernel), ""
    else:
        every, triton = study.subjects()
    if (given.check or given.stale or given.only) and path.exists():
        version, old = read(path.read_text(encoding="utf-8"))
        kept = {result.kernel for result in old if result.kernel.startswith("triton ")}
        if kept and triton != version:  # other kernels than those of the page
            every, triton = [s for s in every if not s.name.startswith("triton ")], version
    chosen, names = every, [subject.name for subject in every]
    wanted = given.only or given.kernel or []
    if given.check or given.stale:
        chosen = stale(every, old)
    elif wanted:
        chosen = [subject for subject in every if subject.name in wanted]
        if missing := set(wanted) - {subject.name for subject in chosen}:
            parser.error(f"there is no kernel {', '.join(sorted(missing))}")
    if given.check:
        for subject in chosen:
            print(f"{study.page}: {subject.name} is {digest(subject)}, not that of its rows")
        same = {s.name: s for s in every if s not in chosen}
        lost = [(r.kernel, m) for r in old if r.kernel in same for m in unargued(same[r.kernel], r)]
        for name, mutant in lost:
            print(f"{study.page}: {name}, {mutant} is not equivalent")
        return 1 if chosen or lost else 0
    # Triton's kernels of the page, if it is not installed.
    names += [result.kernel for result in old if result.kernel not in names]

    def written(report: Campaign) -> None:
        """What there is, lest it be lost if a later kernel fails."""
        if given.json:
            given.json.write_text(json.dumps(report.as_dict(), indent=1), encoding="utf-8")
        if not given.kernel:
            found = merged(old, list(results(report)), names)
            path.write_text(render(study.text(triton), found), encoding="utf-8")

    console = Console()
    report = Campaign([], [], given.sample, given.seed)
    with _progress(console) as progress:
        for subject in chosen:
            found = campaign(
                [subject],
                sample=given.sample if subject.name in LARGE or wanted else None,
                seed=given.seed,
                classes=given.classes or CLASSES,
                num_workers=given.workers,
                seconds_per_mutant=given.seconds,
                progress=progress,
            )
            report.originals += found.originals
            report.outcomes += found.outcomes
            written(report)
    console.print(report.table())
    for text in surroundings(report, chosen):
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    for failure in report.failures:
        console.print(failure, style="red", markup=False)
    return 1 if report.failures else 0


@contextlib.contextmanager
def _progress(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """Bars on a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
        steps: dict[str, TaskID] = {}

        def advance(what: str, done: int, total: int) -> None:
            if what not in steps:
                steps[what] = bar.add_task(what)
            bar.update(steps[what], completed=done, total=total)

        yield advance


if __name__ == "__main__":
    sys.exit(main())
