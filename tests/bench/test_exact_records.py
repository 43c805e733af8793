"""Records, traces and tables of made-up launches, whose figures are worked out by hand."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from amdattn.bench import micro_launch, run, trace
from amdattn.bench.clocks import clocks
from amdattn.bench.kernels import Launch
from amdattn.bench.modelled import of_mean_xcd, simulated
from amdattn.bench.record import MODELLED, Record, Times
from amdattn.device import profiling
from amdattn.energy import Activity, estimate, mi300x

BLANK = Record("attention", "a shape", {}, "amdattn", "rtne", MODELLED)
RAW: dict[str, Any] = {
    "kernel": "k",
    "arch": "gfx942",
    "readings": {},
    "clock_ghz": 1.2,
    "write_back_clk": 40,
    "cycles": 2400,
    "workgroups": 80,
    "simulated_workgroups": 10,
    "simulated_cus": 5,
    "resident_per_cu": 2,
    "instructions": 900,
    "mfma_use": 0.5,
    "valu_use": 0.25,
    "lds_use": 0.125,
    **{f"{unit}_clk": 0.0 for unit in profiling._UNITS},
    **{f"{level}_bytes": 0 for level in profiling._LEVELS},
    "mfma_clk": 9600.0,
    "valu_clk": 4800.0,
    "lds_clk": 6000.0,
    "lds_address_clk": 1000.0,
    "wave_clk": 20000.0,
    "l1_bytes": 1000,
    "l2_bytes": 500,
    "l2_write_bytes": 100,
    "mall_bytes": 300,
    "hbm_bytes": 210000,
    "hbm_write_bytes": 105000,
    "sites": [
        {"offset": 0, "text": "v_mfma_f32_16x16x16_bf16 a, b", "issued": 30, "matrix": 4000},
        {"offset": 8, "text": "s_waitcnt vmcnt(0)", "issued": 10, "waitcnt": 5000, "lds": 1000},
        {"offset": 12, "text": "s_endpgm", "issued": 10},
    ],
    "times": [[0, 0, 0, 900], [8, 1, 14, 1000]],
    # start, end, SIMD, wave, track, offset
    "events": [
        [1200, 2400, 2, 7, 0, 0],
        [1200, 1200, 3, 7, 1, 0],
        [0, 60, 1, 4, 2, 8],
        [0, 60, 1, 4, 3, 8],
        [0, 60, 1, 4, 4, 99],
    ],
}
PROFILE = profiling.read_profile(RAW)
LAUNCH = Launch(b"", "symbol", (8, 10, 1), (256, 1, 1), b"")


def test_a_profile_of_what_the_library_says() -> None:
    assert (PROFILE.cycles, PROFILE.workgroups, PROFILE.simulated_workgroups) == (2400, 80, 10)
    assert (PROFILE.mfma_use, PROFILE.valu_use, PROFILE.lds_use) == (0.5, 0.25, 0.125)
    assert PROFILE.bytes["hbm_write"] == 105000 and PROFILE.clk["lds_address"] == 1000
    assert PROFILE.sites[1].stalls == {"waitcnt": 5000, "lds": 1000}
    assert PROFILE.times[1] == profiling.WorkgroupTime(8, 1, 14, 1000)
    assert PROFILE.events[0] == profiling.TraceEvent(1200, 2400, 2, 7, "wave", 0)
    shares = {name: share for name, share in PROFILE.stalls.items() if share}
    assert shares == {"matrix": 0.2, "waitcnt": 0.25, "lds": 0.05}
    assert PROFILE.microseconds() == pytest.approx(2.0)
    assert PROFILE.microseconds(2.4) == pytest.approx(1.0)


def test_a_record_of_a_launch() -> None:
    record = run.modelled_record(BLANK, simulated(LAUNCH, PROFILE))
    assert (record.kernel, record.cycles) == ("symbol", 2400)
    assert record.times.at_peak_us == pytest.approx(2400 / 2100)
    assert record.times.at_sustained_us == pytest.approx(2.0)
    # Of 5 CUs in 2400 clk: 4 SIMDs, 2 ports of the LDS; of 304 CUs, an eighth was simulated.
    assert record.use["mfma"] == pytest.approx(9600 / (4 * 2400 * 5))
    assert record.use["valu"] == pytest.approx(4800 / (4 * 2400 * 5))
    assert record.use["lds"] == pytest.approx(6000 / (2 * 2400 * 5))
    assert record.use["mfma_device"] == pytest.approx(8 * 9600 / (4 * 2400 * 304))
    assert record.bytes["l1"] == 8000 and record.bytes["hbm"] == 1680000
    assert (record.workgroups, record.residents, record.rounds) == (80, 2, 1)
    times = {"peak_ghz": 2.1, "sustained_ghz": 1.2, "launch_us": 2.7}
    assert record.clocks == times | {"gemm_tflops": 708}
    assert (record.reading, record.sampled) == ("default", {})
    assert [site["share"] for site in record.hottest] == [0.3, 0.2, 0.0]
    assert [site["reason"] for site in record.hottest] == ["waitcnt", "matrix", ""]
    assert record.hottest[0] == {
        "offset": 8,
        "text": "s_waitcnt vmcnt(0)",
        "issued": 10,
        "share": 0.3,
        "reason": "waitcnt",
    }
    energy = record.energy
    flops = 30 * 2 * 16**3 * 8
    assert energy["matrix_flops"] == {"16x16x16": flops}
    assert energy["cycles"] == 2400 and energy["clock_ghz"] == 2.1
    assert energy["microseconds"] == pytest.approx(2400 / 2100)
    assert energy["joules"] == pytest.approx(sum(energy["watts"].values()) * 2400 / 2.1e9)
    per = energy["per_matrix_kflop"]
    slots = (4800 / 4 - 30) * 8
    assert per["vector_slots"] == pytest.approx(slots / flops * 1000)
    assert per["lds_bytes"] == pytest.approx(7000 * 64 * 8 / flops * 1000)
    assert per["l1_bytes"] == pytest.approx(8000 / flops * 1000)
    assert per["l2_bytes"] == pytest.approx(4800 / flops * 1000)
    assert per["hbm_bytes"] == pytest.approx(315000 * 8 / flops * 1000)
    # HBM's 2.52 MB at 4200 bytes/ns take less than the cycles at 2.1 GHz.
    assert record.times.estimated_us == pytest.approx(2400 / 2100)
    slower = dataclasses.replace(clocks("gfx942"), hbm_bytes_per_ns=630)
    assert run.estimated_us(energy, record.bytes, slower) == pytest.approx(4.0)
    assert run.estimated_us({"refused": "why"}, record.bytes, slower) is None


def test_more_workgroups_than_fit_are_rounds() -> None:
    launch = dataclasses.replace(LAUNCH, grid=(608, 2, 1))
    profile = dataclasses.replace(PROFILE, simulated_workgroups=152)
    assert run.modelled_record(BLANK, simulated(launch, profile)).rounds == 2
    launch = dataclasses.replace(LAUNCH, grid=(1217, 1, 1))
    assert run.modelled_record(BLANK, simulated(launch, profile)).rounds == 3


def test_what_stalls_most_comes_first_and_not_all_of_it() -> None:
    sites = tuple(profiling.Site(i, f"i{i}", 1, {"lds": i % 20}) for i in range(40))
    hottest = run._hottest(dataclasses.replace(PROFILE, sites=sites))
    assert [site["offset"] for site in hottest[:4]] == [19, 39, 18, 38] and len(hottest) == 12


def test_totals_of_the_mean_xcd() -> None:
    found = of_mean_xcd(simulated(LAUNCH, PROFILE), clocks("gfx942"), 80, 0.5)
    assert (found.cus, found.part, found.instructions) == (10, 1 / 8, 450)
    assert (found.clk["mfma"], found.bytes["l1"]) == (4800, 500)
    assert found.flops == {"16x16x16": 30 * 2 * 16**3 / 2}
    assert of_mean_xcd(simulated(LAUNCH, PROFILE), clocks("gfx942"), 1000, 1).cus == 38


@pytest.mark.parametrize("launches", [0, 1, 3])
def test_an_estimate_settles_at_the_clock_that_it_states(launches: int) -> None:
    """Heavier at a lower clock: 1.5 GHz asks for 1.8, that for 1.9, which is near enough."""
    given, asked = [], {1500: 1.8, 1800: 1.9, 1900: 1.91}
    record = dataclasses.replace(
        BLANK,
        launches=[{}] * launches,
        clocks={"launch_us": 2.7, "sustained_ghz": 1.2},
        energy={"clock_ghz": 1.5},
        times=Times(estimated_us=1.0),
    )

    def model(mhz: int) -> Any:
        given.append(mhz)
        return SimpleNamespace(cycles=3600.0 * mhz, ghz=asked[mhz])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "energy", lambda of: {"clock_ghz": of.ghz, "joules": 5.0})
        found = run.settled(record, model)
        near = dataclasses.replace(record, energy={"clock_ghz": 1.223})
        assert run.settled(near, model) is near
    assert given == [1500, 1800, 1900]
    floors = 2.7 * max(launches - 1, 0)
    assert found.times.estimated_us == pytest.approx(floors + 3600)
    assert found.energy == {"clock_ghz": 1.9, "joules": 5.0, "microseconds": pytest.approx(3600)}


def test_measured_times_are_quantiles_in_microseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    def do_bench(call: Any, quantiles: Any) -> list[float]:
        assert quantiles == (0.1, 0.5, 0.9)
        call()
        return [0.25, 0.5, 2.0]

    called = []
    monkeypatch.setattr(run, "do_bench", do_bench)
    monkeypatch.setattr(run, "_readable_clocks", lambda: {"stated_peak_ghz": 2.1})
    found = run.timed_record(BLANK, [LAUNCH, LAUNCH], lambda: called.append(1))
    assert found.times == Times(median_us=500, low_us=250, high_us=2000) and called == [1]
    assert (found.kernel, found.workgroups) == ("symbol + symbol", 160)
    assert found.clocks == {"stated_peak_ghz": 2.1} and " + " not in found.sha256


def test_a_trace(tmp_path: Path) -> None:
    assert trace.write_trace(tmp_path / "t.json", PROFILE) == 5
    document = json.loads((tmp_path / "t.json").read_text())
    assert document["displayTimeUnit"] == "ns"
    assert document["otherData"] == {
        "kernel": "k",
        "origin": "modelled at 1.2 GHz, not measured",
    }
    names = [event for event in document["traceEvents"] if event["ph"] == "M"]
    assert [(e["pid"], e.get("tid"), e["args"]["name"]) for e in names] == [
        (1, None, "waves of CU 0"),
        (2, None, "units of CU 0"),
        (1, 7, "wave 7 (SIMD 2)"),
        (2, 5, "SIMD 1 vector"),
        (2, 6, "SIMD 1 lds"),
        (2, 7, "SIMD 1 memory"),
        (2, 12, "SIMD 3 matrix"),
    ]
    wave, matrix, *_, memory = [e for e in document["traceEvents"] if e["ph"] == "X"]
    assert wave == {
        "name": "v_mfma_f32_16x16x16_bf16",
        "cat": "wave",
        "ph": "X",
        "pid": 1,
        "tid": 7,
        "ts": pytest.approx(1.0),  # us of 1200 clk at 1.2 GHz
        "dur": pytest.approx(1.0),
        "args": {
            "instruction": "v_mfma_f32_16x16x16_bf16 a, b",
            "offset": "+0x0",
            "wave": 7,
            "start_clk": 1200,
            "end_clk": 2400,
        },
    }
    assert matrix["dur"] == pytest.approx(1 / 1200) and matrix["tid"] == 12
    assert (memory["name"], memory["args"]["offset"]) == ("memory", "+0x63")


@pytest.mark.parametrize(
    ("part", "count", "watts"),
    [  # 10^12 of them in a second at 2.1 GHz, with energies that grow with the root of the clock
        ("lds", {"lds_bytes": 1e12}, 8.5 / 8 * 2.1**0.5),
        ("l1", {"l1_bytes": 1e12}, 8.5 / 8 * 2.1**0.5),
        ("l2", {"l2_bytes": 1e12}, 14 / 8 * 2.1**0.5),
        ("hbm", {"hbm_bytes": 1e12}, 100.0),
        ("vector", {"vector_slots": 1e11}, 128 * 3.5 * 0.5 / 10 * 2.1**0.5),
        ("matrix", {"matrix_flops": {"32x32x8": 1e13}}, 5.47 * 1.26 * 2.1**0.5),
        ("matrix", {"matrix_flops": {"32x32x4_2b": 1e13}}, 5.47 * 1.26 * 2.1**0.5),
        ("idle", {}, 200.0),
        ("clock_tree", {}, 94 * 2.1**1.5),
    ],
)
def test_watts_of_each_consumer(part: str, count: dict[str, Any], watts: float) -> None:
    found = estimate(Activity(2.1e9, **count))
    assert found.clock_ghz == 2.1 and found.seconds == pytest.approx(1.0)
    assert found.watts[part] == pytest.approx(watts, rel=1e-3)
    others = {"idle", "clock_tree", part}
    assert sum(w for name, w in found.watts.items() if name not in others) == 0


def test_no_clock_is_lower_than_a_tenth_of_a_ghz() -> None:
    found = estimate(Activity(2.1e9, hbm_bytes=1e18))
    assert found.clock_ghz == pytest.approx(0.1, rel=1e-6)
    assert mi300x().cap_watts == 750


def test_activities_one_after_the_other() -> None:
    one = Activity(1.0, {"16x16x16": 2.0}, 3.0, 4.0, 5.0, 6.0, 7.0)
    other = Activity(10.0, {"16x16x16": 20.0, "32x32x8": 1.0}, 30.0, 40.0, 50.0, 60.0, 70.0)
    both = Activity(11.0, {"16x16x16": 22.0, "32x32x8": 1.0}, 33.0, 44.0, 55.0, 66.0, 77.0)
    assert one + other == both


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"schema": 0}, "schema 0 is not"),
        ({"schema": 99}, "schema 99 is not"),
        ({"schema": None}, "does not hold the micro kernels"),
        ({"file": "none"}, "does not hold the micro kernels"),
        ({"sha256": "0" * 64}, "do not have their recorded sha256"),
    ],
)
def test_micro_kernels_that_are_not_what_was_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], why: str
) -> None:
    from amdattn import paths

    shipped = paths.hsaco_dir() / "micro"
    manifest = json.loads((shipped / "gfx942.json").read_text())
    folder = tmp_path / "micro"
    folder.mkdir()
    (folder / manifest["file"]).write_bytes((shipped / manifest["file"]).read_bytes())
    (folder / "gfx942.json").write_text(json.dumps(manifest | change))
    monkeypatch.setattr(micro_launch, "paths", SimpleNamespace(hsaco_dir=lambda: tmp_path))
    with pytest.raises(Exception, match=why):
        micro_launch.image.__wrapped__("gfx942")
    (folder / "gfx942.json").write_text(json.dumps(manifest))
    assert micro_launch.image.__wrapped__("gfx942") == (shipped / manifest["file"]).read_bytes()
