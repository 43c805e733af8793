"""amdattn.virtual.check on a device that only pretends: what it sets, collects and raises."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

import amdattn
from amdattn.checking.findings import KINDS, Finding
from amdattn.checking.session import Check
from amdattn.checking.suppressions import Suppression, Suppressions
from amdattn.device import runtime
from amdattn.errors import BindingError, CheckError, HipError
from tests.support.paths import ROOT

IMAGE = b"\x7fELF not really"


def finding(**changes: Any) -> dict[str, Any]:
    record = {
        "kind": "use_before_wait",
        "severity": "error",
        "pc": 0x1A40,
        "offset": 0x40,
        "text": "v_add_u32_e32 v1, v2, v3",
        "producer_pc": 0x1A20,
        "producer_text": "global_load_dword v2, v0, s[2:3]",
        "workgroup": [1, 2, 3],
        "wave": 1,
        "lane": 5,
        "where": "v2",
        "message": "v2 is used while the load that fills it is pending",
        "count": 4,
    }
    return record | changes


ADVICE = finding(kind="over_wait", severity="advice", pc=0x1A60, offset=0x60, producer_pc=None)
COUNTED = finding(kind="range_swallowed", severity="counted", pc=0x1A70, offset=0x70)


class FakeExports:
    """Returns the findings it is given, and notes what is asked of it."""

    def __init__(self) -> None:
        self.options: dict[str, object] = dict(check=0, max_errors=0, late_loads=1, late_stores=1)
        self.calls: list[tuple[Any, ...]] = []
        self.pending: list[dict[str, Any]] = []
        self.host: list[dict[str, Any]] = []
        self.number = 7
        self.dropped = (0, 0)

    def set_options(self, **values: object) -> dict[str, object]:
        before = {key: self.options.get(key, 0) for key in reversed(values)}
        self.options.update(values)
        return before

    def declare(self, *call: Any) -> None:
        assert self.options["check"] == 1
        self.calls.append(call)

    def take_findings(self) -> Any:
        launch = {
            "kernel": "lds_reduce",
            "code_object": self.number,
            "grid": [4, 1, 1],
            "workgroup_size": [256, 1, 1],
            "times": 1,
            "findings": self.pending,
        }
        launches = [launch] if self.pending else []
        taken = {
            "launches": launches,
            "host_findings": self.host,
            "dropped_launches": self.dropped[0],
            "dropped_findings": self.dropped[1],
        }
        self.pending, self.host = [], []
        return json.loads(json.dumps(taken))

    def code_object(self, number: int) -> bytes:
        assert number == self.number
        return IMAGE


class FakeDevice:
    """A runtime whose synchronisation can fail."""

    def __init__(self) -> None:
        self.exports = FakeExports()
        self.faults: list[HipError] = []
        self.hip = SimpleNamespace(hipDeviceSynchronize=lambda: (0,))

    def virtual_exports(self) -> FakeExports:
        return self.exports

    def check(self, call: str, result: Any) -> None:
        if self.faults:
            raise self.faults.pop(0)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    fake = FakeDevice()
    monkeypatch.setattr(runtime, "get", lambda: fake)
    return fake


def fault() -> HipError:
    return HipError("hipDeviceSynchronize", 700, "hipErrorIllegalAddress", "illegal address")


def test_options_hold_inside_the_block_only(device: FakeDevice) -> None:
    before = dict(device.exports.options)
    with amdattn.virtual.check(max_errors=3, late_loads=False, late_stores=False) as found:
        chosen = {"check": 1, "max_errors": 3, "late_loads": 0, "late_stores": 0}
        assert device.exports.options == chosen
    assert device.exports.options == before
    assert found.findings == [] and found.launches == {}


def test_findings_are_objects(device: FakeDevice) -> None:
    with amdattn.virtual.check(raise_on=None) as found:
        device.exports.pending = [finding(), ADVICE, COUNTED]
        device.exports.host = [finding(kind="unwritten_output", pc=None, offset=None)]
    assert [f.kind for f in found.errors] == ["unwritten_output", "use_before_wait"]
    assert [f.kind for f in found.advice] == ["over_wait"]
    assert [f.kind for f in found.counted] == ["range_swallowed"]
    error = found.errors[1]
    assert isinstance(error, Finding)
    assert (error.kernel, error.workgroup, error.count) == ("lds_reduce", (1, 2, 3), 4)
    assert found.code_object(error.code_object) == IMAGE
    with pytest.raises(AttributeError):
        error.kind = "trap"
    document = json.loads(found.to_json())
    assert [f["kind"] for f in document["findings"]] == [f.kind for f in found.findings]
    assert document["launches"][0]["grid"] == [4, 1, 1] and document["launches"][0]["times"] == 1


def test_the_text_names_everything(device: FakeDevice) -> None:
    with pytest.raises(CheckError) as caught, amdattn.virtual.check():
        device.exports.pending = [finding()]
    assert str(caught.value).splitlines() == [
        "1 finding of checked mode",
        "use_before_wait: kernel lds_reduce at 0x1a40 (+0x40): v_add_u32_e32 v1, v2, v3",
        "    v2 is used while the load that fills it is pending",
        "    where     workgroup (1, 2, 3), wave 1, lane 5: v2",
        "    producer  0x1a20: global_load_dword v2, v0, s[2:3]",
        "    seen      4 times",
    ]
    assert caught.value.findings[0].offset == 0x40
    assert isinstance(caught.value, amdattn.AmdattnError)


def test_advice_and_counts_do_not_raise(device: FakeDevice) -> None:
    with amdattn.virtual.check() as found:
        device.exports.pending = [ADVICE, COUNTED]
    assert len(found.findings) == 2 and found.errors == []


def test_many_findings_are_cut_short_in_the_text_only(device: FakeDevice) -> None:
    with pytest.raises(CheckError, match="12 findings") as caught, amdattn.virtual.check():
        device.exports.pending = [finding(pc=pc, offset=pc) for pc in range(0, 48, 4)]
    assert len(caught.value.findings) == 12
    assert str(caught.value).endswith("... and 2 more (findings)")


def test_the_same_defect_of_two_launches_is_one_finding(device: FakeDevice) -> None:
    with amdattn.virtual.check(raise_on=None) as found:
        device.exports.pending = [finding()]
        found.collect()
        assert found.errors[0].count == 4
        device.exports.pending = [finding(workgroup=[9, 9, 9])]
    assert [(f.count, f.workgroup) for f in found.errors] == [(8, (1, 2, 3))]
    assert list(found.launches.values()) == [2]


def test_a_fault_is_told_once(device: FakeDevice) -> None:
    illegal = finding(kind="illegal_address", where="0x10")
    with pytest.raises(CheckError, match="illegal_address") as caught, amdattn.virtual.check():
        device.exports.pending = [illegal]
        raise fault()
    assert isinstance(caught.value.__cause__, HipError)
    with pytest.raises(CheckError) as caught, amdattn.virtual.check():
        device.exports.pending = [illegal]
        device.faults = [fault()]
    assert isinstance(caught.value.__cause__, HipError)


def test_a_fault_is_collected(device: FakeDevice) -> None:
    with amdattn.virtual.check(raise_on=None) as found:
        device.exports.pending = [finding(kind="illegal_address")]
        raise fault()
    assert found.fault.name == "hipErrorIllegalAddress" and len(found.errors) == 1


@pytest.mark.parametrize("raise_on", ["error", None])
def test_a_fault_without_a_finding_is_raised(device: FakeDevice, raise_on: str | None) -> None:
    with pytest.raises(HipError), amdattn.virtual.check(raise_on=raise_on):
        raise fault()
    with pytest.raises(HipError), amdattn.virtual.check(raise_on=raise_on):
        device.faults = [fault()]
    with amdattn.virtual.check():  # and leaves nothing behind
        pass


def test_an_earlier_fault_is_not_the_blocks(device: FakeDevice) -> None:
    device.faults = [fault()]
    with pytest.raises(HipError), amdattn.virtual.check():
        pytest.fail("the block ran")
    assert device.exports.options["check"] == 0


def test_the_blocks_own_exception_wins(device: FakeDevice) -> None:
    with pytest.raises(KeyError) as caught, amdattn.virtual.check() as found:
        device.exports.pending = [finding()]
        raise KeyError("mine")
    assert len(found.errors) == 1
    assert "use_before_wait" in "".join(getattr(caught.value, "__notes__", ["use_before_wait"]))


def test_no_nesting(device: FakeDevice) -> None:
    with amdattn.virtual.check():
        with pytest.raises(RuntimeError, match="cannot be nested"), amdattn.virtual.check():
            pass
        assert device.exports.options["check"] == 1
    with amdattn.virtual.check():
        pass


def test_suppressions(device: FakeDevice) -> None:
    known = Suppression("lds_reduce", 0x40, "use_before_wait", "measured to be harmless")
    unused = Suppression("lds_reduce", 0x44, "lds_race", "gone")
    other = Suppression("lds_sum", 0x44, "lds_race", "never ran")
    with amdattn.virtual.check(suppressions=Suppressions([known, unused, other])) as found:
        device.exports.pending = [finding(), finding(producer_pc=0x1A24)]
    assert found.errors == [] and found.suppressed == {known: 8, unused: 0, other: 0}
    assert json.loads(found.to_json())["suppressions"][0]["reason"] == known.reason
    with (
        pytest.raises(CheckError) as caught,
        amdattn.virtual.check(suppressions=Suppressions([known, unused, other])),
    ):
        device.exports.pending = [finding(), finding(kind="hazard")]
    assert str(caught.value).splitlines()[-3:] == [
        "suppressed 4x: use_before_wait of lds_reduce at +0x40: measured to be harmless",
        "warning: unused suppression (no such finding): lds_race of lds_reduce at +0x44: gone",
        "warning: unused suppression (the kernel was not launched): "
        "lds_race of lds_sum at +0x44: never ran",
    ]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"raise_on": "advice"}, ValueError, "raise_on='advice' must be one of"),
        ({"max_errors": -1}, ValueError, "max_errors=-1 must be >= 0"),
        ({"max_errors": "many"}, TypeError, "max_errors='many' must be an int"),
        ({"suppressions": "nowhere.toml"}, FileNotFoundError, "nowhere.toml"),
    ],
)
def test_bad_arguments(
    device: FakeDevice, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        amdattn.virtual.check(**arguments)
    assert device.exports.options["check"] == 0


def test_a_gpu_has_no_checked_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = object.__new__(runtime.Runtime)
    gpu.choice = SimpleNamespace(kind="gpu")
    gpu.props = SimpleNamespace(name="MI300X")
    monkeypatch.setattr(runtime, "get", lambda: gpu)
    with pytest.raises(BindingError, match="a GPU is bound"):
        amdattn.virtual.check()


def test_every_finding_kind_of_the_library_is_known() -> None:
    import re

    header = ROOT / "virtual_device" / "check" / "finding.h"
    body = re.search(r"enum class FindingKind[^{]*\{(.*?)\};", header.read_text(), re.DOTALL)
    assert body is not None
    names = re.findall(r"^\s*k(\w+),", body.group(1), re.MULTILINE)
    snake = [re.sub(r"(?<=.)([A-Z])", r"_\1", name).lower() for name in names]
    assert (*snake, "order") == KINDS


def test_check_is_the_public_type(device: FakeDevice) -> None:
    assert isinstance(amdattn.virtual.check(), Check)


def test_findings_that_were_not_kept_are_told_and_fail(device: FakeDevice) -> None:
    device.exports.dropped = (3, 5)
    told = pytest.raises(CheckError, match="5 findings and 3 launches were more than")
    with told, amdattn.virtual.check():
        pass
    with amdattn.virtual.check(raise_on=None) as found:
        pass
    assert (found.as_dict()["dropped_launches"], found.as_dict()["dropped_findings"]) == (3, 5)
    assert found.log.num_launches == 3
    device.exports.dropped = (0, 0)
    with amdattn.virtual.check():
        pass
