"""Mutation campaign: whether checked mode would have caught the defects that people ship.

Every mutant of a kernel (see `generate`) is launched in checked mode on the inputs of the
unmutated kernel, in a process of its own. It is *reported* if there is an error finding, or if an
output differs from the unmutated kernel's; the table tells these apart. The unmutated kernel must
have no findings at all.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from amdattn.checking.findings import Finding
from benchmarks.checker_mutation.equivalence import Judge, Judgement
from benchmarks.checker_mutation.generate import CLASSES, Mutant, mutants
from benchmarks.checker_mutation.kernel import KernelCode
from benchmarks.checker_mutation.report import Campaign, Original, Outcome, Verdict
from benchmarks.checker_mutation.run import (
    CampaignError,
    CaseResult,
    Task,
    TaskResult,
    in_place,
    run,
)
from benchmarks.checker_mutation.subject import Subject

_TRAP = (0xBF920002).to_bytes(4, "little")  # s_trap 2: ends the launch that reaches it
# More instructions without progress than any case has in all; a mutant's endless loop ends there.
_MAX_INSTRUCTIONS = 2_000_000

# Orders of waves and workgroups: mutants that the first does not show are run under the others, but
# not those that an analysis proves to be equivalent.
# (seed, instructions of a wave before another may run)
SCHEDULES = ((0, 8), (1, 8), (4, 1), (6, 3), (5, 1), (2, 8), (8, 3), (11, 8), (14, 8))

# (what is being done, done, of how many)
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class _Planned:
    subject: int
    mutant: Mutant


class _Prepared:
    """A subject that is ready to be mutated."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.code = KernelCode(subject.image, subject.symbol)
        self.mutants = mutants(self.code, subject.has_semaphores)
        self.judge = Judge(subject, self.code)
        self.outputs: dict[int, tuple[str, ...]] = {}  # by case
        self.findings: set[tuple[object, ...]] = set()  # of the unmutated kernel
        self.reaching: dict[int, tuple[int, ...]] = {}  # cases by block

    @property
    def all_cases(self) -> tuple[int, ...]:
        """Every case of the subject."""
        return tuple(range(len(self.subject.cases)))

    def cases(self, mutant: Mutant) -> tuple[int, ...]:
        """The cases that reach a mutant."""
        return self.reaching.get(self.code.block_of(mutant.pc), ())


def campaign(
    subjects: Sequence[Subject],
    *,
    sample: int | None = None,
    seed: int = 0,
    classes: Sequence[str] = CLASSES,
    num_workers: int = 2,
    seconds_per_mutant: float = 900.0,
    progress: Progress = lambda what, done, total: None,
) -> Campaign:
    """Run a campaign.

    Parameters
    ----------
    sample : int, optional
        So many mutants of all, spread evenly over the classes; None: every one.
    seed : int
        Chooses the sample.
    classes : sequence of str
        Of CLASSES.
    num_workers : int
        Processes that launch mutants at the same time.
    seconds_per_mutant : float
        Of CPU time, under all orders together.

    Raises
    ------
    ValueError
        An unknown class.
    """
    unknown = set(classes) - set(CLASSES)
    if unknown:
        raise ValueError(f"classes {sorted(unknown)} must be among {CLASSES}")
    prepared = [_Prepared(subject) for subject in subjects]
    planned = [
        _Planned(i, mutant)
        for i, entry in enumerate(prepared)
        for mutant in entry.mutants
        if mutant.kind in classes
    ]
    planned = _sampled(planned, sample, seed)

    def results(what: str, tasks: Iterator[Task], total: int) -> Iterator[TaskResult]:
        options = {"threads": 1, "max_instructions": _MAX_INSTRUCTIONS, "max_errors": 4}
        found = run(tasks, subjects, options, num_workers, seconds_per_mutant)
        for done, result in enumerate(found, 1):
            progress(what, done, total)
            yield result

    report = Campaign([_original(entry) for entry in prepared], [], sample, seed)
    originals = (
        Task(i, i, entry.subject.image, entry.all_cases, schedules=SCHEDULES)
        for i, entry in enumerate(prepared)
    )
    for result in results("unmutated kernels", originals, len(prepared)):
        entry, original = prepared[result.id], report.originals[result.id]
        entry.outputs = {}
        for case in result.cases:
            if entry.outputs.setdefault(case.case, case.outputs) != case.outputs:
                name = entry.subject.cases[case.case].name
                original.findings.append(f"case {name}: the output depends on the schedule")
        for case in result.cases:
            new = [finding for finding in case.findings if _key(finding) not in entry.findings]
            original.findings += [str(finding) for finding in new]
            entry.findings.update(map(_key, case.findings))
            if case.error:
                original.findings.append(
                    f"case {entry.subject.cases[case.case].name}: {case.error}"
                )
        if result.failure:
            raise CampaignError(f"{entry.subject.name}, unmutated: {result.failure}")

    for what, schedules in (
        ("which case reaches which block", SCHEDULES[:1]),
        ("which does under another schedule", SCHEDULES[1:]),
    ):
        probes = list(_probes(prepared, planned, schedules))
        tasks = (task for task, _ in probes)
        for result in results(what, tasks, len(probes)):
            task, block = probes[result.id]
            reached = {case.case for case in result.cases if case.error}
            prepared[task.subject].reaching[block] = tuple(sorted(reached))

    judgements: dict[int, Judgement] = {}

    def mutated() -> Iterator[Task]:
        for i, plan in enumerate(planned):
            entry = prepared[plan.subject]
            judgement = judgements[i] = entry.judge(plan.mutant)
            proved = judgement.argument and not judgement.stated
            yield Task(
                i,
                plan.subject,
                entry.code.patched(plan.mutant.at, plan.mutant.encoding),
                entry.cases(plan.mutant),
                places=judgement.places,
                kinds=judgement.kinds,
                schedules=SCHEDULES[:1] if proved else SCHEDULES,
                outputs=tuple(entry.outputs.items()),
            )

    for result in results("mutants", mutated(), len(planned)):
        plan = planned[result.id]
        entry = prepared[plan.subject]
        report.outcomes.append(_outcome(entry, plan.mutant, judgements[result.id], result))
    report.outcomes.sort(key=lambda o: (o.subject, CLASSES.index(o.kind), o.pc, o.what))
    return report


