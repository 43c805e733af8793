"""What is published of products at their power cap, and who is told."""

from __future__ import annotations

import dataclasses

import pytest

from amdattn.arch.power_cap import clock_by_matrix_use, gemm_tflops
from amdattn.bench import report
from amdattn.bench.record import MODELLED, Record, Times


def test_clock_falls_with_matrix_use() -> None:
    # The loop of ours and that of AITER's kernel, by the published line.
    assert clock_by_matrix_use("MI355X", 0.974) == pytest.approx(1.504, abs=5e-4)
    assert clock_by_matrix_use("MI355X", 0.723) == pytest.approx(1.816, abs=5e-4)
    assert clock_by_matrix_use("MI355X", 0.1) == 2.4  # no more than the peak
    assert clock_by_matrix_use("MI300X", 0.5) is None


def test_rates_of_products() -> None:
    assert (gemm_tflops("MI300X"), gemm_tflops("MI355X")) == (708, 1610)
    assert gemm_tflops("another") is None


def test_rates_beyond_those_are_named() -> None:
    clocks = {"peak_ghz": 2.4, "sustained_ghz": 1.75, "launch_us": 2.6, "gemm_tflops": 1610.0}
    record = Record(
        *("attention", "b1", {}, "amdattn", "rtne", MODELLED),
        flops=10**12, times=Times(at_sustained_us=2000.0, by_use_us=2100.0), clocks=clocks,
    )  # fmt: skip
    said = "TFLOP/s is more than the 1610"
    assert not any(said in line for line in report.notes([record]))
    fast = dataclasses.replace(record, flops=34 * 10**11)
    assert any(f"1700 {said}" in line for line in report.notes([fast]))
    assert "| ms by use |" in report.markdown([record])
