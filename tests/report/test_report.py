"""`amdattn selftest --report`: what the files say, and that they are written whatever happens."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amdattn import cli
from amdattn.bench import micro
from amdattn.report import document, facts, make, steps, supervise
from amdattn.report.make import Part
from amdattn.report.supervise import Planned
from tests.support import fake_rocm
from tests.support.paths import ROOT

# -- fakes: a child that says what a test wants it to say ------------------------------------------

_FAKE = """
import json, os, sys, time
pipe = int(sys.argv[1])
def tell(**message): os.write(pipe, (json.dumps(message) + "\\n").encode())
def row(what, outcome="ok", text="fine", **data):
    tell(row={"what": what, "outcome": outcome, "text": text, "data": data})
def end(error="", usable=True): tell(end="", error=error, usable=usable)
"""


def fake(*planned: tuple[str, float], code: str = "") -> Part:
    """Steps with their limits, and what the child does."""
    made = [Planned(name, f"step {name}", limit) for name, limit in planned]
    return Part(made, lambda pipe: [sys.executable, "-c", _FAKE + code, str(pipe)])


NOTHING = fake()


def report_of(part: Part, folder: Path) -> dict[str, Any]:
    """What is in the file: not what was returned."""
    files = folder / "r.json", folder / "r.md"
    make.make((part, NOTHING), files, quick=True)
    assert files[1].read_text().startswith("# amdattn on ")
    return dict(json.loads(files[0].read_text()))


def statuses(report: dict[str, Any]) -> list[str]:
    return [step["status"] for step in report["device_steps"]]


def test_a_step_that_hangs_ends_with_its_limit(tmp_path: Path) -> None:
    code = 'row("one"); end()\nrow("begun"); time.sleep(1000)'
    begin = time.monotonic()
    report = report_of(fake(("a", 30), ("b", 0.5), ("c", 30), ("d", 30), code=code), tmp_path)
    assert 0.5 < time.monotonic() - begin < 500  # the child sleeps for longer
    assert statuses(report) == ["ok", "timed out", "skipped", "skipped"] and not report["ok"]
    hung = report["device_steps"][1]
    assert hung["error"] == "took longer than 0.5 s and was ended"
    assert [row["what"] for row in hung["rows"]] == ["begun"]
    text = (tmp_path / "r.md").read_text()
    assert "- **timed out**: b" in text and "- **skipped**: c, d" in text


def test_nothing_of_a_hanging_child_is_left(tmp_path: Path) -> None:
    """Not the process, which would keep its queues on the device, nor what it has started."""
    code = (
        "import subprocess\nother = subprocess.Popen([sys.executable, '-c', 'import time;"
        ' time.sleep(1000)\'])\nrow("pids", pids=[os.getpid(), other.pid]); time.sleep(1000)'
    )
    report = report_of(fake(("a", 2), code=code), tmp_path)
    (row,) = report["device_steps"][0]["rows"]
    deadline = time.monotonic() + 10
    while any(map(running, row["data"]["pids"])) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(running, row["data"]["pids"]))


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_step_that_ends_the_process(tmp_path: Path) -> None:
    code = 'end()\nprint("Memory access fault by GPU", flush=True); os.abort()'
    report = report_of(fake(("a", 30), ("b", 30), ("c", 30), code=code), tmp_path)
    assert statuses(report) == ["ok", "crashed", "skipped"] and not report["ok"]
    error = report["device_steps"][1]["error"]
    assert "status -6" in error and "Memory access fault by GPU" in error


def test_a_child_that_cannot_start_or_writes_nonsense(tmp_path: Path) -> None:
    report = report_of(fake(("a", 30), ("b", 30), code="raise ImportError('no hip')"), tmp_path)
    assert statuses(report) == ["crashed", "skipped"]
    assert "ImportError: no hip" in report["device_steps"][0]["error"]
    report = report_of(fake(("a", 30), code='os.write(pipe, b"half of a\\n")'), tmp_path)
    assert statuses(report) == ["crashed"]


def test_a_failing_row_and_a_failing_step(tmp_path: Path) -> None:
    code = 'row("one"); row("two", "failed", "is wrong"); end()\nend("HipError: 700")\nend()'
    report = report_of(fake(("a", 30), ("b", 30), ("c", 30), code=code), tmp_path)
    assert statuses(report) == ["failed", "failed", "ok"] and not report["ok"]
    text = (tmp_path / "r.md").read_text()
    assert "| two | failed | is wrong |" in text and "HipError: 700" in text


def test_a_device_that_does_not_answer_ends_the_steps(tmp_path: Path) -> None:
    code = 'row("one"); end(usable=False)'
    report = report_of(fake(("a", 30), ("b", 30), code=code), tmp_path)
    assert statuses(report) == ["failed", "skipped"]
    assert report["device_steps"][0]["error"] == "the device no longer answers"


def test_a_child_that_does_not_end_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind its last step: a driver that cannot take its queues down."""
    report = report_of(fake(("a", 30), code="end()\nos.abort()"), tmp_path)
    assert statuses(report) == ["failed"]
    assert "ended with status -6 after this step" in report["device_steps"][0]["error"]
    monkeypatch.setattr(supervise, "_KILL_S", 0.3)
    report = report_of(fake(("a", 30), code="end()\ntime.sleep(1000)"), tmp_path)
    assert statuses(report) == ["failed"]
    assert "did not end within 0.3 s after this step" in report["device_steps"][0]["error"]