def _original(entry: _Prepared) -> Original:
    return Original(
        entry.subject.name,
        [f"{pair}" for pair in sorted(entry.judge.wait_violations)]
        + [f"{pair}" for pair in sorted(entry.judge.hazard_violations)]
        + [
            f"{writer:#x} overwrites in its clause what {reader:#x} reads"
            for writer, reader in sorted(entry.judge.clause_violations)
        ],
        [],
        entry.code.digest,
        entry.subject.inputs,
        len(entry.mutants),
        [*entry.judge.arguments.stale, *entry.judge.arguments.without_mutant(entry.mutants)],
    )


def _sampled(planned: list[_Planned], sample: int | None, seed: int) -> list[_Planned]:
    """`sample` of them, class by class in turn."""
    if sample is None or sample >= len(planned):
        return planned
    rng = random.Random(seed)
    by_class: list[list[_Planned]] = [
        [plan for plan in planned if plan.mutant.kind == kind] for kind in CLASSES
    ]
    for group in by_class:
        rng.shuffle(group)
    in_turn = [plan for row in zip_longest(*by_class) for plan in row if plan is not None]
    return sorted(in_turn[:sample], key=lambda plan: (plan.subject, plan.mutant.pc))


def _probes(
    prepared: Sequence[_Prepared],
    planned: Sequence[_Planned],
    schedules: tuple[tuple[int, int], ...],
) -> Iterator[tuple[Task, int]]:
    """Launches that end when they reach a block that holds a mutant, if none is known to."""
    wanted = {
        (plan.subject, prepared[plan.subject].code.block_of(plan.mutant.pc)) for plan in planned
    }
    left = [place for place in sorted(wanted) if not prepared[place[0]].reaching.get(place[1])]
    checked = any(seed for seed, _ in schedules)  # only then seeds choose orders
    for i, (subject, block) in enumerate(left):
        entry = prepared[subject]
        image = entry.code.patched(block, _TRAP)
        yield Task(i, subject, image, entry.all_cases, checked, schedules=schedules), block


def _outcome(entry: _Prepared, mutant: Mutant, judgement: Judgement, result: TaskResult) -> Outcome:
    findings = [
        finding
        for case in result.cases
        for finding in case.findings
        if _key(finding) not in entry.findings
    ]
    placed = [f for f in findings if in_place(f, judgement.places, judgement.kinds)]
    differing = [case for case in result.cases if _differs(entry, case)]
    if placed:
        verdict, seen = Verdict.IN_PLACE, _summary(placed[0].kind, placed[0].pc, placed[0].text)
    elif findings:
        first = findings[0]
        verdict, seen = Verdict.ELSEWHERE, _summary(first.kind, first.pc, first.text)
    elif errors := [case.error for case in result.cases if case.error]:
        verdict, seen = Verdict.ELSEWHERE, errors[0]
    elif differing:
        name = entry.subject.cases[differing[0].case].name
        verdict, seen = Verdict.OUTPUT, f"output differs in case {name}"
    else:
        # A process that hangs or dies is no report.
        why = result.failure or ("" if entry.cases(mutant) else "no case reaches it")
        verdict, seen = Verdict.MISSED, why
    return Outcome(
        *(entry.subject.name, mutant.kind, mutant.pc, mutant.what),
        *(verdict, seen, judgement.argument),
        sum(case.seconds for case in result.cases),
    )


def _key(finding: Finding) -> tuple[object, ...]:
    return (finding.kind, finding.pc, finding.producer_pc)


def _summary(kind: str, pc: int | None, text: str) -> str:
    return kind if pc is None else f"{kind} at {pc:#x}: {text}"


def _differs(entry: _Prepared, case: CaseResult) -> bool:
    return case.outputs != entry.outputs.get(case.case)
