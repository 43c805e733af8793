"""The constants of the benchmark are those of the virtual device's model."""

import re
from pathlib import Path

import pytest

from amdattn.arch.props import KNOWN_DEVICES
from amdattn.bench.clocks import CLOCKS, clocks
from amdattn.ops.gemm import cost as gemm_cost

HEADER = Path(__file__).parents[2] / "virtual_device" / "timing" / "arch.h"


def test_same_as_the_model():
    text = HEADER.read_text()

    def constant(name):
        return float(re.search(rf"\b{name} = ([\d.]+)", text)[1])

    arch = CLOCKS["gfx942"]
    for name, value in {
        "peak_clock_ghz": arch.peak_ghz,
        "sustained_clock_ghz": arch.sustained_ghz,
        "num_cus": arch.num_cus,
        "num_xcds": arch.num_xcds,
        "launch_us": arch.launch_us,
        "dispatch_wave": arch.dispatch_wave_clk,
        "first_fetch": arch.first_fetch_clk,
        "hbm_rate": arch.hbm_bytes_per_ns,
    }.items():
        assert constant(name) == value, name


def test_unknown_architecture():
    with pytest.raises(ValueError, match="arch='gfx000' has no performance model; there is gfx942"):
        clocks("gfx000")


def test_rates_are_those_of_planning():
    found, planned = clocks("gfx942"), KNOWN_DEVICES["MI300X"]
    assert (found.num_cus, found.num_xcds) == (planned.num_cus, planned.num_xcds)
    assert found.hbm_bytes_per_ns == pytest.approx(planned.hbm_bytes_per_ns)
    assert found.peak_ghz == gemm_cost.PEAK_CLOCK_GHZ
    assert 1000 * found.launch_us == gemm_cost.LAUNCH_NS
    assert found.cus_per_xcd == 38