def test_a_runtime_that_lacks_calls(tmp_path: Path) -> None:
    """A library that sees a GPU and does nothing for it: facts, and failures by name."""
    rocm = tmp_path / "rocm"
    (rocm / "lib").mkdir(parents=True)
    compiler = [sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", "-O1"]
    source = fake_rocm.SOURCE
    library = rocm / "lib" / "libamdhip64.so"
    subprocess.run([*compiler, str(source), "-o", str(library)], check=True)
    part, _ = make.parts(quick=True, limit_s=None)
    environment = {**os.environ, "AMDATTN_DEVICE": "gpu", "ROCM_PATH": str(rocm)}
    report = report_of(dataclasses.replace(part, environment=environment), tmp_path)
    assert report["virtual"] is False and report["label"].startswith("A GPU")
    assert report["device"]["name"] == "AMD Instinct MI300X" and report["device"]["CUs"] == "304"
    assert report["device"]["HIP driver"].startswith("unknown (failed to dlsym")
    assert not report["ok"] and "failed" in statuses(report)
    assert str(tmp_path) not in json.dumps(report) + (tmp_path / "r.md").read_text()


def test_interrupted(tmp_path: Path) -> None:
    """Ctrl-C ends the child; what there is gets written, the model is not asked."""
    code = 'end()\nrow("x"); time.sleep(0.5)\nos.kill(os.getppid(), 2); time.sleep(1000)'
    part = fake(("a", 30), ("b", 600), ("c", 600), code=code)
    files = tmp_path / "r.json", tmp_path / "r.md"
    report = make.make((part, fake(("m", 60), code="end()")), files, quick=True)
    assert statuses(report) == ["ok", "skipped", "skipped"]
    assert report["device_steps"][1]["error"] == "interrupted"
    assert report["model_steps"][0]["status"] == "skipped" and files[0].exists()


def test_numbers_that_json_lacks(tmp_path: Path) -> None:
    code = 'row("one", share=float("inf"), other=[float("nan")]); end()'
    report = report_of(fake(("a", 30), code=code), tmp_path)
    assert report["device_steps"][0]["rows"][0]["data"] == {"share": "inf", "other": ["nan"]}


# -- the command -----------------------------------------------------------------------------------


class Command:
    """Runs amdattn in this process."""

    def __init__(self, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._patch, self._capsys = patch, capsys

    def __call__(self, *args: object) -> tuple[int, str, str]:
        self._patch.setattr(sys, "argv", ["amdattn", *map(str, args)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, errors = self._capsys.readouterr()
        return int(caught.value.code or 0), out, " ".join(errors.split())


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def test_quick_report_on_the_virtual_device(run: Command, tmp_path: Path) -> None:
    status, out, errors = run("selftest", "--report", tmp_path / "report.json", "--quick")
    assert status == 0, errors + out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "report.md"]
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["kind"] == "amdattn report" and report["schema"] == 1 and report["ok"]
    assert report["virtual"] is True and "nothing here was measured" in report["label"]
    assert report["device"]["CUs"] == "304" and report["device"]["kind"] == "virtual"
    for fact in ("amdattn", "kernel", "amdgpu driver", "ROCm", "hip-python", "numpy"):
        assert report["host"][fact]
    rows = {
        row["what"]: row
        for step in report["device_steps"]
        for row in step["rows"]
        if row["outcome"] == "ok"
    }
    for what in (
        *("launch by `extra`", "launch by kernelParams", "16 launches on one stream"),
        *("an event completes", "capture of 300 launches", "replay 2 of the graph"),
        *("stream 2 of two", "XCC_ID", "HW_ID", "clocks of a wave", "gemm_nt_bf16_m4n4"),
        *("attn_fwd_bf16_d128_rtne", "kernels that ran with them"),
    ):
        assert what in rows, what
    # Nothing on the virtual device is called measured; everything modelled is in the tables.
    assert {step["status"] for step in report["device_steps"]} == {"ok", "not measured"}
    assert all(step["status"] == "ok" for step in report["model_steps"])
    for row in (*report["shapes"], *report["micro"]):
        assert row["measured"] is None and row["modelled"] and "fits" not in row
    assert len(report["shapes"]) == 2 and len(report["micro"]) >= 6
    assert all(row["settles"] and row["readings"] is not None for row in report["micro"])

    text = (tmp_path / "report.md").read_text()
    for heading in ("# amdattn on AMD", "## Device and versions", "## Steps", "## Micro kernels"):
        assert heading in text
    assert "**Every step holds.**" in text and "times are **modelled**" in text
    both = text + json.dumps(report)
    for private in (str(tmp_path), str(Path.home()), str(Path.cwd()), sys.prefix + "/"):
        assert private not in both or private == "/"
    assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", both)
    assert not re.search(r"(?<![\w<>./])/(?!opt/rocm|sys/|proc/|dev/)\w+/\w+/\w", both)


def test_quick_report_on_another_architecture(tmp_path: Path) -> None:
    """What an owner of one sees first. Micro kernels are stated of the MI300X alone."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "amdattn.cli", "selftest", "--quick"),
            *("--report", str(tmp_path / "report.json")),
        ],
        env=os.environ | {"AMDATTN_DEVICE": "virtual:gfx950"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["ok"] and report["device"]["target"].startswith("gfx950")
    steps = {step["name"]: step["status"] for step in report["device_steps"]}
    assert {*steps.values()} == {"ok", "not measured"}
    assert {steps[name] for name in ("launch", "graph", "ids", "clock")} == {"ok"}
    assert report["micro"] == []


def test_every_kernel_has_a_case() -> None:
    """Of a whole report: the forward and matrix kernels by themselves, others along with them."""
    from amdattn import device_props, kernels
    from amdattn.op.indices import NARROW
    from amdattn.report.kernels import groups
    from tests.support.shipped import shipped

    reached = set()
    for _, _, cases in groups(quick=False):
        for one in cases:
            if one.kernel is not None and one.kernel.arch != device_props().arch:
                continue
            problem, kernel = one.case.problem, one.case.kernel
            plan = one.operation.plan(problem, device_props(), kernels(), kernel)
            reached |= {launch.kernel.name for launch in plan.launches}
    # Indices are narrowed before a plan runs: `amdattn check all` has that kernel.
    assert reached == {kernel.name for kernel in shipped()} - {NARROW}


def test_twelve_shapes_and_every_micro_kernel_in_a_whole_report() -> None:
    device, model = make.parts(quick=False, limit_s=None)
    names = [step.name for step in device.planned]
    assert len([name for name in names if name.startswith("shape_")]) == 12
    assert set(step.name for step in model.planned) == {
        name for name in names if name.startswith(("micro_", "shape_")) and name != "micro_clocks"
    }
    assert len(names) == len(set(names)) and {"kernels", "larger"} & set(names)
    assert all(0 < step.limit_s <= 300 for part in (device, model) for step in part.planned)
    assert model.environment is not None
    assert model.environment["AMDATTN_DEVICE"] == "virtual:gfx942"


def test_a_limit_that_no_step_meets(run: Command, tmp_path: Path) -> None:
    """The real child is ended, and the report says so."""
    args = ("selftest", "--report", tmp_path / "r", "--quick", "--step-limit", 0.02)
    status, out, _ = run(*args)
    assert status == 1 and "timed out: device" in out
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["device_steps"][0]["status"] == "timed out"
    assert {step["status"] for step in report["device_steps"][1:]} == {"skipped"}
    assert report["virtual"] is None and report["label"] == ""
    assert "no device was bound" in (tmp_path / "r.md").read_text()


def test_a_failing_probe_is_exit_code_1(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = fake(("launch", 30), code='row("launch by `extra`", "failed", "nothing"); end()')
    monkeypatch.setattr(make, "parts", lambda quick, limit_s: (part, NOTHING))
    status, out, _ = run("selftest", "--report", tmp_path / "r")
    assert status == 1 and "failed: launch" in out
    part = fake(("launch", 30), code='row("launch by `extra`"); end()')
    assert run("selftest", "--report", tmp_path / "r")[0] == 0


def test_unwritable_paths_are_refused_before_any_work(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: object, **__: object) -> None:
        raise AssertionError("work began")

    monkeypatch.setattr(make, "parts", work)
    (tmp_path / "taken.md").mkdir()
    (tmp_path / "file").write_text("")
    for path, message in (
        (tmp_path / "none" / "r", f"there is no folder {tmp_path / 'none'}"),
        (tmp_path / "taken.json", "cannot be written: it is a folder"),
        (tmp_path / "file" / "r", "cannot be written: "),
        (Path("/proc/r"), "cannot be written: "),
        (tmp_path, "cannot be written: it is a folder"),
        (Path(".."), "cannot be written: it is a folder"),
    ):
        status, _, errors = run("selftest", "--report", path)
        assert status == 2 and message in errors and "--report=" in errors, errors
    for args, message in (
        (("--quick",), "--quick and --step-limit need --report FILE"),
        (("--report", tmp_path / "r", "--json"), "--json and --seed cannot be combined with"),
        (("--report", tmp_path / "r", "--step-limit", 0), "--step-limit=0.0 must be positive"),
    ):
        status, _, errors = run("selftest", *args)
        assert status == 2 and message in errors, errors
    assert not list(tmp_path.glob("r*"))


@pytest.mark.parametrize("suffix", ["", ".json", ".md"])
def test_names_of_the_files(tmp_path: Path, suffix: str) -> None:
    found = document.files_of(tmp_path / f"mi300x{suffix}")
    assert [path.name for path in found] == ["mi300x.json", "mi300x.md"]
    found = document.files_of(tmp_path / "rocm-7.2")
    assert [path.name for path in found] == ["rocm-7.2.json", "rocm-7.2.md"]


# -- texts and facts -------------------------------------------------------------------------------


def test_paths_of_this_machine_do_not_get_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/Jane Doe")
    for text, expected in (
        ("/home/Jane Doe/models/x.so is missing", "<home>/x.so is missing"),
        ("cannot open '/srv/team-a/lib/libamdhip64.so.7'", "cannot open '<path>/libamdhip64.so.7'"),
        ("/opt/rocm/lib/libamdhip64.so: bad", "/opt/rocm/lib/libamdhip64.so: bad"),
        ("/sys/class/kfd/kfd/topology", "/sys/class/kfd/kfd/topology"),
        ("rate of 3/4 and a/b/c", "rate of 3/4 and a/b/c"),
        (f"{sys.prefix}/lib/python3/site-packages/hip/hip.so", "<python>/hip.so"),
    ):
        assert facts.without_paths(text) == expected


def test_only_known_variables_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMD_API_TOKEN", "secret")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "3")
    host = facts.host()
    assert host["$HIP_VISIBLE_DEVICES"] == "3" and "secret" not in str(host)


def test_partition_and_chip_of_the_driver(tmp_path: Path) -> None:
    """A CPX partition of an MI325X: found by its function number; serial numbers stay there."""
    kfd, pci = tmp_path / "nodes", tmp_path / "pci"
    for function, chip in ((0, 29861), (3, 29861)):
        node = kfd / str(function)
        node.mkdir(parents=True)
        (node / "properties").write_text(
            f"location_id {0x0C << 8 | function}\ndomain 1\ndevice_id {chip}\n"
            f"num_xcc 1\nsimd_count {152 + function}\nunique_id 1234567890123\n"
        )
    folder = pci / "0001:0c:00.3"
    folder.mkdir(parents=True)
    (folder / "current_compute_partition").write_text("CPX\n")
    (folder / "current_memory_partition").write_text("NPS4\n")
    (folder / "device").write_text("0x74a5\n")
    assert facts.driver_facts("0001:0C:00.3", kfd, pci) == {
        "KFD device_id": "29861",
        "KFD num_xcc": "1",
        "KFD simd_count": "155",
        "current compute partition": "CPX",
        "current memory partition": "NPS4",
        "chip id": "0x74a5",
    }
    assert facts.driver_facts("0000:0c:00.3", kfd, pci) == {
        "driver's view": "nothing about this device"
    }
    none = {"driver's view": "its bus id is not that of a PCI device"}
    assert facts.driver_facts("none", kfd, pci) == none


def test_measured_and_modelled_are_beside_each_other() -> None:
    (row,) = micro.rows("chain_lds_b128")
    found = micro.Figure(row, "measured", 110.0)
    device = supervise.Outcome(Planned("device", "device", 1), supervise.PASSED)
    device.rows = [
        {"what": "name", "outcome": "info", "text": "MI|300 <X>", "data": {}},
        {"what": "kind", "outcome": "info", "text": "gpu", "data": {}},
    ]
    outcomes = [device]
    for figure in (found, micro.Figure(row, "modelled", 64.0)):
        outcome = supervise.Outcome(Planned("micro", "micro", 1), supervise.PASSED)
        shape = {"name": "gemm 1x2x3", "flops": 12, "origin": figure.origin}
        times = {"low_us": 1.0, "median_us": 2.0, "high_us": 3.5}
        if figure.origin == "modelled":
            times = {"at_peak_us": 0.5}
        outcome.rows = [
            {"what": "m", "outcome": "info", "text": "", "data": {"micro": figure.as_dict()}},
            {"what": "s", "outcome": "info", "text": "", "data": {"shape": shape | times}},
        ]
        outcomes.append(outcome)
    report = document.document({}, outcomes[:2], outcomes[2:], 1.0, False)
    assert report["virtual"] is False and report["ok"]
    (micro_row,), (shape_row,) = report["micro"], report["shapes"]
    assert micro_row["measured"]["value"] == 110 and micro_row["modelled"]["value"] == 64
    assert micro_row["fits"] == "a vendor tool's constant"
    assert shape_row["measured"]["median_us"] == 2 and shape_row["modelled"] == {"at_peak_us": 0.5}
    text = document.markdown(report)
    assert "| gemm 1x2x3 | 2.0 (1.0 to 3.5) | 0.5 | - |" in text
    assert "| chain of ds_read_b128 | clk | 110 | 64 |" in text and "vendor tool" in text
    assert "MI\\|300 &lt;X>" in text and "A GPU: times under `measured`" in text


def test_steps_have_titles_and_limits() -> None:
    for quick in (False, True):
        every = [step for group in steps.GROUPS.values() for step in group(quick)]
        assert all(step.title and step.limit_s > 0 for step in every)


@pytest.mark.slow
def test_whole_report_on_the_virtual_device(run: Command, tmp_path: Path) -> None:
    status, out, errors = run("selftest", "--report", tmp_path / "r", "--step-limit", 1200)
    assert status == 0, errors + out
    report = json.loads((tmp_path / "r.json").read_text())
    assert len(report["shapes"]) == 12 and all(row["modelled"] for row in report["shapes"])
    modelled = [row for row in micro.table.ROWS if row.unit != "GHz"]
    assert [row["name"] for row in report["micro"]] == [row.name for row in modelled]


@pytest.mark.parametrize("kind", ["fp8", "bf8"])
def test_numbers_of_8_bits_are_not_taken_for_poison(kind: str) -> None:
    """Every one of them may be a result; what is left as it was is NaN."""
    from amdattn import asarray, device_props, quantize_fp8
    from amdattn.dtypes import as_dtype
    from amdattn.report.kernels import Guarded

    name = getattr(device_props().architecture, kind)
    every = np.arange(256, dtype=np.uint8).view(as_dtype(name).numpy())
    numbers = every[~np.isnan(every.astype(np.float32))]
    guarded = Guarded((1, len(numbers)), name)
    assert guarded.taken()[1] == f"{len(numbers)} elements of the result were not written"
    x, one = asarray(numbers[None].astype(np.float32)), asarray(np.ones(1, np.float32))
    quantize_fp8(x, scale=one, out=guarded.inner)
    found, wrong = guarded.taken()
    assert wrong == "" and (found.view(np.uint8) == numbers.view(np.uint8)).all()
