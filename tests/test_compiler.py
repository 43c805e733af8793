"""Kernels whose files have any name that Linux allows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from amdattn import compiler
from amdattn.device.code_object import read_kernels

SOURCE = """\
#include <hip/hip_runtime.h>
#include "here.h"
extern "C" __global__ void k(int* p) { *p = N; }
"""


@pytest.mark.parametrize(
    "name",
    [
        *(
            "-o.hip",
            "-.hip",
            "--help",
            "@k.hip",
            "-",
            "%s.hip",
            "$k.hip",
            "a b.hip",
            "a\tb.hip",
        ),
        *('a"b.hip', "a\\b.hip", "a\\nb.hip", "a,b=c;d#e:f.hip", "*", "k.c", "k\x01.hip"),
        *("\N{LATIN SMALL LETTER U WITH DIAERESIS}.hip", os.fsdecode(b"\xff.hip")),
    ],
)
def test_names_of_sources(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / f"folder of {name}"
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("here.h").write_text("#define N 1\n")
    Path(name).write_text(SOURCE)
    built = compiler.build(Path(name), includes=[Path()])
    assert list(read_kernels(built.code_object, name)) == ["k"] and not built.warnings
    assert {path.name for path in folder.iterdir()} == {"here.h", name}


@pytest.mark.parametrize("broken", ["a\nb", "a\rb", "a\\\n"])
def test_line_breaks_are_refused(tmp_path: Path, broken: str) -> None:
    folder = tmp_path / broken
    folder.mkdir()
    source = tmp_path / "k.hip"
    for path in (source, folder / "k.hip", tmp_path / f"{broken}.hip"):
        path.write_text(SOURCE.replace('#include "here.h"', "#define N 1"))
    for path in (folder / "k.hip", tmp_path / f"{broken}.hip"):
        with pytest.raises(ValueError, match=r"^source '/.*' must have no line break in its path$"):
            compiler.build(path)
    with pytest.raises(ValueError, match=r"^includes '/.*' must have no line break in its path$"):
        compiler.build(source, includes=[folder])
