"""What the comments at the top of `asm_src/kernels/*.hip` say of each kernel."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from amdattn.device import manifest
from build_scripts.toolchain import ASM_SRC

KERNELS = sorted((ASM_SRC / "kernels").glob("*.hip"))
MOST_LINES = 25


def header(path: Path) -> list[str]:
    """Lines of the comment at the top."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return lines[: next(i for i, line in enumerate(lines) if not line.startswith("//"))]


def text_of(path: Path) -> str:
    """The same on one line."""
    return " ".join(" ".join(line.removeprefix("//") for line in header(path)).split())


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_a_header_is_short_and_has_what_a_reader_looks_for(path: Path) -> None:
    assert len(header(path)) <= MOST_LINES
    text = text_of(path)
    for word in ("Workgroup", "Grid", "The build defines KERNEL", "registers", "LDS"):
        assert word.lower() in text.lower(), word


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_figures_of_registers_and_lds_are_those_of_the_manifest(path: Path) -> None:
    source = f"asm_src/kernels/{path.name}"
    text, rows = text_of(path), [row for row in manifest.kernels() if row.source == source]
    counts = [row.vgpr for row in rows]  # of both kinds
    for least, most in re.findall(r"(\d+)(?: to (\d+))? (?:vector )?registers", text):
        assert (int(least), int(most or least)) == (min(counts), max(counts))
    for name, arch, *both in re.findall(r"(\w+) of (\w+): (\d+) vector, (\d+) accum", text):
        row = next(row for row in rows if (row.name, row.arch) == (name, arch))
        assert [int(count) for count in both] == [row.vgpr - row.agpr, row.agpr]
    most_bytes = max(row.lds_bytes for row in rows)
    assert not (most_bytes and "no lds" in text.lower())
    for count in re.findall(r"(\d+) bytes of LDS", text):
        assert int(count) == most_bytes


@functools.cache
def code_of_all_sources() -> str:
    """Without comments."""
    texts = (path.read_text(encoding="utf-8") for path in ASM_SRC.rglob("*.h*"))
    return re.sub(r"//[^\n]*", "", "\n".join(texts))


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_what_a_header_names_is_there(path: Path) -> None:
    """Files by their names, constants, and members of objects: `operand.q`, `shared->sums`."""
    text, code = text_of(path), code_of_all_sources()
    for file in re.findall(r"\b[\w/]+\.(?:h|hip|txt)\b", text):
        assert any(str(found).endswith(f"/{file}") for found in ASM_SRC.rglob("*.*")), file
    constants = re.findall(r"\bk[A-Z]\w+", text)
    members = re.findall(r"\b[a-z_]+(?:\.|->)([a-z_]\w+)(?=[^\w]|$)", text)
    for name in {*constants, *members} - {"h", "hip", "txt"}:
        assert re.search(rf"\b{name}\b", code), name
