"""A measurement under every reading, and the least ratio of two."""

from __future__ import annotations

import pytest

import amdattn
from amdattn.arch import readings
from amdattn.bench.inputs import CLASSES, NORMAL, Head, ScoreClass
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
    inputs = CLASSES["scores of sd 16"], NORMAL
    by_reading = each_reading(lambda: attention_readings.of_ours("rtz", inputs, (1024,)))
    wide, normal = by_reading["default"]
    assert (wide, normal) == ("amdattn, scores of sd 16", "amdattn, normal")
    found = {
        column: {name: of[column]["clk"] for name, of in by_reading.items()}
        for column in (wide, normal)
    }
    assert found[normal]["default"] < found[normal]["lost-slots-2"]
    assert found[normal]["default"] < found[normal]["slow-waits"]
    assert all(found[wide][name] > clk for name, clk in found[normal].items())
    loops = {"rtz": found | {"aiter": {name: 2 * clk for name, clk in found[normal].items()}}}
    assert attention_readings.least(loops, "aiter", "rtz", normal) == (2.0, min(found[normal]))
    of_wide = attention_readings.least(loops, "aiter", "rtz")
    assert of_wide and of_wide.ratio < 2
    assert attention_readings.least(loops, "moonmath", "rtz") is None
    table = attention_readings.markdown(loops).splitlines()
    assert table[0] == f"| reading | {wide}, rtz | {normal}, rtz | aiter, rtz |"
    assert table[-1] == f"| least |  |  | {of_wide}; 2.00 ({min(found[normal])}) |"
    (tmp_path / "loops.json").write_text("{}")
    with pytest.raises(ValueError, match=r"was not written by .*attention_readings --json"):
        attention_readings.read(tmp_path / "loops.json")


def test_heads_that_differ_have_a_mean_and_a_slowest_one() -> None:
    one = Head(sd=1), Head(sd=16)
    inputs = ScoreClass("two kinds", one)
    found = attention_readings.of_ours("rtz", (inputs,), (1024,))
    mean, slowest = (found[name] for name in found)
    assert list(found) == [
        "amdattn, two kinds, mean of 2 heads",
        "amdattn, two kinds, slowest head",
    ]
    assert (
        mean["clk"] < slowest["clk"] and mean["us, energies fitted"] < slowest["us, nothing fitted"]
    )


def test_a_loop_is_less_than_a_workgroup() -> None:
    """What is outside of it is not in it, and no time is estimated."""
    whole, loop = (
        attention_readings.of_ours("rtz", (NORMAL,), keys)["amdattn, normal"]
        for keys in ((1024,), (1024, 2048))
    )
    assert set(loop) == {"clk"} and loop["clk"] < whole["clk"]


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
