"""The dispatcher's replay against what can be counted by hand."""

import numpy as np
import pytest

from amdattn.bench.clocks import clocks
from amdattn.bench.replay import Speed, longest, replay
from benchmarks.peers.sampling import replay_device

ARCH = clocks("gfx942")
CUS = ARCH.cus_per_xcd
WAVES = 4
GAP = WAVES * ARCH.dispatch_wave_clk
FIRST = ARCH.first_fetch_clk
ALONE = Speed({1: ((1000.0, 2.0),)})


def test_one_workgroup():
    timeline = replay([64], ALONE, 1, WAVES, ARCH)
    assert timeline.cycles == FIRST + GAP + 1000 + 2 * 64


def test_rounds_and_tail():
    """Two rounds and one workgroup more: the tail is a round of its own."""
    full = replay([64] * (2 * CUS), ALONE, 1, WAVES, ARCH)
    tail = replay([64] * (2 * CUS + 1), ALONE, 1, WAVES, ARCH)
    # The first CU is free before the last one has started: from then on CUs end and start at the
    # dispatcher's pace.
    assert CUS * GAP > 1128
    np.testing.assert_array_equal(np.diff(full.start), GAP)
    assert tail.cycles - tail.start[-1] == pytest.approx(1128)
    assert tail.start[-1] >= full.start[CUS] + 1128
    np.testing.assert_array_equal(np.bincount(tail.cu)[1:], 2)


def test_two_residents_share():
    """With half the speed for both, a pair takes twice as long, and the remainder is alone."""
    speed = Speed({1: ((0.0, 1.0),), 2: ((0.0, 2.0), (0.0, 2.0))})
    rows = [100_000] * CUS + [200_000] * CUS
    timeline = replay(rows, speed, 2, WAVES, ARCH)
    # Work is conserved: each CU does 300000 clk of it, and is idle before its first workgroup only.
    for cu in range(CUS):
        here = timeline.cu == cu
        assert timeline.end[here].max() - timeline.start[here].min() == pytest.approx(300_000)


def test_the_older_goes_first():
    speed = Speed({1: ((0.0, 1.0),), 2: ((0.0, 1.0), (0.0, 1e9))})
    timeline = replay([1_000_000] * (2 * CUS), speed, 2, WAVES, ARCH)
    old, young = timeline.end[:CUS], timeline.end[CUS:]
    np.testing.assert_allclose(old - timeline.start[:CUS], 1_000_000, rtol=1e-3)
    np.testing.assert_allclose(young - old, 1_000_000, rtol=0.01)


def test_xcds_get_every_eighth_workgroup():
    """Only XCD 3 has work; the device ends with it."""
    rows = np.zeros(8 * CUS, np.int64)
    rows[3::8] = 5000
    timeline = longest(replay_device(rows, ALONE, 1, WAVES, ARCH))
    assert timeline.cycles == FIRST + CUS * GAP + 1000 + 2 * 5000


def test_late_and_warm():
    speed = Speed(ALONE.shared, late=(50.0,) + (0.0,) * (CUS - 1), warm=-100.0)
    plain = replay([64] * (2 * CUS), ALONE, 1, WAVES, ARCH)
    moved = replay([64] * (2 * CUS), speed, 1, WAVES, ARCH)
    assert moved.end[0] - plain.end[0] == pytest.approx(50)
    later = moved.end[CUS:] - moved.start[CUS:]
    np.testing.assert_allclose(later, 1028)
