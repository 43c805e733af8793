"""Runs the whole campaign of an architecture and writes its page of docs/studies.

`python -m tests.support.mutation.campaign [--arch gfx950] [--decode] [--json FILE]`; with
Triton installed its kernels are part of it, but of `--decode`. `--sample` draws some of the
mutants of the largest kernels, which are thousands. `--known FILE` takes the results that an
earlier `--json FILE` wrote of those kernels whose code and inputs are the same as then, so that
only kernels that have changed are run: right as long as the checker and the arguments are the
same, too. With `--kernel` no page is written: that is for a new kernel, of which those mutants that
nothing shows are printed as rows of benchmarks/checker_mutation/arguments.py, to be filled with
reasons or to be taken as they are.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from amdattn.arch.products import of_arch
from amdattn.arch.props import KNOWN_DEVICES, DeviceProps
from amdattn.compiler import DEFAULT_ARCH
from benchmarks.checker_mutation.campaign import SCHEDULES, campaign
from benchmarks.checker_mutation.generate import CLASSES
from benchmarks.checker_mutation.hazards import LLVM_ONLY
from benchmarks.checker_mutation.kernel import KernelCode
from benchmarks.checker_mutation.report import BAR_CLASS, BAR_OVERALL, Campaign, Counts
from benchmarks.checker_mutation.subject import Subject, shipped_subjects
from tests.support.mutation.hip_subjects import hip_subjects
from tests.support.paths import ROOT

# Of the members of a family, which have the same sources, one. These have thousands of mutants.
FORWARD = "attn_fwd_bf16_d128_rtne"
DECODE = "attn_decode_bf16_d128_q16"
LARGE = (FORWARD, DECODE)
_LOCK = """- The Triton kernels were chosen while the campaign was written. `locked_increment` of
  tests/support/peers is not among them: a lock and a counter that one lane works on, in a wave
  whose lanes all hold the same values. Of its 63 mutants 10 are proved equivalent and 34
  reported; 19 show nothing (6 waits between a write-back and the compare-and-swap that takes the
  lock, when nothing is left to publish, and 13 changes of EXEC), of which no proof exists that
  they are equivalent. EXEC reaches its bar with erf and scatter_add f16, which were added last.
"""
_LEFT_OUT = """- Triton's causal attention was run and is not among them: of its 184 mutants 2 show
  nothing, a wait deleted and the same weakened.
- In the unmutated forward kernel, as in that attention of Triton's, the static analysis finds LDS
  operations under way at barriers and asks for waits, where checked mode has no finding: its rule
  is stricter than what is needed. Such pairs count for no mutant.
- Launches of heads of 120 columns and of slowly growing keys were added when four mutants of the
  forward kernel had shown nothing; of its mutants these four were run again, alone. Two without
  an answer in time were run again under the first order of waves, which shows nothing of them.
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
             "gemm_nt_bf16_m32n32k2"),
            notes=_LOCK,
            page="checked-mode-mutation.md",
        ),
        Study(
            "gfx950",
            (FORWARD, _MERGE, "gather_rows", "gemm_nt_bf16_m16n16k1", "merge_state_bf16_b8",
             "rms_norm_bf16_c4096_l256"),
            triton=("softmax, 4 waves", "matmul bf16", "matmul fp8"),
            notes=_LEFT_OUT,
            page="checked-mode-mutation-gfx950.md",
        ),
    )
}  # fmt: skip
OF_DECODE = {
    arch: Study(
        arch,
        (DECODE,),
        of_shipped="attention over a cache",
        page=study.page.replace("mutation", "mutation-decode"),
    )
    for arch, study in STUDIES.items()
}


