"""The constants of the benchmark are those of planning, which are the virtual device's."""

import pytest

from amdattn.arch.props import KNOWN_DEVICES, KNOWN_PARTITIONS
from amdattn.bench.clocks import clocks


def test_unknown_architecture():
    with pytest.raises(ValueError, match="arch='gfx000' must be one of gfx942"):
        clocks("gfx000")


def test_an_architecture_stands_for_its_first_product():
    found, planned = clocks("gfx942"), KNOWN_DEVICES["MI300X"]
    assert found == clocks(planned)
    assert found.name == "MI300X"
    assert (found.num_cus, found.num_xcds) == (planned.num_cus, planned.num_xcds)
    assert (found.peak_ghz, found.sustained_ghz, found.launch_us) == (2.1, 1.2, 2.7)
    assert (found.hbm_bytes_per_ns, found.mall_bytes) == (4200, 256 << 20)
    assert found.cus_per_xcd == 38


@pytest.mark.parametrize("name", KNOWN_DEVICES | KNOWN_PARTITIONS)
def test_a_device_has_clocks_of_its_own(name):
    props = (KNOWN_DEVICES | KNOWN_PARTITIONS)[name]
    found = clocks(props)
    assert found.name == props.label == name
    assert (found.num_cus, found.num_xcds) == (props.num_cus, props.num_xcds)
    assert found.hbm_bytes_per_ns == props.hbm_bytes_per_ns
    assert found.mall_bytes == props.mall_bytes
