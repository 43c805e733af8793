"""What is made of the answers of HIP runtimes and kernel drivers, of any age, about a device."""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import amdattn
from amdattn.device.runtime import kfd
from amdattn.device.runtime.query import query_device
from amdattn.op.occupancy import workgroups_per_cu

XCCS, CHIP = "hipDeviceAttributeNumberOfXccs", "hipDeviceAttributePciChipId"
# simd_count is 4 for each CU.
CPX_NODE = {"simd_count": 152, "simd_per_cu": 4, "num_xcc": 1, "device_id": 0x74A1}
MI300X_NODE = {"simd_count": 1216, "simd_per_cu": 4, "num_xcc": 8, "device_id": 0x74A1}
AT_0C = {"location_id": 0x0C00, "domain": 0}
CPU_NODE = {"cpu_cores_count": 64, "simd_count": 0, "simd_per_cu": 0}


class Hip:
    """hip-python over a library that gives these answers: a value, a status, or an exception."""

    def __init__(self, bus_id: Any = b"0000:0c:00.0\0", **attributes: Any) -> None:
        self._answers = list(attributes.values())
        self._bus_id = bus_id
        self.hipDeviceAttribute_t = IntEnum("Attribute", list(attributes), start=0)
        self.errors_left = 0

    def _answer(self, value: Any) -> tuple[int, Any]:
        if isinstance(value, Exception):
            self.errors_left += isinstance(value, ValueError)
            raise value
        if isinstance(value, tuple):
            self.errors_left += 1
            return value[0], 0
        return 0, value

    def hipDeviceGetAttribute(self, attribute: int, ordinal: int) -> tuple[int, Any]:
        return self._answer(self._answers[attribute])

    def hipDeviceGetPCIBusId(self, length: int, ordinal: int) -> tuple[int, Any]:
        return self._answer(self._bus_id)

    def hipGetLastError(self) -> tuple[int]:
        self.errors_left = 0
        return (0,)


def ask(hip: Hip, num_cus: int, name: str = "AMD Instinct MI300X", arch: str = "gfx942") -> Any:
    prop = SimpleNamespace(
        gcnArchName=f"{arch}:sramecc+:xnack-".encode(),
        name=name.encode(),
        multiProcessorCount=num_cus,
        sharedMemPerBlock=65536,
        totalGlobalMem=2**37,
    )
    found = query_device(hip, prop, 0, True)
    assert hip.errors_left == 0  # no later call reports them
    return found