def page(study: Study, report: Campaign, triton: str) -> str:
    """The document."""
    return f"""# Mutation campaign of checked mode{_of(study)}

Written by tests/support/mutation/campaign.py. Every kernel is changed in one place of its code
object, class by class, and launched in checked mode on the inputs of the unmutated kernel (Triton:
{triton}). A mutant counts as

- *in place*: an error finding at the changed instruction, at the consumer that it served or at the
  producer that it waited for;
- *elsewhere*: an error finding or a fault at another place only, mostly of the copy to the host of
  an output that was not written throughout;
- *output*: no finding, but other results than the unmutated kernel's. These are defects of data
  (a wrong offset is a well-formed access), which comparison with a reference shows;
- *missed*: nothing of all that. A mutant that no launch reaches is missed;
- *equivalent*: an argument says why nothing can be seen: a static analysis of all paths that shares
  no code with the checker (benchmarks/checker_mutation/equivalence.py), or one that is stated
  (arguments.py, idioms.py). Equivalent mutants are run as well; one that is noticed fails the
  campaign.

*Reported* is everything but missed, of those that are not equivalent. The bars: {BAR_OVERALL:.0%}
overall and {BAR_CLASS:.0%} of each class. {_below(report)}

The unmutated kernels have no findings under any of the orders of waves and workgroups that mutants
are run under.

## What the numbers rest on

{_drawn(report)}{_assumptions(study, report)}

## Counts

{report.markdown()}"""


def _of(study: Study) -> str:
    """The part of the title that tells one page from the other."""
    kernels = f": {study.of_shipped}" if study.of_shipped else ""
    return kernels + ("" if study.arch == DEFAULT_ARCH else f" on {study.arch}")


def _below(report: Campaign) -> str:
    """What does not reach its bar."""
    rates = {kind: counts.rate for kind, counts in report.by_class().items()}
    below = [
        f"{kind} {rate:.1%}"
        for kind, rate in rates.items()
        if rate < (BAR_OVERALL if kind == "all" else BAR_CLASS)
    ]
    return f"Below them: {', '.join(below)}." if below else "All are reached."


def _drawn(report: Campaign) -> str:
    """How many mutants of a kernel were run, if not all."""
    lines = []
    for original in report.originals:
        run = sum(outcome.subject == original.subject for outcome in report.outcomes)
        if run < original.mutants:
            lines.append(
                f"- Of the {original.mutants} mutants of {original.subject} {run} were drawn, the "
                f"classes in turn (seed {report.seed}).\n"
            )
    return "".join(lines)


def known(path: Path, subjects: Sequence[Subject]) -> Campaign:
    """Earlier results of those kernels that have the code and the inputs that they had."""
    report = Campaign.from_dict(json.loads(path.read_text(encoding="utf-8")))
    now = {
        (subject.name, KernelCode(subject.image, subject.symbol).digest, subject.inputs)
        for subject in subjects
    }
    report.originals = [o for o in report.originals if (o.subject, o.digest, o.inputs) in now]
    names = {original.subject for original in report.originals}
    report.outcomes = [outcome for outcome in report.outcomes if outcome.subject in names]
    return report


def ordered(report: Campaign, subjects: Sequence[Subject]) -> None:
    """Bring its kernels into the order of the subjects."""
    names = [subject.name for subject in subjects]
    report.originals.sort(key=lambda original: names.index(original.subject))
    report.outcomes.sort(key=lambda outcome: names.index(outcome.subject))


def rows_of_arguments(report: Campaign) -> list[str]:
    """The missed mutants as they would stand in arguments.py."""
    digests = {original.subject: original.digest for original in report.originals}
    return [
        f'    ("{digests[o.subject]}", "{o.kind}", {o.pc:#x}): ...,  # {o.what}'
        for o in report.missed
    ]


