"""`amdattn exec`: what is refused before a program is started, and how one is started."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from amdattn.checking.written import read_log
from amdattn.device import program
from tests.support.cli_command import Command

pytestmark = pytest.mark.fast
Make = Callable[[str, bytes], Path]


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """A folder with the name of AMD's library, which nothing loads."""
    folder = tmp_path / "runtime" / "lib"
    folder.mkdir(parents=True)
    (folder / program.LIBRARY).touch()
    return folder


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(name: str, content: bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        path.chmod(0o755)
        return path

    return made


def elf(machine: int) -> bytes:
    """The header of an executable without segments."""
    return b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 2, machine, 1, 0, 64, 0, 0, 64, 56, 0, 64, 0, 0
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("./no-such-program",), "program './no-such-program' does not exist"),
        (("no-such-program",), "program 'no-such-program' is in no folder of PATH"),
        (("--device=virtual:MI999", "true"), "--device='virtual:MI999' must be one of virtual:"),
        (("--device=gpu", "true"), "--device='gpu' must be one of virtual:"),
        (("--runtime=hip", "true"), "runtime 'hip' must be amdattn, amd or amd:FOLDER"),
        (("--runtime=amdattn", "true"), "runtime 'amdattn' must be amd or amd:FOLDER"),
        (("--options=sed=3", "true"), "--options: 'sed=3' must be KEY=N with a KEY of threads, "),
        (("--options=seed=x", "true"), "--options: 'seed=x' must be KEY=N"),
        (("--profiles=a.txt", "true"), "--profiles='a.txt' must end in .csv or .json"),
    ],
)
def test_what_is_refused(
    amdattn_command: Command, runtime: Path, words: tuple[str, ...], message: str
) -> None:
    given = () if words[0].startswith("--runtime") else (f"--runtime=amd:{runtime}",)
    code, _, errors = amdattn_command("exec", *given, *words)
    assert code == 2
    assert message in errors


def test_the_runtime_is_missing(amdattn_command: Command, tmp_path: Path) -> None:
    """It is said how to bring one."""
    code, _, errors = amdattn_command("exec", f"--runtime=amd:{tmp_path}", "true")
    assert code == 2
    assert f"{tmp_path} has no libamdhip64.so.7" in errors
    assert "python -m build_scripts.amd_runtime" in errors


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"text", "is neither an executable nor a script"),
        (elf(183), "is of architecture EM_AARCH64, not EM_X86_64"),
        (elf(62), "is linked statically"),
        (b"#!\n", "has no interpreter that is a program"),
    ],
)
def test_what_is_no_program(make: Make, tmp_path: Path, content: bytes, message: str) -> None:
    name = make("p", content)
    with pytest.raises(ValueError, match=message):
        program.command([str(name)], tmp_path, None)


def test_no_execute_permission(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(elf(62))
    with pytest.raises(ValueError, match="is no file that may be executed"):
        program.command([str(tmp_path / "p")], tmp_path, None)


def test_a_runtime_of_the_system(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a C library of its own the program is started as it is."""
    monkeypatch.setenv("LD_LIBRARY_PATH", "/mine")
    words, variables = program.command(["sh", "-c", "x"], tmp_path, runtime)
    assert os.path.basename(words[0]) == "sh" and words[1:] == ["-c", "x"]
    assert variables["LD_LIBRARY_PATH"] == f"{tmp_path}:{runtime}:/mine"
    assert variables["LD_PRELOAD"].startswith(f"{runtime}/libamdhip64.so.7:")


def test_a_runtime_with_a_c_library(
    runtime: Path, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program runs by its loader, scripts by their interpreter, and children as they are."""
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    (runtime / program.LOADER).touch()
    script = make("s", b"#!/usr/bin/env sh\nexit 0\n")
    words, variables = program.command([str(script), "a"], tmp_path, runtime)
    assert words[:3] == [str(runtime / program.LOADER), "--library-path", f"{tmp_path}:{runtime}"]
    assert os.path.basename(words[-3]) == "sh" and words[-2:] == [str(script), "a"]
    assert not {"LD_LIBRARY_PATH", "LD_PRELOAD"} & set(variables)


def test_findings_of_another_process(tmp_path: Path) -> None:
    """A code object that was not kept leaves its number."""
    launch = {"kernel": "k", "code_object": 7, "grid": [1, 1, 1], "workgroup_size": [64, 1, 1]}
    document = {"launches": [{**launch, "times": 3, "findings": []}], "host_findings": []}
    file = tmp_path / "f.json"
    file.write_text(json.dumps({**document, "dropped_launches": 2, "dropped_findings": 1}))
    log = read_log(file, tmp_path)
    assert log.num_launches == 5 and log.dropped_findings == 1
    assert log.kernels() == [("7", "k")]
