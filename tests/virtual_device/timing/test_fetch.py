"""Fetches of code that miss the instruction cache: 64 KiB for two CUs, an L2 access each."""

from __future__ import annotations

import functools

import pytest

from amdattn.device.profiling import LaunchProfile
from benchmarks.performance_model.micro_kernel import duration, pass_clk, profile, profiles

ADD = "v_add_f32 v20, v8, v9\n"
KIB = 1024 // 4  # instructions
SLOT, TAKEN_BRANCH_AND_LOOP = 4, 32
MISS = 213  # clk of an access to the L2
BEYOND_L2_NS = 412 - 102  # of HBM
PAIR = 128  # bytes: a line of 64 that misses brings the next one along


def clk_of_misses(kib: int) -> float:
    """By which a pass of a loop of so much code is longer than its issue slots."""
    return pass_clk(ADD * (kib * KIB)) - SLOT * kib * KIB - TAKEN_BRANCH_AND_LOOP


@pytest.mark.parametrize("kib", [4, 60])
def test_a_loop_that_fits_never_waits(kib: int) -> None:
    assert clk_of_misses(kib) == 0


@pytest.mark.parametrize("kib", [80, 96])
def test_a_loop_that_does_not_fit_waits_for_the_l2(kib: int) -> None:
    """Once for two lines: what was used least recently went, which is always the next one."""
    pairs = kib * 1024 / PAIR
    assert MISS <= clk_of_misses(kib) / pairs <= MISS + SLOT


@functools.cache
def straight_line() -> tuple[LaunchProfile, LaunchProfile]:
    """Code that is run through once, 96 KiB, from HBM and then from the L2."""
    first, second = profiles(ADD * (96 * KIB), launches=2, warm_code=False)
    return first, second


def waited(found: LaunchProfile) -> float:
    return sum(site.stalls.get("fetch", 0) for site in found.sites)


def test_code_comes_from_hbm_and_then_from_the_l2() -> None:
    pairs = 96 * 1024 / PAIR
    first, second = straight_line()
    from_hbm = MISS + BEYOND_L2_NS * first.clock_ghz
    assert waited(first) / pairs == pytest.approx(from_hbm, rel=0.02)
    assert waited(second) / pairs == pytest.approx(MISS, rel=0.03)
    assert first.bytes["hbm"] == pytest.approx(96 * 1024, rel=0.05)
    assert second.bytes["hbm"] <= PAIR
    for found in (first, second):
        (time,) = found.times
        assert time.end - time.start == pytest.approx(waited(found) + SLOT * 96 * KIB, rel=0.01)


def test_misses_are_told_of_the_instruction_that_waits() -> None:
    """The first of every second line."""
    found = straight_line()[1]
    missed = [site.offset for site in found.sites if site.stalls.get("fetch", 0)]
    assert len(missed) == pytest.approx(96 * 1024 / PAIR, abs=3)
    steps = {b - a for a, b in zip(missed[2:-2], missed[3:-2], strict=False)}
    assert steps == {PAIR}


def test_two_cus_share_what_they_fetch() -> None:
    """Workgroups 0 and 8 are of one XCD: its CUs 0 and 1 have one cache, CU 2 has another."""
    code = ADD * (8 * KIB)
    fetched = {}
    for workgroups in (1, 9, 17):
        found = profile(code, workgroups=workgroups, warm_code=False)
        assert [time.cu for time in found.times] == list(range(len(found.times)))
        fetched[workgroups] = found.bytes["l2"]
    data = 8 * 128  # the second workgroup's own reads
    assert fetched[9] - fetched[1] <= 4 * data
    assert fetched[17] - fetched[9] >= 8 * 1024


def test_code_that_is_assumed_to_be_there_is_there() -> None:
    """Up to what the cache holds; what lies beyond is fetched."""
    assert duration(ADD * (32 * KIB)) < duration(ADD * (32 * KIB), warm_code=False)
    assert waited(profile(ADD * (32 * KIB))) == 0
    assert waited(profile(ADD * (96 * KIB))) > 32 * 1024 / PAIR * MISS * 0.9
