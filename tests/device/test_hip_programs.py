"""HIP programs in C++ on AMD's own runtime, by `amdattn exec`: what they use, and what is found.

They are compiled with pip's compiler (`build_scripts.hip_program`).
"""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from build_scripts import amd_runtime, hip_program
from tests.support.paths import ROOT, TESTS

SOURCE = TESTS / "device" / "programs" / "features.hip"
ARCHS = ("gfx942", "gfx950")
FEATURES = ("hidden_arguments", "dynamic_lds", "cooperative", "variables", "streams")
_STALL_SECONDS = 25

pytestmark = [
    pytest.mark.oracles,
    pytest.mark.skipif(
        not amd_runtime.is_whole(amd_runtime.TARGET), reason="AMD's HIP runtime was not brought"
    ),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("program") / "features"
    hip_program.compile_program(SOURCE, made)
    return made


def command(program: Path, feature: str, *options: str) -> list[str]:
    runtime = f"--runtime=amd:{amd_runtime.TARGET / 'lib'}"
    return [
        *(sys.executable, "-m", "amdattn.cli", "exec", runtime, *options),
        *("--", str(program), feature),
    ]


def run(program: Path, feature: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(program, feature, *options),
        env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("feature", FEATURES)
def test_features(program: Path, feature: str, arch: str) -> None:
    """Right, and nothing is found."""
    done = run(program, feature, f"--device=virtual:{arch}", "--check", "--options=seed=1")
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
    assert "no findings in" in done.stderr


@pytest.mark.parametrize("options", ["seed=0", "seed=1", "seed=2,threads=1", "seed=7"])
@pytest.mark.parametrize("arch", ARCHS)
def test_printf(program: Path, arch: str, options: str) -> None:
    """Kernels wait for the host, which prints; that is no finding in any order of waves."""
    done = run(program, "print", f"--device=virtual:{arch}", "--check", f"--options={options}")
    lines = {
        f"launch {launch} block {block} lane {lane} {launch + 0.125:.3f} text"
        for launch in range(3)
        for block in range(5)
        for lane in (5, 37, 69, 101)
    }
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted([*lines, "ok"])
    assert "no findings in" in done.stderr


def test_whoever_reads_is_slow(program: Path) -> None:
    """The host cannot print, and kernels wait for it all the time: that is no deadlock."""
    with subprocess.Popen(
        command(program, "print_much"),
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        time.sleep(_STALL_SECONDS)
        out, errors = child.communicate(timeout=600)
    assert child.returncode == 0, errors
    assert out.count("\n") == 40 * 64 + 1


def test_assertions(program: Path) -> None:
    """Every lane that fails is told of, then the launch ends."""
    done = run(program, "assertion")
    assert done.returncode != 0
    text = done.stdout + done.stderr
    assert text.count("Device-side assertion `static_cast<int>(threadIdx.x) < limit' failed") == 4
    assert "amdattn: trap: s_trap 2" in done.stderr


@pytest.mark.parametrize(
    ("feature", "kind", "code"), [("race", "lds_race", 1), ("outside", "illegal_address", 3)]
)
def test_findings(program: Path, tmp_path: Path, feature: str, kind: str, code: int) -> None:
    """By source line, also of a launch that faults; without checked mode a race is not seen."""
    file = tmp_path / "findings.json"
    done = run(program, feature, "--check", f"--findings={file}")
    assert done.returncode == code, done.stderr
    found = {one["kind"]: one for one in json.loads(file.read_text())["findings"]}
    path, _, line = found[kind]["source"].rpartition(":")
    assert os.path.samefile(ROOT / path, SOURCE)
    kernel = re.search(r"_Z\w*?(racing|add)E", found[kind]["kernel"])
    assert kernel and int(line) > SOURCE.read_text().partition(f" {kernel[1]}(")[0].count("\n")
    assert kind in done.stderr


def test_profiles(program: Path, tmp_path: Path) -> None:
    """Modelled times of every launch, AMD's own kernels included."""
    table, records = tmp_path / "profiles.csv", tmp_path / "profiles.json"
    done = run(program, "dynamic_lds", "--profile", f"--profiles={table}")
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
    assert "modelled times of launches" in done.stderr and "reversed" in done.stderr
    rows = list(csv.DictReader(table.open()))
    (own,) = (row for row in rows if "reversed" in row["kernel"])
    assert own["workgroups"] == "3" and float(own["microseconds"]) > 0
    run(program, "dynamic_lds", f"--profiles={records}")
    assert len(json.loads(records.read_text())) == len(rows)
