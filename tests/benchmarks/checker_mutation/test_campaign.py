"""Mutants of the kernels are reported; docs/studies/checked-mode-mutation.md has all of it."""

from __future__ import annotations

import dataclasses

import pytest

from amdattn.arch.props import KNOWN_DEVICES
from benchmarks.checker_mutation import cases, equivalence, run as running
from benchmarks.checker_mutation.campaign import SCHEDULES, campaign
from benchmarks.checker_mutation.equivalence import Judge
from benchmarks.checker_mutation.generate import CLASSES, mutants
from benchmarks.checker_mutation.kernel import KernelCode
from benchmarks.checker_mutation.report import Campaign, Verdict
from benchmarks.checker_mutation.run import CampaignError, Task, run
from benchmarks.checker_mutation.sites import window
from benchmarks.checker_mutation.stated import Stated
from benchmarks.checker_mutation.subject import COUNTERS, shipped_subjects
from tests.support.mutation.campaign import DECODE, FORWARD, OF_FAMILIES, STUDIES
from tests.support.mutation.hip_subjects import hip_subjects, range_copy

PROPS = KNOWN_DEVICES["MI300X"]
# Of many members with the same sources; the others differ in sizes and instructions of a kind.
SMALL = ("attn_fwd_bf16_d64_narrow_rtne", "attn_merge_bf16_d128_rtne")


def held(report: Campaign) -> None:
    missed = [f"{o.subject} {o.kind} {o.pc:#x} {o.what}: {o.seen}" for o in report.missed]
    assert not report.failures, "\n".join([*report.failures, *missed])


@pytest.mark.parametrize(
    ("product", "names", "size"),
    [
        ("MI300X", SMALL[1:], 12),
        pytest.param("MI300X", SMALL, 70, marks=pytest.mark.slow),
        pytest.param("MI355X", SMALL, 70, marks=pytest.mark.slow),
    ],
)
def test_sample(product: str, names: tuple[str, ...], size: int) -> None:
    props = KNOWN_DEVICES[product]
    subjects = shipped_subjects(props, names) + hip_subjects(props.arch)
    report = campaign(subjects, sample=size, seed=1)
    held(report)
    assert len(report.outcomes) == size
    assert {outcome.kind for outcome in report.outcomes} == set(CLASSES)
    counts = report.by_class()["all"]
    assert counts[Verdict.IN_PLACE.value] > counts["mutants"] // 3


@pytest.mark.parametrize("product", ["MI300X", pytest.param("MI355X", marks=pytest.mark.slow)])
def test_every_mutant_of_the_kernel_that_narrows_indices(product: str) -> None:
    """No operation's plan launches it: calls do."""
    subjects = shipped_subjects(KNOWN_DEVICES[product], ("narrow_indices",))
    report = campaign(subjects)
    assert {outcome.subject for outcome in report.outcomes} == {"narrow_indices"}
    held(report)


# Launches in parts: in their order and added as they come; and those of attention over a cache,
# of which another barrier in front of the write-back leaves nothing to the one behind.
@pytest.mark.parametrize(
    ("kernel", "launches", "arrivals", "kinds"),
    [
        ("gemm_nt_bf16_m32n32k2", "40x500x264 split_k=3", 2, ("wait deleted", "barrier")),
        pytest.param(
            *(DECODE, "lengths=131,37,258 on 3 CUs", 1, ("wait deleted",)), marks=pytest.mark.slow
        ),
    ],
)
def test_wait_and_barrier_in_front_of_a_counter(
    kernel: str, launches: str, arrivals: int, kinds: tuple[str, ...]
) -> None:
    """Of coherent accesses, which no rule takes for races: schedules have to make results wrong."""
    (subject,) = shipped_subjects(PROPS, (kernel,))
    code = KernelCode(subject.image, subject.symbol)
    texts = [instruction.text for instruction in code.instructions]
    places = set()
    for arrival in (i for i, text in enumerate(texts) if text.startswith("global_atomic_add_x2")):
        for before in ("s_barrier", "s_waitcnt vmcnt(0)"):
            at = max(i for i in range(arrival) if texts[i] == before)
            places.add(code.instructions[at].pc)
    assert len(places) == 2 * arrivals
    changed = [m for m in mutants(code, True) if m.pc in places and m.kind in kinds]
    assert len(changed) == len(kinds) * arrivals

    names = [case.name for case in subject.cases]
    split = tuple(i for i, name in enumerate(names) if launches in name)
    options = {"threads": 1, "max_errors": 4}
    (original,) = run([Task(0, 0, code.image, split)], [subject], options, 1, 120.0)
    expected = {case.case: case.outputs for case in original.cases}
    assert len(expected) == arrivals
    tasks = [
        Task(
            *(i, 0, code.patched(mutant.at, mutant.encoding), split),
            schedules=SCHEDULES,
            outputs=tuple(expected.items()),
        )
        for i, mutant in enumerate(changed)
    ]
    for result in run(tasks, [subject], options, 1, 120.0):
        assert any(
            case.findings or case.error or case.outputs != expected[case.case]
            for case in result.cases
        ), (changed[result.id], result.failure)


