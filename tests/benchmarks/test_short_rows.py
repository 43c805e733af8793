"""What the table of short rows takes as published."""

from __future__ import annotations

import pytest

from benchmarks.performance_model.short_rows import PUBLISHED, clock_ghz


def test_the_clock_that_is_published() -> None:
    """2714 MHz less 12.42 for every percent of matrix use, up to the device's peak."""
    assert clock_ghz(0.9) == pytest.approx(2.714 - 0.9 * 1.242)
    assert clock_ghz(0.0) == 2.1


def test_no_time_is_beyond_the_chip() -> None:
    """At the peak clock of an MI355X, every matrix unit busy."""
    for row in PUBLISHED:
        flops = 4 * row.batch * row.heads_q * row.rows**2 * 128
        assert min(row.us) > flops / (256 * 4096 * 2.4e9) * 1e6
