"""The constants of the benchmark are those of the virtual device's model."""

import ctypes
import re

import pytest

from amdattn.arch.props import KNOWN_DEVICES
from amdattn.bench.clocks import CLOCKS, clocks
from amdattn.ops.gemm import cost as gemm_cost
from tests.support.paths import ROOT
from tests.support.vdev_library import open_library

TABLE = ROOT / "virtual_device" / "arch" / "gfx942.cc"


def test_same_as_the_model():
    text = TABLE.read_text()

    def constant(name):
        return float(re.search(rf"\b{name} = ([\d.]+)", text)[1])

    arch = CLOCKS["gfx942"]
    for name, value in {
        "kSustained": arch.sustained_ghz,
        "launch_us": arch.launch_us,
        "dispatch_wave": arch.dispatch_wave_clk,
        "first_fetch": arch.first_fetch_clk,
    }.items():
        assert constant(name) == value, name
    library = open_library(amdattn_vdev_machines=(ctypes.c_char_p, []))
    first = library.amdattn_vdev_machines().decode().splitlines()[0].split("\t")
    cus, xcds, hbm_rate, peak_ghz = (float(first[i]) for i in (2, 3, 6, 8))
    assert first[:2] == ["gfx942", "MI300X"]
    assert (cus, xcds) == (arch.num_cus, arch.num_xcds)
    assert (hbm_rate, peak_ghz) == (arch.hbm_bytes_per_ns, arch.peak_ghz)


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
