"""What the wheel holds, and that the source distribution has what the tests need."""

from __future__ import annotations

import os
import re
import shutil
import sys
import zlib
from pathlib import Path

import pytest
from setuptools import Distribution, find_packages
from setuptools.command.build_py import build_py

from amdattn.device import manifest
from amdattn.device.virtual_library import library_path
from amdattn.device.x86_level import LEVELS
from amdattn.errors import CorruptKernel
from build_scripts.packed_objects import copy_packed, is_packed, packed
from tests.support.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Evidence of this project's own (mutation campaigns, kernels of other projects and how to sample
# them, pages) is in benchmarks/; what builds is in build_scripts/.
NOT_IN_THE_WHEEL = ("benchmarks", "build_scripts", "tests", "examples")
# Of other projects whose kernels are evidence, and of campaigns: no module is named after them.
FOREIGN = ("aiter", "moonmath", "triton", "flydsl", "mutation", "mutant", "campaign")
_IMPORT = re.compile(r"^ *(?:from|import) (\w+)", re.M)


@pytest.fixture(scope="module")
def modules() -> dict[Path, str]:
    """Files of the wheel's modules, as setuptools collects them, and their packages."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found_by = settings["tool"]["setuptools"]["packages"]["find"]
    assert found_by.pop("namespaces") is False
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        packages = find_packages(**found_by)
        command = build_py(Distribution({"packages": packages, "script_name": "setup.py"}))
        command.ensure_finalized()
        found = command.find_all_modules()
        return {Path(file).resolve(): package for package, _, file in found}
    finally:
        os.chdir(before)


def imported(file: Path) -> set[str]:
    """First names of every module that a file imports, wherever in it."""
    return set(_IMPORT.findall(file.read_text(encoding="utf-8")))


def test_packages_of_the_wheel(modules: dict[Path, str]) -> None:
    assert {name.partition(".")[0] for name in modules.values()} == {"amdattn"}
    assert set(modules) == set((ROOT / "amdattn").rglob("*.py"))  # none is forgotten


def test_the_wheel_needs_nothing_beside_it(modules: dict[Path, str]) -> None:
    needed = [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in modules
        for name in imported(file)
        if name in NOT_IN_THE_WHEEL
    ]
    assert not needed


def test_no_kernels_of_others_and_no_campaigns(modules: dict[Path, str]) -> None:
    named = [file.relative_to(ROOT) for file in modules]
    assert not [file for file in named if any(word in str(file).lower() for word in FOREIGN)]


def test_the_source_distribution_has_what_tests_import() -> None:
    lines = (ROOT / "MANIFEST.in").read_text(encoding="utf-8").splitlines()
    grafted = {line.split()[1] for line in lines if line.startswith("graft ")}
    files = (file for name in NOT_IN_THE_WHEEL for file in (ROOT / name).rglob("*.py"))
    needed = {name for file in files for name in imported(file) if name in NOT_IN_THE_WHEEL}
    assert needed | {"tests"} <= grafted
    excluded = [line for line in lines if line.startswith(("prune", "recursive-exclude"))]
    assert not excluded


def test_the_wheel_has_no_more_than_eight_megabytes(modules: dict[Path, str]) -> None:
    """As its files compress, with the virtual device for every level of x86-64."""
    library = library_path()
    files = [*modules, *(ROOT / "hsaco").rglob("*"), *(ROOT / "asm_src" / "args").rglob("*")]
    files += [library] * len(LEVELS)
    nbytes = sum(size_in_wheel(file) for file in files if file.is_file())
    assert 2e6 < nbytes < 8e6


def size_in_wheel(file: Path) -> int:
    image = file.read_bytes()
    return len(packed(image)) if is_packed(file) else len(zlib.compress(image, 6))


def test_code_objects_of_the_wheel_are_those_of_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compressed, they are read as they were; what is cut off or missing is told apart."""
    some = tmp_path / "some"
    for row in manifest.kernels()[::60]:
        (some / row.path.parent.name).mkdir(parents=True, exist_ok=True)
        (some / row.path.parent.name / row.path.name).write_bytes(row.path.read_bytes())
    shutil.copy2(ROOT / "hsaco" / "manifest.json", some)
    shutil.copytree(ROOT / "hsaco" / "micro", some / "micro")
    copy_packed(some, tmp_path / "wheel")
    assert not list((tmp_path / "wheel").glob("gfx*/*.hsaco"))
    assert list((tmp_path / "wheel").glob("micro/*.hsaco"))
    monkeypatch.setenv("AMDATTN_KERNEL_DIR", str(tmp_path / "wheel"))
    for row in manifest.kernels()[::60]:
        assert row.read_code_object()
    file = row.path.with_name(f"{row.path.name}.xz")
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(CorruptKernel, match=r"\.xz: Compressed data ended"):
        row.read_code_object()
    file.unlink()
    with pytest.raises(CorruptKernel, match="there is neither"):
        row.read_code_object()


def test_a_python_without_lzma_packs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "kernel.hsaco").write_bytes(b"image")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    copy_packed(tmp_path / "some", tmp_path / "wheel")
    assert (tmp_path / "wheel" / "kernel.hsaco").read_bytes() == b"image"
