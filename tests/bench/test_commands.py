"""amdattn bench and amdattn compare, as a user types them."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import xml.etree.ElementTree
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import amdattn
from amdattn import cli
from amdattn.bench import plots
from amdattn.bench.plots import readable
from amdattn.device.profiling import STALLS
from tests.bench import test_listed_tables as listed
from tests.support.gpu import compiled

SIZES = ("-b", 1, "-hq", 2, "-hkv", 1, "-sq", 200)
OBJECT_ARGS = (
    *("--grid", 4, "--workgroup", "256,1"),
    *("--args", "in in int32[4, 256] low=0 high=1000; out out int32[4]"),
)


class Command:
    """Runs amdattn in this process: binding a device takes a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._patch, self._capsys = monkeypatch, capsys
        monkeypatch.setattr("amdattn.cli.output.stdout._width", 240)

    def __call__(self, *args: object) -> tuple[int, str, str]:
        """Exit code, stdout and stderr."""
        self._patch.setattr(sys, "argv", ["amdattn", *map(str, args)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, errors = self._capsys.readouterr()
        return int(caught.value.code or 0), out, " ".join(errors.split())

    def json(self, *args: object) -> dict[str, Any]:
        """The document of `bench attention`."""
        status, out, errors = self("bench", "attention", *SIZES, *args, "--json")
        assert status == 0 and not errors, errors
        return json.loads(out)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@pytest.fixture
def code_object(tmp_path: Path) -> Path:
    file = tmp_path / "reduce.hsaco"
    file.write_bytes(compiled("lds_reduce"))
    return file


def test_as_a_process() -> None:
    command = [sys.executable, "-m", "amdattn.cli", "bench", "attention", *map(str, SIZES)]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    assert "modelled, not measured" in child.stdout


def test_table(run: Command) -> None:
    status, out, _ = run("bench", "attention", *SIZES, "--round-mode", "all", "--details")
    assert status == 0
    for words in (
        "b1 h2/1 s200 d128",
        "modelled, not measured: cycles are converted to time at the clock that an",
        "at a constant 1.2 GHz",
        "TFLOP/s and ratios use the first time, because the launches are short",
        *("ms est.", "ms 1.2 GHz", "MFMA/CU", "MFMA/all"),
        "At the peak clock, 2.1 GHz, the same cycles give a lower bound",
        "costs 2.7 us for its launch, which no number here includes",
        "amdattn rtz",
        "bytes by level",
        "s_waitcnt",
    ):
        assert words in out, words


def test_json(run: Command) -> None:
    facts = run.json()
    assert facts["versions"]["amdattn"] == amdattn.__version__ and facts["versions"]["model"]
    assert facts["device"]["virtual"] is True and facts["device"]["cus"] == 304
    (row,) = facts["records"]
    assert row["origin"] == "modelled" and row["peer"] == "amdattn"
    hashes = {kernel.sha256 for kernel in amdattn.kernels()}
    assert set(row["sha256"].split(" + ")) <= hashes
    clocks = {"peak_ghz": 2.1, "sustained_ghz": 1.2, "launch_us": 2.7}
    assert row["clocks"] == clocks | {"gemm_tflops": 708}
    between = 2.7 * max(len(row["launches"]) - 1, 0)
    assert row["times"]["at_sustained_us"] == pytest.approx(row["cycles"] / 1200 + between)
    assert row["times"]["at_peak_us"] == pytest.approx(row["cycles"] / 2100 + between)
    assert row["times"]["median_us"] is None
    flops = 4 * 2 * 200 * 200 * 128
    assert row["flops"] == flops
    expected = flops / row["times"]["at_sustained_us"] / 1e6
    assert row["tflops"]["at_sustained"] == pytest.approx(expected)
    assert set(row["stalls"]) == set(STALLS) and 0 < sum(row["stalls"].values()) < 1
    assert all(0 < share < 1 for share in row["use"].values())
    # Few workgroups, so few CUs are used: the device hardly is.
    assert row["use"]["mfma_device"] < row["use"]["mfma"] / 20
    # At most of the device's power: it runs at its peak clock, and memory takes more clk there.
    assert row["energy"]["clock_ghz"] == pytest.approx(2.1)
    assert row["energy"]["cycles"] > row["cycles"]
    times = row["times"]
    assert times["at_peak_us"] < times["estimated_us"] < times["at_sustained_us"]
    assert times["estimated_us"] == pytest.approx(row["energy"]["cycles"] / 2100 + between)
    assert set(row["bytes"]) == {
        *("l1", "l2", "mall", "hbm"),
        *("l2_write", "mall_write", "hbm_write"),
    }
    first = (row["launches"] or [row])[0]
    assert first["workgroups"] >= 2 and first["rounds"] == 1 and first["residents"] == 2
    assert not row["sampled"]


def test_clock(run: Command) -> None:
    """Another clock changes latencies beyond the L2, and the time."""
    (slow,), (fast,) = (run.json("--clock-mhz", mhz)["records"] for mhz in (1000, 2000))
    assert slow["clocks"]["sustained_ghz"] == 1.0 and fast["clocks"]["sustained_ghz"] == 2.0
    assert slow["cycles"] < fast["cycles"]
    assert slow["times"]["at_sustained_us"] > fast["times"]["at_sustained_us"]


def test_layout(run: Command) -> None:
    (row,) = run.json("--layout", "bhsd")["records"]
    assert row["shape"].endswith("bhsd")


def test_csv_and_markdown(run: Command, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    status, out, _ = run("bench", "attention", *SIZES, "--csv", file, "--markdown")
    assert status == 0
    lines = out.splitlines()
    assert lines[0].startswith("| shape | kernel |") and lines[1].startswith("|---")
    assert lines[2].startswith("| b1 h2/1 s200 d128 | amdattn rtne |")
    with open(file, newline="") as rows:
        (row,) = csv.DictReader(rows)
    assert row["origin"] == "modelled" and float(row["times_at_sustained_us"]) > 0
    assert float(row["clocks_sustained_ghz"]) == 1.2 and row["is_sampled"] == "False"


def test_trace(run: Command, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    assert run("bench", "attention", *SIZES, "--trace", file)[0] == 0
    document = json.loads(file.read_text())
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert "modelled" in document["otherData"]["origin"]
    assert {event["cat"] for event in events} == {"wave", "matrix", "vector", "lds", "memory"}
    named = {
        (event["pid"], event["tid"])
        for event in document["traceEvents"]
        if event["name"] == "thread_name"
    }
    assert {(event["pid"], event["tid"]) for event in events} == named
    assert any(event["name"].startswith("v_mfma") for event in events if event["cat"] == "matrix")
    assert all(event["dur"] > 0 and event["args"]["instruction"] for event in events)


@pytest.mark.parametrize("kind", ["roofline", "timeline", "stalls", "sweep"])
def test_plot(run: Command, tmp_path: Path, kind: str) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / f"{kind}.svg"
    status, _, errors = run("bench", "attention", *SIZES, "--plot", kind, file)
    assert status == 0, errors
    assert xml.etree.ElementTree.parse(file).getroot().tag.endswith("svg")


def test_a_roofline_has_the_rates_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the estimated clock where that leads, and points are named by their shapes."""
    pytest.importorskip("matplotlib")
    short, long = listed.SHORT, listed.LONG
    for record in (short, long):
        (axes,) = plots._roofline([record]).axes
        ((_, y),) = axes.collections[0].get_offsets()
        assert y == pytest.approx(record.tflops(record.us(record.short)))
        assert [text.get_text() for text in axes.texts] == [record.shape]
    with pytest.raises(plots.PlotError, match="needs a kernel whose operations are known"):
        plots._roofline([dataclasses.replace(short, flops=0)])


def test_a_timeline_ends_with_its_kernel_and_counts_what_is_under_way() -> None:
    pytest.importorskip("matplotlib")
    memory = [event(start, start + 400) for start in range(1000, 1300, 100)]
    (axes,) = plots._timeline(SimpleNamespace(events=memory, kernel="k", clock_ghz=1.2)).axes
    assert axes.get_xlim() == (0, 600)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["SIMD 0  memory (up to 3)"]
    heights = {0.4 - float(y) for y in axes.collections[0].get_paths()[0].vertices[:, 1]}
    assert sorted(round(height / 0.8 * 3) for height in heights) == [0, 1, 2, 3]


def event(start: int, end: int) -> SimpleNamespace:
    return SimpleNamespace(track="memory", simd=0, wave=0, start=start, end=end)


def test_tuning_says_what_it_will_do(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is timed: here nothing is."""

    def stop(*_: object, **__: object) -> None:
        raise ValueError("timing begins")

    monkeypatch.setattr("amdattn.tuning.tune", stop)
    for line in (("attention",), ("gemm", "-m", 4, "-n", 64, "-k", 64)):
        _, _, errors = run("tune", *line)
        assert re.search(
            r"\d+ choices, each simulated on one XCD: about \d+ (s|minutes) at most.*begins",
            errors,
        )


def test_several_plots_in_one_command(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of one run; without matplotlib, whose part is tested above."""
    drawn: list[tuple[str, Path]] = []
    monkeypatch.setattr("amdattn.bench.plots.check_request", lambda kind, path: None)
    monkeypatch.setattr(
        "amdattn.bench.plots.plot", lambda kind, path, *_: drawn.append((kind, path))
    )
    plots = ("--plot", "stalls", "a.svg", "--plot=timeline=b.png", "--plot", "roofline", "c.svg")
    status, _, errors = run("bench", "gemm", "-m", 4, "-n", 64, "-k", 64, *plots)
    assert status == 0, errors
    kinds = {"stalls": "a.svg", "timeline": "b.png", "roofline": "c.svg"}
    assert drawn == [(kind, Path(file)) for kind, file in kinds.items()]


def test_pictures_of_the_model_on_a_gpu(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error before anything is measured."""
    monkeypatch.setattr("amdattn.bench.run.is_virtual", lambda: False)
    monkeypatch.setattr("amdattn.bench.plots.check_request", lambda kind, path: None)
    for option in (("--plot", "stalls", tmp_path / "a.svg"), ("--trace", tmp_path / "t.json")):
        status, _, errors = run("bench", "gemm", *option)
        assert status == 2 and "needs the virtual device; a GPU is bound" in errors


def test_symbols_in_pictures() -> None:
    assert readable("_ZN5aiter24fmha_fwd_hd128_bf16_rtneE") == "aiter::fmha_fwd_hd128_bf16_rtne"
    for symbol in ("attn_fwd", "_ZN3abcIiEE", "_ZNE", ""):
        assert readable(symbol) == symbol


def test_peer_object(run: Command, code_object: Path) -> None:
    facts = run.json("--peer", f"object={code_object}", *OBJECT_ARGS)
    assert [row["peer"] for row in facts["records"]] == ["amdattn", "object=reduce.hsaco"]


def test_objects(run: Command, code_object: Path, tmp_path: Path) -> None:
    """Kernels of one's own alone: no product's or attention's figures, and always the details."""
    other = tmp_path / "other.hsaco"
    other.write_bytes(code_object.read_bytes())
    status, out, errors = run("bench", "object", code_object, other, *OBJECT_ARGS, "--json")
    assert status == 0, errors
    rows = json.loads(out)["records"]
    assert [row["peer"] for row in rows] == ["object=reduce.hsaco", "object=other.hsaco"]
    for row in rows:
        assert row["operation"] == "object" and row["kernel"] == "lds_reduce" and row["cycles"] > 0
        assert row["workgroups"] == 4 and not row["flops"]
    status, out, errors = run("bench", "object", code_object, *OBJECT_ARGS)
    assert status == 0 and "HBM GB/s" in out and "TFLOP/s" not in out, errors
    check_details(out)
    assert "No matrix instruction is issued." in out
    status, _, errors = run("bench", "object", code_object, "--workgroup", 256)
    assert status == 2 and "--grid" in errors


@pytest.mark.parametrize(
    "problem",
    [
        ("gemm", "-m", 4, "-n", 64, "-k", 64),
        ("rms_norm", "--rows", 2, "--columns", 64),
        ("decode", "-hq", 2, "-skv", 64),
    ],
    ids=lambda problem: problem[0],
)
def test_details(run: Command, problem: tuple[object, ...]) -> None:
    assert "share of wave lifetime" not in run("bench", *problem)[1]
    status, out, errors = run("bench", *problem, "--details")
    assert status == 0, errors
    check_details(out)


def check_details(text: str) -> None:
    """Stalls add up, bytes have rates, and MFMA/all follows from MFMA/CU."""
    (lines,) = re.findall(r"stalls \(modelled\)(.*?)└", text, re.S)
    shares = {row[0]: float(row[1]) for row in re.findall(r"│ ([\w, ]+?) +│ ([\d.]+)%", lines)}
    assert shares.pop("all") == pytest.approx(100)
    assert sum(shares.values()) == pytest.approx(100, abs=0.05 * len(shares))
    assert set(shares) == {"issue, no stall", *STALLS}
    assert re.search(r"│ hbm +│ [\d,]+ +│ [\d,]+ +│", text)
    found = re.search(r"MFMA/CU, ([\d.]+)% of the cycles .* times ([\d.]+)% .* ([\d.]+)%", text)
    if found:
        of_cu, of_device, product = map(float, found.groups())
        assert product == pytest.approx(of_cu * of_device / 100, abs=0.1)


def test_gemm(run: Command, code_object: Path) -> None:
    """The package's own kernels, as gemm_nt would run them, at each m."""
    shape = ("-m", 4, "-n", 256, "-k", 512, "--bias", "--dtype", "float16")
    status, out, errors = run("bench", "gemm", *shape, "-m", 40, "--json")
    assert status == 0, errors
    rows = json.loads(out)["records"]
    assert [row["shape"] for row in rows] == [f"m{m} n256 k512 float16 bias" for m in (4, 40)]
    for m, row in zip((4, 40), rows, strict=True):
        plan = amdattn.plan_gemm(m, 256, 512, device="MI300X", bias=True, dtype="float16")
        assert row["kernel"] == plan.kernel.symbol and row["sha256"] == plan.kernel.sha256
        assert row["peer"] == "amdattn" and row["flops"] == 2 * m * 256 * 512
        assert row["origin"] == "modelled" and row["workgroups"] == plan.launches[0].num_workgroups
        times = row["times"]
        assert 0 < times["at_peak_us"] <= times["estimated_us"] < times["at_sustained_us"]
        # b is read at least once.
        assert row["bytes"]["hbm"] >= 256 * 512 * 2
    assert rows[0]["cycles"] < rows[1]["cycles"]

    peer = ("--peer", f"object={code_object}", *OBJECT_ARGS)
    status, out, errors = run("bench", "gemm", "-m", 4, "-n", 64, "-k", 64, *peer)
    assert status == 0 and "us est." in out and "vs first" in out, errors
    assert "m4 n64 k64" in out and "object=reduce.hsaco" in out
    status, _, errors = run("bench", "gemm", "-m", 4, "-m", 8, *peer)
    assert (
        status == 2
        and "--m is given 2 times; with --peer object=FILE it must be given once" in errors
    )


def test_gemm_measured(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path of a GPU."""
    monkeypatch.setattr("amdattn.bench.planned.is_virtual", lambda: False)
    status, out, errors = run("bench", "gemm", "-m", 1, "-n", 64, "-k", 64, "--json")
    assert status == 0, errors
    (row,) = json.loads(out)["records"]
    times = row["times"]
    assert row["origin"] == "measured" and row["cycles"] is None
    assert 0 < times["low_us"] <= times["median_us"] <= times["high_us"]


def test_shapes_of_attention(run: Command) -> None:
    options = ("-dv", 64, "--window-size", 60, 0, "--sinks")
    (row,) = run.json(*options)["records"]
    assert row["shape"] == "b1 h2/1 s200 d128/64 window 60/0 sinks"


def test_compare(run: Command, tmp_path: Path) -> None:
    before, after = tmp_path / "a.json", tmp_path / "b.json"
    document = run.json()
    before.write_text(json.dumps(document))
    row = document["records"][0]
    row["times"]["estimated_us"] *= 1.25  # a short launch
    after.write_text(json.dumps(document))
    status, out, _ = run("compare", before, after)
    assert status == 0 and "1.2500" in out and "(same code)" in out and "modelled" in out
    assert run("compare", before, after, "--threshold", 0.2)[0] == 1
    assert run("compare", before, after, "--threshold", 0.3)[0] == 0
    status, out, _ = run("compare", before, after, "--json")
    assert status == 0 and json.loads(out)["geometric_mean"] == pytest.approx(1.25)

    for file, us in ((before, 2000.0), (after, 3000.0)):  # the sustained clock's leads
        slow = json.loads(file.read_text())
        slow["records"][0]["times"]["at_sustained_us"] = us
        file.write_text(json.dumps(slow))
    status, out, _ = run("compare", before, after, "--json")
    assert status == 0 and json.loads(out)["geometric_mean"] == pytest.approx(1.5)

    row["origin"], row["times"]["median_us"] = "measured", 100.0
    after.write_text(json.dumps(document))
    status, _, errors = run("compare", before, after)
    assert status == 2 and "is modelled in one file and measured in the other" in errors
    status, out, _ = run("compare", before, after, "--mixed")
    assert status == 0 and "modelled -> measured" in out

    after.write_text("{}")
    status, _, errors = run("compare", before, after)
    assert status == 2 and "was not written by `amdattn bench --json`" in errors


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("attention", "--peer", "triton"), "--peer='triton' must be object=FILE; benchmarks/att"),
        (("attention", "--peer", "object="), "--peer='object=' must be object=FILE"),
        (("attention", "--round-mode", "up"), "--round-mode='up' must be all, or some of"),
        (("attention", "--preset", "gpt"), "preset='gpt' must be one of moonmath"),
        (("attention", "--sampling", "no"), "sampling='no' must be one of auto, full, sampled"),
        (("attention", "--grid", "4"), "--grid needs --peer object=FILE"),
        (("attention", "--peer", "object=x"), "--peer object=FILE needs --grid"),
        (("attention", "--json", "--markdown"), "--json and --markdown cannot be combined"),
        (("attention", "--plot", "pie", "x.png"), "plot='pie' must be one of roofline"),
        (("attention", "--plot", "sweep", "x.gif"), "must end in one of .png, .svg"),
        (("attention", "-hq", 3, "-hkv", 2), "num_heads_kv=2 must divide num_heads_q=3"),
        (("gemm", "--peer", "triton"), "--peer='triton' must be object=FILE"),
        (("gemm", "-m", 0), "m=0 must be in 1.."),
        (("gemm", "--dtype", "float32"), "dtype=float32"),
        (("gemm", "--grid", "4"), "--grid needs --peer object=FILE"),
    ],
)
def test_malformed(run: Command, args: tuple[object, ...], message: str) -> None:
    status, _, errors = run("bench", *args)
    assert status == 2 and message in errors, errors


def test_progress_and_json() -> None:
    """A terminal sees the bar with the time left on stderr, and stdout has JSON alone."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-m", "amdattn.cli", "bench", "attention", *map(str, SIZES)]
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    child = subprocess.run(
        [*command, "--json"],
        stdout=subprocess.PIPE,
        stderr=follower,
        env=environment | {"TERM": "xterm"},
        check=False,
    )
    os.close(follower)
    shown = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while part := os.read(leader, 4096):
            shown += part
    os.close(leader)
    assert child.returncode == 0 and json.loads(child.stdout)["records"]
    assert b"1 rows" in shown and b"left" in shown and b"amdattn rtne b1 h2/1 s200 d128" in shown


def test_measured(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path of a GPU: events around launches, a median and a spread, nothing modelled."""
    monkeypatch.setattr("amdattn.bench.operation.is_virtual", lambda: False)
    (row,) = run.json()["records"]
    times = row["times"]
    assert row["origin"] == "measured" and row["cycles"] is None and not row["stalls"]
    assert 0 < times["low_us"] <= times["median_us"] <= times["high_us"]
    assert times["at_peak_us"] is None and row["clocks"]["stated_peak_ghz"] > 0
    assert row["tflops"]["median"] == pytest.approx(row["flops"] / times["median_us"] / 1e6)
    status, out, _ = run("bench", "attention", *SIZES)
    assert status == 0 and "measured ms" in out and "10..90 %" in out and "modelled" not in out
    status, out, _ = run("bench", "attention", *SIZES, "--wide")
    assert status == 0 and "TFLOP/s measured" in out and "modelled" not in out


def test_readings(run: Command) -> None:
    """The same kernel takes longer if its exponentials wait for the matrix unit."""
    beside, exclusive = run.json("--reading", "default", "--reading", "trans-exclusive")["records"]
    assert [beside["reading"], exclusive["reading"]] == ["default", "trans-exclusive"]
    assert beside["cycles"] < exclusive["cycles"]
    status, out, _ = run("bench", "attention", *SIZES, "--reading", "all")
    assert status == 0 and "d128, trans-exclusive" in out and "d128, lost-slots-2" in out
    (alone,) = run.json("--reading", "trans-exclusive")["records"]
    assert alone["cycles"] == exclusive["cycles"]
    (after,) = run.json()["records"]
    assert after["reading"] == "default" and after["cycles"] == beside["cycles"]


def test_no_reading(run: Command) -> None:
    status, _, errors = run("bench", "attention", *SIZES, "--reading", "half")
    assert status == 2 and "reading='half' must be one of default, lost-slots-0" in errors
