"""What the wheel holds, and that the source distribution has what the tests need."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import zlib
from pathlib import Path

import pytest
from setuptools import Distribution, find_packages
from setuptools.command.build_py import build_py

from amdattn.device import manifest, packs
from amdattn.device.virtual_library import library_path
from amdattn.device.x86_level import LEVELS
from build_scripts.packed_objects import PACK_BYTES, copy_packed
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


@pytest.fixture(scope="module")
def kernels_of_the_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """hsaco/ as a wheel has it."""
    folder = tmp_path_factory.mktemp("wheel") / "hsaco"
    copy_packed(ROOT / "hsaco", folder)
    return folder


def test_the_wheel_has_no_more_than_eight_megabytes(
    modules: dict[Path, str], kernels_of_the_wheel: Path
) -> None:
    """As its files compress, with the virtual device for every level of x86-64."""
    library = library_path()
    files = [*modules, *kernels_of_the_wheel.rglob("*"), *(ROOT / "asm_src" / "args").rglob("*")]
    files += [library] * len(LEVELS)
    nbytes = sum(len(zlib.compress(x.read_bytes(), 6)) for x in files if x.is_file())
    assert 2e6 < nbytes < 8e6


def test_the_wheel_has_every_code_object_as_it_is(
    kernels_of_the_wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = {row.path: row.path.read_bytes() for row in manifest.kernels()}
    monkeypatch.setenv("AMDATTN_KERNEL_DIR", str(kernels_of_the_wheel))
    rows = sorted(manifest.kernels(), key=lambda row: row.path)
    assert [row.read_code_object() for row in rows] == [plain[path] for path in sorted(plain)]
    left = {path.relative_to(kernels_of_the_wheel) for path in all_objects(kernels_of_the_wheel)}
    assert left == {path.relative_to(ROOT / "hsaco") for path in all_objects(ROOT / "hsaco/micro")}


def all_objects(folder: Path) -> list[Path]:
    return list(folder.rglob("*.hsaco"))


def test_packs_name_every_object_once_and_are_short(kernels_of_the_wheel: Path) -> None:
    for folder in {row.path.parent.name for row in manifest.kernels()}:
        index = json.loads((kernels_of_the_wheel / folder / packs.INDEX).read_text())
        named = [name for sizes in index.values() for name in sizes]
        assert sorted(named) == sorted(path.name for path in all_objects(ROOT / "hsaco" / folder))
        beside = {path.name for path in (kernels_of_the_wheel / folder).iterdir()}
        assert beside == {packs.INDEX, *index}
        assert max(sum(sizes.values()) for sizes in index.values()) <= PACK_BYTES


def test_packs_are_the_same_bytes_every_time(tmp_path: Path) -> None:
    some = tmp_path / "some" / "gfx942"
    some.mkdir(parents=True)
    for path in sorted(all_objects(ROOT / "hsaco" / "gfx942"))[::8]:
        shutil.copy2(path, some)
    for copy in ("first", "second"):
        copy_packed(tmp_path / "some", tmp_path / copy)
        for path in some.iterdir():
            os.utime(path, (0, 0))
    names = {path.relative_to(tmp_path / "first") for path in (tmp_path / "first").rglob("*.*")}
    assert len(names) >= 3  # an index and two packs
    for name in names:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_a_python_without_lzma_packs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "kernel.hsaco").write_bytes(b"image")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    copy_packed(tmp_path / "some", tmp_path / "wheel")
    assert (tmp_path / "wheel" / "kernel.hsaco").read_bytes() == b"image"
