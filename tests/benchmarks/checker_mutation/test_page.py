"""Pages of campaigns: what is written is read again, and stays while one kernel is renewed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.checker_mutation.report import Campaign, Original, Outcome, Verdict
from benchmarks.checker_mutation.subject import shipped_subjects
from tests.support.mutation.campaign import OF_FAMILIES, STUDIES, merged, unargued
from tests.support.mutation.page import Text, read, render, results, totals
from tests.support.paths import ROOT

TEXT = Text(" on paper", "3.9.0", "- A note\n  of two lines.\n")
EVERY = {s.page: s for of in (STUDIES, *OF_FAMILIES.values()) for s in of.values()}
PAGES = [ROOT / "docs" / "studies" / page for page in EVERY]


def campaign(*kernels: str) -> Campaign:
    outcomes = [
        Outcome(kernel, *rest, 0.5)
        for kernel in kernels
        for rest in (
            ("wait deleted", 0x10, "vmcnt(0) gone", Verdict.IN_PLACE, "seen", ""),
            ("wait deleted", 0x18, "vmcnt(1) gone", Verdict.MISSED, "", "nothing, on no path"),
            ("EXEC", 0x20, "s_x s[0:1], (b), c dropped", Verdict.MISSED, "", "nothing, on no path"),
            ("EXEC", 0x24, "s_y dropped", Verdict.MISSED, "", "nothing, on no path"),
            ("EXEC", 0x28, "s_y dropped", Verdict.MISSED, "no answer", ""),
            ("EXEC", 0x2C, "s_y dropped", Verdict.MISSED, "", ""),
        )
    ]
    originals = [Original(kernel, [], [], f"digest of {kernel}", "inputs", 9) for kernel in kernels]
    return Campaign(originals, outcomes, None, 4)


def test_what_is_written_is_read_again() -> None:
    found = list(results(campaign("one", "one, with 4 waves", "two")))
    version, again = read(render(TEXT, found))
    assert (version, again) == ("3.9.0", found)
    first = again[0]
    assert (first.mutants, first.run, first.seed) == (9, 6, 4)
    assert first.missed == [
        "EXEC, `0x28`: `s_y dropped`. no answer",
        "EXEC, `0x2c`: `s_y dropped`.",
    ]
    assert first.equivalent["nothing, on no path", "EXEC"] == [
        "`0x20` (s_x s[0:1], (b), c dropped)", "`0x24` (s_y dropped)",
    ]  # fmt: skip
    sums = totals(again)
    assert list(sums) == ["wait deleted", "EXEC", "all"]
    assert (sums["EXEC"]["missed"], sums["all"]["mutants"], sums["all"]["equivalent"]) == (6, 18, 9)


def test_bars() -> None:
    assert "Below them: EXEC 0.0%, all 33.3%." in render(TEXT, list(results(campaign("one"))))
    report = campaign("one")
    report.outcomes = report.outcomes[:4]
    assert "All are reached." in render(TEXT, list(results(report)))


def test_one_kernel_is_renewed() -> None:
    old, new = (list(results(campaign(*names))) for names in (("one", "two"), ("two", "three")))
    new[0].digest = "new"
    found = merged(old, new, ["three", "two", "one"])
    assert [result.kernel for result in found] == ["three", "two", "one"]
    assert [result.digest for result in found] == ["digest of three", "new", "digest of one"]


def test_what_no_argument_says_is_named() -> None:
    study = STUDIES["gfx942"]
    (subject,) = shipped_subjects(study.props, ("narrow_indices",))
    _, every = read((ROOT / "docs" / "studies" / study.page).read_text(encoding="utf-8"))
    (found,) = (result for result in every if result.kernel == subject.name)
    assert found.equivalent
    assert not unargued(subject, found)
    found.equivalent["Nothing reads it", "swap"] = ["`0x1` (gone)"]
    assert unargued(subject, found) == ["swap `0x1` (gone)"]


def test_another_table_is_refused() -> None:
    page = render(TEXT, list(results(campaign("one"))))
    with pytest.raises(ValueError, match="'Counts' must have the columns"):
        read(page.replace("| kernel | class |", "| kernel | kind |"))
    with pytest.raises(ValueError, match="no section 'Missed'"):
        read(page.replace("## Missed", "## Other"))
    with pytest.raises(ValueError, match="is about none of the page's kernels"):
        read(page.replace("- one, EXEC, `0x28`", "- another, EXEC, `0x28`"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_pages(path: Path) -> None:
    """Nothing is on them but what can be written anew."""
    study = EVERY[path.name]
    document = path.read_text(encoding="utf-8")
    triton, found = read(document)
    assert render(study.text(triton), found) == document