@pytest.fixture(autouse=True)
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The kernel driver; at first it shows no GPU."""
    monkeypatch.setattr(kfd, "NODES", tmp_path / "nodes")

    def show(*nodes: dict[str, int]) -> None:
        for i, node in enumerate((CPU_NODE, *nodes)):
            folder = tmp_path / "nodes" / str(i)
            folder.mkdir(parents=True)
            text = "".join(f"{key} {value}\n" for key, value in node.items())
            (folder / "properties").write_text(text)

    return show


def facts(found: Any) -> tuple[object, ...]:
    props = found.props
    return props.chip, props.num_cus, props.num_xcds, props.partition


NO_ANSWERS = {
    "6.4: no names": {},
    "an error": {XCCS: (1,), CHIP: (801,)},
    "an error without a name": {XCCS: ValueError("4711"), CHIP: ValueError("4711")},
    "no such function": {XCCS: RuntimeError("dlsym"), CHIP: RuntimeError("dlsym")},
    "zero": {XCCS: 0, CHIP: 0},
}


@pytest.mark.parametrize("answers", NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_the_driver_is_asked_where_the_runtime_does_not_answer(driver: Any, answers: Any) -> None:
    driver({**CPX_NODE, **AT_0C})
    found = ask(Hip(**answers), 38, "AMD Radeon Graphics")
    assert facts(found) == ("MI300X", 38, 1, "CPX")
    assert dict(found.sources) == {
        "chip": "MI300X, by id 0x74a1 of the kernel driver",
        "XCDs": "1, by the kernel driver",
    }


@pytest.mark.parametrize("answers", NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_without_a_driver_the_name_and_the_cus_say_it(answers: Any) -> None:
    found = ask(Hip(**answers), 76, "AMD Instinct MI325X VF")
    assert facts(found) == ("MI325X", 76, 2, "QPX")
    assert dict(found.sources) == {
        "chip": "MI325X, by its name",
        "XCDs": "2, from 76 CUs of 38 each: no runtime or driver says",
    }


@pytest.mark.parametrize(
    "bus_id", [b"", "nonsense", b"0000:1c:00.0", b"0001:0c:00.0", (801,), RuntimeError("dlsym")]
)
def test_a_gpu_that_the_driver_has_elsewhere_is_another(driver: Any, bus_id: Any) -> None:
    driver({**CPX_NODE, **AT_0C, "device_id": 0x74A5})
    assert facts(ask(Hip(bus_id), 304)) == ("MI300X", 304, 8, "SPX")


def test_nodes_that_cannot_be_read(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver({**CPX_NODE, **AT_0C})
    read = Path.read_text

    def refuse(path: Path, **options: Any) -> str:
        if path.parent.name == "1":
            raise PermissionError(path)
        return read(path, **options)

    monkeypatch.setattr(Path, "read_text", refuse)
    assert kfd.nodes() == ()
    assert facts(ask(Hip(), 38)) == ("MI300X", 38, 1, "CPX")


def test_partitions_share_an_address(driver: Any) -> None:
    driver(*({**CPX_NODE, "location_id": i << 28 | 0x0C00 | i, "domain": 0} for i in range(8)))
    found = ask(Hip(b"0000:0C:00.3"), 38, "AMD Radeon Graphics")
    assert facts(found) == ("MI300X", 38, 1, "CPX")


def test_nodes_that_differ_at_an_address_say_nothing(driver: Any) -> None:
    driver({**CPX_NODE, **AT_0C}, {**CPX_NODE, **AT_0C, "num_xcc": 2})
    assert dict(ask(Hip(), 38).sources)["XCDs"].startswith("1, from 38 CUs")


@pytest.mark.parametrize("name", ["AMD Radeon Graphics", "AMD Instinct MI300X", ""])
def test_an_id_tells_chips_apart_that_have_as_many_cus(name: str) -> None:
    """A name does not: a driver that does not know a device calls it by another one."""
    assert facts(ask(Hip(**{XCCS: 8, CHIP: 0x74A5}), 304, name)) == ("MI325X", 304, 8, "SPX")


@pytest.mark.parametrize("other", [512, 8, 1])
def test_an_attribute_that_is_another_one(driver: Any, other: int) -> None:
    """Its number has changed between releases: 512 registers are no id."""
    driver({**MI300X_NODE, **AT_0C, "device_id": 0x74A5})
    found = ask(Hip(**{XCCS: 8, CHIP: other}), 304)
    assert facts(found) == ("MI325X", 304, 8, "SPX")


@pytest.mark.parametrize(
    ("chip", "num_cus", "xccs", "wanted"),
    [
        (0x74A2, 80, 4, ("MI308X", 80, 4, "SPX")),
        (0x74A2, 80, (1,), ("MI308X", 80, 4, "SPX")),
        (0x74A2, 20, 1, ("MI308X", 20, 1, "CPX")),
        (0x74A2, 20, (1,), ("MI308X", 20, 1, "CPX")),
        (0x74A0, 228, 6, ("MI300A", 228, 6, "SPX")),
        (0x74A0, 76, (1,), ("MI300A", 76, 2, "TPX")),
        (0x74B5, 152, (1,), ("MI300X", 152, 4, "DPX")),
        (0x74A5, 38, 1, ("MI325X", 38, 1, "CPX")),
        # An XCD of an unknown one is taken for one of an MI300X.
        (0x7FFF, 76, 2, ("", 76, 2, "")),
        (0x7FFF, 77, (1,), ("", 77, 3, "")),
        (0x7FFF, 1, (1,), ("", 1, 1, "")),
        # More XCDs than the chip or the CUs have, or too few for the CUs, cannot be.
        (0x74A2, 80, 8, ("MI308X", 80, 4, "SPX")),
        (0x74A1, 304, 1, ("MI300X", 304, 8, "SPX")),
        (0x7FFF, 4, 8, ("", 4, 1, "")),
        (0x74A1, 304, -3, ("MI300X", 304, 8, "SPX")),
    ],
)
def test_chips_and_partitions(chip: int, num_cus: int, xccs: Any, wanted: Any) -> None:
    hip = Hip(**{XCCS: xccs, CHIP: chip})
    assert facts(ask(hip, num_cus, "AMD Radeon Graphics")) == wanted


def test_a_chip_of_another_architecture_is_none_of_these() -> None:
    found = ask(Hip(**{XCCS: 8, CHIP: 0x74A1}), 256, "AMD Instinct MI300X", "gfx950")
    assert found.props.chip == "" and "unknown (ids: 0x74a1 of" in dict(found.sources)["chip"]


def test_an_mi355x_whose_runtime_says_64_kib_of_lds() -> None:
    """24 kernels need more, and workgroups are planned by what a CU has."""
    with pytest.warns(RuntimeWarning, match="163840 bytes, of gfx950; the HIP runtime says 65536"):
        found = ask(Hip(), 256, "AMD Instinct MI355X", "gfx950")
    assert found.props.lds_bytes == 163840 and "LDS" in dict(found.sources)
    rows = [row for row in amdattn.kernels() if row.arch == "gfx950" and row.lds_bytes > 65536]
    assert len(rows) >= 24 and all(workgroups_per_cu(row, found.props)[0] for row in rows)