@pytest.mark.slow
def test_launches_that_merge_parts_themselves() -> None:
    """Of the kernel that can: a result that must be whole, and counters that must be left at 0."""
    (subject,) = shipped_subjects(PROPS, (FORWARD,))
    together = [case for case in subject.cases if "one XCD" in case.name]
    assert len(together) == len(cases.TOGETHER)
    for case in together:
        buffers = {buffer.name: buffer for buffer in case.buffers}
        assert buffers[COUNTERS].contract == "zero_at_end" and buffers["o"].data is None
        assert any(buffers[COUNTERS].data or b"") == ("stale" in case.name)
    places = tuple(subject.cases.index(case) for case in together)
    task = Task(0, 0, subject.image, places, schedules=SCHEDULES[:1])
    (original,) = run([task], [subject], {"threads": 1, "max_errors": 4}, 1, 120.0)
    assert not original.failure
    assert [(case.findings, case.error) for case in original.cases if case.findings] == []
    (other,) = shipped_subjects(KNOWN_DEVICES["MI355X"], (FORWARD,))
    assert not any("one XCD" in case.name for case in other.cases)


def test_stated_argument_of_one_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait has a field for each counter, of which an argument may name one."""
    subject = range_copy()
    code = KernelCode(subject.image, subject.symbol)
    judge = Judge(subject, code)
    deleted = [m for m in mutants(code, False) if m.kind == "wait deleted"]
    mutant = next(m for m in deleted if not judge(m).argument)
    counter = mutant.what.partition("(")[0]
    other = {"vmcnt": "lgkmcnt", "lgkmcnt": "vmcnt"}[counter]
    for kind, argument in (
        ("wait deleted", "said"),
        (f"wait deleted, {counter}", "said"),
        (f"wait deleted, {other}", ""),
        ("wait weakened", ""),
    ):
        site = window(code, mutant.pc, 2, 2)
        stated = [Stated(subject.name, kind, "said", site, archs=(code.arch,))]
        monkeypatch.setattr(equivalence, "ARGUMENTS", stated)
        judge = Judge(subject, code)
        assert (judge(mutant).argument, judge(mutant).stated) == (argument, bool(argument))


def test_a_stale_argument_fails_the_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    """One about a place that is gone, and one about a place without such a mutant."""
    subject = range_copy()
    code = KernelCode(subject.image, subject.symbol)
    last = code.instructions[-1].pc
    there, gone = window(code, last, 3, 0), "s_nop 9\n" * 3 + "> s_nop 9"
    stated = [Stated(subject.name, "barrier", "said", site) for site in (there, gone)]
    monkeypatch.setattr(equivalence, "ARGUMENTS", stated)
    report = campaign([subject], sample=1, classes=["global offset"])
    failures = "\n".join(report.failures)
    assert "is for 1 places, and there are 0" in failures
    assert f"about barrier at {last:#x}, where there is no such mutant" in failures


def test_unknown_class() -> None:
    with pytest.raises(ValueError, match="must be among"):
        campaign([], classes=["typo"])


def test_a_campaign_that_cannot_run_reports_nothing() -> None:
    """A worker's own failure must not count as a mutant that was noticed."""
    case = dataclasses.replace(range_copy().cases[0], pointers=((0, 9),))  # no such buffer
    subject = dataclasses.replace(range_copy(), cases=(case,))
    with pytest.raises(CampaignError, match="IndexError"):
        list(run([Task(0, 0, subject.image, (0,))], [subject], {}, 1, 60.0))


def test_a_kernel_without_launches_is_no_subject() -> None:
    with pytest.raises(ValueError, match=r"^range_copy: there must be a launch of it"):
        dataclasses.replace(range_copy(), cases=())


def test_process_that_works_too_long_is_ended() -> None:
    """By its CPU time: a busy machine makes none fail."""
    subject = range_copy()
    tasks = [Task(0, 0, subject.image, (0,) * 1_000_000), Task(1, 0, subject.image, (0,))]
    first, second = run(tasks, [subject], {"threads": 1}, 1, 1.0)
    assert first.failure == "the process ended (more than 1 s of CPU time)"
    assert not second.failure and second.cases


def test_process_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_BY_THE_CLOCK", 0.01)  # less than a process takes to start
    subject = range_copy()
    tasks = [Task(i, 0, subject.image, (0,)) for i in range(2)]
    for result in run(tasks, [subject], {}, 1, 1.0):
        assert result.failure.startswith("no answer within 0.01 s")


@pytest.mark.slow
def test_every_mutant_of_shipped_kernels() -> None:
    held(campaign(shipped_subjects(PROPS, (FORWARD, *SMALL, "gather_rows")) + hip_subjects()))


@pytest.mark.slow
def test_every_mutant_of_kernels_for_gfx950() -> None:
    study = STUDIES["gfx950"]
    names = [name for name in study.shipped if name != FORWARD]
    held(campaign(shipped_subjects(study.props, names) + hip_subjects(study.arch)))


@pytest.mark.slow
@pytest.mark.parametrize("arch", STUDIES)
@pytest.mark.parametrize("family", OF_FAMILIES)
def test_sample_of_a_family(family: str, arch: str) -> None:
    subjects, _ = OF_FAMILIES[family][arch].subjects()
    held(campaign(subjects, sample=120, seed=2))


@pytest.mark.slow
@pytest.mark.oracles
def test_every_mutant_of_triton_kernels() -> None:
    pytest.importorskip("triton")
    from tests.support.mutation.triton_subjects import triton_subjects

    held(campaign(triton_subjects()))
