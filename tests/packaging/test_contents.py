"""What the wheel holds, and that the source distribution has what the tests need."""

from __future__ import annotations

import json
import lzma
import os
import re
import sys
import zlib
from pathlib import Path

import pytest
from setuptools import Distribution, find_packages
from setuptools.command.build_py import build_py

from amdattn.arch.architectures import ARCHITECTURES
from amdattn.device import packs
from amdattn.device.virtual_library import library_path
from amdattn.device.x86_level import LEVELS
from build_scripts.build import HSACO, KERNELS
from build_scripts.packed_objects import PACK_BYTES, read_folder, write_folder
from tests.support.code_objects import code_objects
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
    files = [*modules, *HSACO.rglob("*"), *(ROOT / "asm_src" / "args").rglob("*")]
    files += [library] * len(LEVELS)
    nbytes = sum(len(zlib.compress(x.read_bytes(), 6)) for x in files if x.is_file())
    assert 2e6 < nbytes < 8e6


def test_packs_name_every_object_once_and_are_short() -> None:
    for arch in ARCHITECTURES:
        index = json.loads((HSACO / arch / packs.INDEX).read_text())
        named = [name for sizes in index.values() for name in sizes]
        kernels = [kernel for kernel in KERNELS if kernel.arch == arch]
        assert sorted(named) == sorted(Path(kernel.file).name for kernel in kernels)
        assert {path.name for path in (HSACO / arch).iterdir()} == {packs.INDEX, *index}
        assert max(sum(sizes.values()) for sizes in index.values()) <= PACK_BYTES
        assert {name.rpartition("_")[0] for name in index} == {kernel.op for kernel in kernels}


def test_packs_are_written_when_their_objects_change(tmp_path: Path) -> None:
    images = {name: image for name, image in code_objects("gfx942").items() if "norm" in name}
    families = {"norm": images, "other": {"other.hsaco": b"other"}}
    write_folder(tmp_path, families)
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(first) >= 4 and read_folder(tmp_path) == {**images, "other.hsaco": b"other"}
    last = max(name for name in first if name.startswith("norm"))
    # As another version of the compressor has it: the same objects, so that it stays.
    other = lzma.compress(lzma.decompress(first[last]), preset=0)
    (tmp_path / last).write_bytes(other)
    (tmp_path / "other.hsaco").write_bytes(b"built apart")
    assert read_folder(tmp_path)["other.hsaco"] == b"built apart"
    families["other"] = {"other.hsaco": b"changed"}
    write_folder(tmp_path, families)
    second = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert second.keys() == first.keys()
    assert {name for name in first if first[name] != second[name]} == {
        *(last, "other_0.xz", packs.INDEX),
    }
    assert second[last] == other and read_folder(tmp_path)["other.hsaco"] == b"changed"
    write_folder(tmp_path, {"norm": images})
    assert read_folder(tmp_path) == images
