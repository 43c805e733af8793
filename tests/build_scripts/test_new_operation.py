"""The skeleton of an operation compiles, runs and is tested as it is written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from build_scripts import new_operation
from tests.support.paths import ROOT

NAME = "row_copy"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for file in ("amdattn/__init__.py", "amdattn/ops/registry.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def test_files_and_lines_that_name_them(root: Path) -> None:
    written = new_operation.write(NAME, root)
    assert all(path.is_file() for path in written)
    assert not any("@" in path.read_text().replace("@dataclass", "").replace("@property", "")
                   .replace("@functools", "") for path in written if NAME in path.name)  # fmt: skip
    assert (
        f'"{NAME}": "amdattn.ops.{NAME}.cases",' in (root / "amdattn/ops/registry.py").read_text()
    )
    assert f"plan_{NAME} as plan_{NAME}" in (root / "amdattn/__init__.py").read_text()
    with pytest.raises(ValueError, match="is taken"):
        new_operation.write(NAME, root)


@pytest.mark.parametrize("name", ["RowCopy", "1st", "row-copy", "for", "", "embedding"])
def test_names_that_are_none_or_taken(root: Path, name: str) -> None:
    before = sorted(root.rglob("*"))
    with pytest.raises(ValueError, match=r"must be a Python name|is taken"):
        new_operation.write(name, root)
    assert sorted(root.rglob("*")) == before


@pytest.mark.slow
def test_it_runs_and_its_tests_pass(tmp_path: Path) -> None:
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, files.stdout.decode().split("\0")):
        if name.startswith(("docs/", "virtual_device/", "benchmarks/", "examples/")):
            continue
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "amdattn" / "_lib", tmp_path / "amdattn" / "_lib")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("-m", "build_scripts.new_operation", NAME)
    run("-m", "build_scripts.build", "--only", NAME)
    assert "no findings in 40 launches" in run(
        "-m", "amdattn.cli", "check", NAME, "--schedules", "2"
    )
    run("-m", "pytest", "-q", "-n0", f"tests/ops/{NAME}")
    run("-m", "pytest", "-q", "-n0", "tests/ops/test_registry.py", "-k", NAME)
