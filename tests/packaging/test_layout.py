"""Where tests stand: folders mirror what they test; what they share is in tests/support."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT, TESTS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Folders of sources whose tests stand in those of another.
ELSEWHERE = {
    "amdattn/device/runtime": "device",
    "amdattn/jax/context_parallel": "jax",
    "virtual_device/arch": "virtual_device/hip",
    "virtual_device/host": "virtual_device/hsa",  # what both faces stand on
    "virtual_device/tools": "docs",  # prints a table for build_scripts
}
# Folders of tests that are of no folder of sources.
OF_NONE = {"virtual_device/fuzz", "ops/attention/adversary", "packaging", "support", "kernels"}
OF_NONE |= {"peers"}  # foreign kernels on the virtual device


def sources() -> dict[str, str]:
    """Folders that hold sources, and where their tests stand."""
    packages = {file.parent for file in (ROOT / "amdattn").rglob("*.py")}
    packages |= {file.parent for file in (ROOT / "virtual_device").rglob("*.cc")}
    packages |= {file.parent for file in (ROOT / "benchmarks").rglob("*.py")}
    packages |= {ROOT / name for name in ("build_scripts", "docs", "examples", "asm_src/tile")}
    packages |= {file.parent for file in (ROOT / "examples").rglob("__init__.py")}
    names = [folder.relative_to(ROOT).as_posix() for folder in packages]
    moved = {name: name.removeprefix("amdattn").removeprefix("asm_src") for name in names}
    return {name: tests.strip("/") for name, tests in moved.items()} | ELSEWHERE


def folders() -> set[str]:
    """Folders that hold tests."""
    found = {file.parent.relative_to(TESTS).as_posix() for file in TESTS.rglob("test_*.py")}
    return found - {"."}


def test_folders_mirror_sources() -> None:
    assert folders() - OF_NONE <= set(sources().values())


@pytest.mark.parametrize("top", ["amdattn", "virtual_device"])
def test_every_folder_of_sources_has_tests(top: str) -> None:
    of = {tests for name, tests in sources().items() if name.startswith(f"{top}/")}
    assert of <= folders()


def test_what_tests_share_is_in_support() -> None:
    """Nothing beside tests is importable, so no name of a module depends on a folder's place."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["tool"]["pytest"]["ini_options"]["pythonpath"] == ["."]
    other = [
        str(file.relative_to(TESTS))
        for file in TESTS.rglob("*.py")
        if not file.is_relative_to(TESTS / "support")
        and not file.name.startswith("test_")
        and file.name not in ("conftest.py", "__init__.py")
    ]
    assert not other


def test_support_has_no_tests() -> None:
    assert not list((TESTS / "support").rglob("test_*.py"))


def test_files_exist() -> None:
    gone = [name for name in ELSEWHERE if not (ROOT / name).is_dir()]
    assert not [*gone, *(name for name in OF_NONE if not Path(TESTS / name).is_dir())]


TOP = {
    *(".ci", ".clang-format", ".gitignore", ".pre-commit-config.yaml", "MANIFEST.in", "setup.py"),
    *("CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml", "amdattn", "asm_src", "hsaco"),
    *("benchmarks", "build_scripts", "docs", "examples", "tests", "virtual_device"),
}


def test_nothing_else_stands_at_the_top() -> None:
    """Such as what a command printed into a file that was committed."""
    if not (ROOT / ".git").exists():
        pytest.skip("no checkout")
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip(f"git does not list this checkout: {listed.stderr.strip()}")
    assert {name.partition("/")[0] for name in listed.stdout.splitlines()} == TOP