def _assumptions(study: Study, report: Campaign) -> str:
    """What a reader has to grant, and what the rates are if it is not granted."""
    assumed = [
        o for o in report.outcomes if o.equivalent and any(rule in o.argument for rule in LLVM_ONLY)
    ]
    granted, rates = Counts.of(report.outcomes), {}
    for kind in ("s_nop", "all"):
        counts = report.by_class().get(kind, granted)
        counted = counts["mutants"] - counts["equivalent"] + len(assumed)
        rates[kind] = 1 - (counts["missed"] + len(assumed)) / counted if counted else 1.0
    s_nop, everything = f"{rates['s_nop']:.1%}", f"{rates['all']:.1%}"
    return f"""- {len(assumed)} s_nop mutants count as equivalent as the manual's table asks for no
  state where a VALU reads, as carry-in or lane mask, an SGPR that a VALU wrote, and is taken to
  mean the source that lanes exchange where DPP reads a VGPR that a VALU wrote; LLVM keeps two,
  and the checker reports their absence as advice. If that is not granted, {s_nop} of the s_nop
  mutants and {everything} of all are reported.
{study.notes}- Waits and barriers between coherent accesses show only if one of
  {len(SCHEDULES)} orders of waves and workgroups makes the result wrong.
- Rules on what has to be waited for at a barrier and at a release were narrowed after comparison
  with the memory model that the checker documents."""


def main() -> int:
    """Run, write, say what fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", choices=list(STUDIES), default=DEFAULT_ARCH)
    parser.add_argument("--decode", action="store_true", help="kernels of attention over a cache")
    parser.add_argument("--json", type=Path, help="write everything there as well")
    parser.add_argument("--known", type=Path, help="results of an earlier run, as --json has them")
    parser.add_argument("--workers", type=int, default=2, help="processes that launch mutants")
    parser.add_argument(
        "--sample", type=int, help=f"so many mutants of each of {LARGE}; default: all"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--kernel", action="append", help="mutate this one only; write no page")
    parser.add_argument(
        "--class", action="append", dest="classes", help="this one only", choices=CLASSES
    )
    given = parser.parse_args()
    if given.classes and not given.kernel:
        parser.error("--class needs --kernel: the page has every class")
    console = Console()
    study = (OF_DECODE if given.decode else STUDIES)[given.arch]
    os.environ["AMDATTN_DEVICE"] = f"virtual:{study.arch}"  # Triton compiles for it
    if given.kernel:
        chosen, triton = shipped_subjects(study.props, given.kernel), ""
        missing = set(given.kernel) - {subject.name for subject in chosen}
        if missing:
            parser.error(f"no kernel {', '.join(sorted(missing))} is shipped")
    else:
        chosen, triton = study.subjects()
    report = Campaign([], [], given.sample, given.seed)
    if given.known:
        report = known(given.known, chosen)
    names = {original.subject for original in report.originals}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
        steps: dict[str, object] = {}

        def progress(what: str, done: int, total: int) -> None:
            if what not in steps:
                steps[what] = bar.add_task(what, total=total)
            bar.update(steps[what], completed=done, total=total)  # type: ignore[arg-type]

        for subject in chosen:
            if subject.name in names:
                continue
            is_large = subject.name in LARGE or given.kernel
            found = campaign(
                [subject],
                sample=given.sample if is_large else None,
                seed=given.seed,
                classes=given.classes or CLASSES,
                num_workers=given.workers,
                progress=progress,
            )
            report.originals += found.originals
            report.outcomes += found.outcomes
            if given.json:  # what there is, for --known if a later kernel fails
                given.json.write_text(json.dumps(report.as_dict(), indent=1), encoding="utf-8")
    ordered(report, chosen)
    console.print(report.table())
    if not given.kernel:
        file = ROOT / "docs" / "studies" / study.page
        file.write_text(page(study, report, triton), encoding="utf-8")
    if given.json:
        given.json.write_text(json.dumps(report.as_dict(), indent=1), encoding="utf-8")
    for row in rows_of_arguments(report):
        console.print(row, markup=False, highlight=False, soft_wrap=True)
    for failure in report.failures:
        console.print(failure, style="red", markup=False)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
