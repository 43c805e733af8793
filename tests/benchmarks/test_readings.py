"""A measurement under every reading, and the least ratio of two."""

from __future__ import annotations

import pytest

import amdattn
from amdattn.arch import readings
from benchmarks import attention_readings, decode_peers
from benchmarks.decode_shapes import Floor, Shape
from benchmarks.performance_model.micro_kernel import profile
from benchmarks.readings import OfReading, each_reading, least_ratio


def test_each_reading_of_the_bound_device() -> None:
    found = each_reading(lambda: profile("s_nop 0").reading)
    assert list(found) == list(found.values()) == list(readings.names("gfx942"))
    assert profile("s_nop 0").reading == readings.DEFAULT


def test_the_least_ratio_and_its_reading() -> None:
    ours, theirs = {"default": 2.0, "slow-waits": 4.0}, {"default": 3.0, "slow-waits": 5.0}
    found = least_ratio(theirs, ours)
    assert found == OfReading(1.25, "slow-waits") and str(found) == "1.25 (slow-waits)"


def test_loops_of_ours(tmp_path) -> None:
    """Those of a kernel that leans on one lost slot, by the same code as the tables."""
    found = each_reading(lambda: attention_readings.clk_of_ours("rtz"))
    assert found["default"] < found["lost-slots-2"] and found["default"] < found["slow-waits"]
    loops = {"rtz": {"amdattn": found, "aiter": {name: 2 * clk for name, clk in found.items()}}}
    assert attention_readings.least(loops, "aiter", "rtz") == (2.0, min(found))
    assert attention_readings.least(loops, "moonmath", "rtz") is None
    table = attention_readings.markdown(loops).splitlines()
    assert table[0] == "| reading | amdattn rtz | aiter rtz |"
    assert table[-1] == f"| least |  | 2.00 ({min(found)}) |"
    (tmp_path / "loops.json").write_text("{}")
    with pytest.raises(ValueError, match=r"was not written by .*attention_readings --json"):
        attention_readings.read(tmp_path / "loops.json")


def test_rows_of_peers_have_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under hbm-channels ours takes twice as long, the peer does not."""

    def us(*of: object, **options: object) -> float:
        exports = amdattn.device.runtime.get().virtual_exports()
        return 20.0 if exports._options["hbm_channels"] else 10.0

    class Peers(decode_peers.Peers):
        def fastest(self, name: str, shape: Shape) -> tuple[float, str]:
            return 15.0, "a"

    monkeypatch.setattr(decode_peers, "ours_us", us)
    peers = Peers({"AITER": lambda shape: iter(())}, 2100)
    row = decode_peers.run(
        Shape(1, 1024, 8, 1), peers, Floor(52428.8, 2100), "bfloat16", with_readings=True
    )
    assert row["us"] == 10.0 and row["peers"]["AITER"]["least"] == (0.75, "hbm-channels")
    assert decode_peers.cells(row, ["AITER"], with_readings=True)[-1] == "0.75 (hbm-channels)"
    assert len(decode_peers.heads(["AITER"], with_readings=True)) == 8
