"""What is compiled when: one level or all, and after a change only what depends on it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from amdattn.native_libraries import HSA_NAME
from build_scripts import virtual_device
from build_scripts.virtual_device import compile_one, compiler
from tests.support.paths import TESTS

RECORDER = TESTS / "support" / "recording_compiler.py"
# Three hot sources, of which two include a header, and two cold ones of one folder.
TREE = {
    "isa/lane.h": "",
    "isa/vop1.cc": '#include "isa/lane.h"\n',
    "isa/vop2.cc": '#include "isa/lane.h"\n',
    "isa/sop1.cc": "",
    "hip/stream.cc": "",
    "hip/event.cc": "",
    "hip/exports.map": "",
}
LIBRARY = "libamdattn_vdev_x86_64_{}.so"


class Project:
    """A source tree in miniature and the calls of the compiler that building it made."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sources, self.out, self.log = root / "src", root / "out", root / "log"
        self.work = root / "work"
        self._monkeypatch = monkeypatch
        for name, text in TREE.items():
            (self.sources / name).parent.mkdir(parents=True, exist_ok=True)
            (self.sources / name).write_text(text)
        monkeypatch.setattr(virtual_device, "SOURCES", self.sources)
        monkeypatch.setattr(virtual_device, "COMMON_FLAGS", (f"-I{self.sources}",))
        self.use_compiler("recorder 1.0")

    def use_compiler(self, version: str) -> None:
        """Compile with the recorder, of this version, from now on."""
        command = f"{sys.executable} {RECORDER} {self.log} '{version}'"
        self._monkeypatch.setenv("AMDATTN_CXX", command)

    def touch(self, path: Path) -> None:
        """Make a file newer than everything that has been built."""
        for file in filter(Path.is_file, self.work.parent.rglob("*")):
            then = file.stat().st_mtime - 20
            os.utime(file, (then, then))
        os.utime(path, (path.stat().st_mtime + 10,) * 2)

    def build(self, *levels: str) -> list[str]:
        """Build the levels; what the compiler made, sorted."""
        self.log.write_text("")
        virtual_device.build(levels, self.out, self.work, 1)
        return sorted(self.log.read_text().splitlines())


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(tmp_path, monkeypatch)


ONE_LEVEL = [
    "compile isa sop1.o",
    "compile isa vop1.o",
    "compile isa vop2.o",
    "compile v2 hip_cold.o",
    "link out " + LIBRARY.format("v3"),
    "precompile v3 standard.h.gch",
]


def test_a_header_is_precompiled_anew_in_every_build(project: Project) -> None:
    # A compiler with a cache by content would return the form of another build, whose standard
    # headers are gone.
    project.build("v3")
    project.use_compiler("recorder 1.1")
    project.build("v3")
    headers = project.log.with_name("log.headers").read_text().split()
    assert len(headers) == len(set(headers)) == 2


def test_one_level_is_compiled_once(project: Project) -> None:
    made = project.build("v3")
    assert sorted(made) == sorted([*ONE_LEVEL, "link out " + HSA_NAME])
    names = {path.name for path in project.out.iterdir()}
    assert names == {LIBRARY.format("v3"), HSA_NAME}
    assert not list(project.work.rglob("*.gch")), "valid only as long as the compiler stays"


def test_a_second_level_adds_its_hot_sources_alone(project: Project) -> None:
    project.build("v3")
    hot = [line for line in ONE_LEVEL if " isa " in line]
    linked = "link out " + LIBRARY.format("v2")  # that of v3 is up to date
    assert project.build("v2", "v3") == [*hot, linked, "precompile v2 standard.h.gch"]


def test_a_build_without_changes_calls_no_compiler(project: Project) -> None:
    project.build("v2", "v3")
    assert project.build("v2", "v3") == []


@pytest.mark.parametrize(
    ("changed", "compiled"),
    [
        ("isa/sop1.cc", ["compile isa sop1.o"]),
        ("isa/lane.h", ["compile isa vop1.o", "compile isa vop2.o"]),
        ("hip/event.cc", ["compile v2 hip_cold.o"]),
        ("hip/exports.map", []),
    ],
)
def test_a_change_rebuilds_what_depends_on_it(
    project: Project, changed: str, compiled: list[str]
) -> None:
    project.build("v3")
    project.touch(project.sources / changed)
    assert project.build("v3") == [*compiled, "link out " + LIBRARY.format("v3")]


def _another_version(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.use_compiler("recorder 1.1")


def _another_flag(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_device, "COMMON_FLAGS", (*virtual_device.COMMON_FLAGS, "-g"))


@pytest.mark.parametrize("change", [_another_version, _another_flag])
def test_another_compiler_rebuilds_everything(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Project, pytest.MonkeyPatch], None],
) -> None:
    project.build("v3")
    change(project, monkeypatch)
    assert project.build("v3") == ONE_LEVEL


def test_libraries_of_older_sources_do_not_stay(project: Project) -> None:
    project.build("v2", "v3")
    project.build("v2")
    assert {path.name for path in project.out.iterdir()} == {LIBRARY.format("v2"), HSA_NAME}


def test_a_killed_build_leaves_nothing_that_is_used(project: Project) -> None:
    project.build("v3")
    left = project.work / "v3" / "standard.h.gch"  # of a compiler that is gone
    left.touch()
    project.touch(project.sources / "isa" / "sop1.cc")
    project.build("v3")
    assert not left.exists()


def test_objects_do_not_depend_on_where_the_compiler_is(tmp_path: Path) -> None:
    """Pip unpacks the compiler into a new folder for every build, and removes it."""
    source = tmp_path / "unit.cc"
    source.write_text('#include <cstddef>\n#include "own.h"\nstd::size_t one() { return kOne; }\n')
    (tmp_path / "own.h").write_text("inline constexpr int kOne = 1;\n")
    compile_one([*compiler("v2"), f"-I{tmp_path}"], source, tmp_path / "unit.o")
    listed = (tmp_path / "unit.d").read_text().replace("\\\n", " ").split()[1:]
    assert {Path(name).name for name in listed} == {"unit.cc", "own.h"}
