"""A rebuild compiles what has changed, and nothing else."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from build_scripts import memo
from build_scripts.toolchain import LLVM22, Compiled


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, ...]]:
    """Calls of one that takes the source and a header beside it for its object."""
    calls: list[tuple[str, ...]] = []

    def compile_hip(
        source: Path, _: object, arch: str, defines: tuple[str, ...], flags: tuple[str, ...]
    ) -> Compiled:
        calls.append((source.name, arch, *defines, *flags))
        sources = (source, source.with_name("header.h"))
        return Compiled(b"".join(path.read_bytes() for path in sources), "text", sources)

    monkeypatch.setattr(memo, "ASM_SRC", tmp_path)
    monkeypatch.setattr(memo, "compile_hip", compile_hip)
    return calls


def test_only_what_changed_is_compiled(compiler: list[tuple[str, ...]], tmp_path: Path) -> None:
    source, header, folder = tmp_path / "a.hip", tmp_path / "header.h", tmp_path / "compiled"
    source.write_bytes(b"one ")
    header.write_bytes(b"two")

    def run(arch: str = "gfx942", define: str = "X=1", flag: str = "-O3") -> Compiled:
        return memo.compile_changed(source, LLVM22, arch, (define,), (flag,), folder)

    first = run()
    assert run() == first and len(compiler) == 1
    for other in ({"arch": "gfx950"}, {"define": "X=2"}, {"flag": "-O2"}):
        run(**other)
    assert len(compiler) == 4
    header.write_bytes(b"three")
    assert run().code_object == b"one three" and run().code_object == b"one three"
    assert len(compiler) == 5
    header.write_bytes(b"two")
    source.write_bytes(b"1 ")
    assert run().code_object == b"1 two"


def test_what_changes_meanwhile_is_not_kept(
    compiler: list[tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, header = tmp_path / "a.hip", tmp_path / "header.h"
    source.write_bytes(b"one ")
    header.write_bytes(b"two")
    arguments = source, LLVM22, "gfx942", (), (), tmp_path / "compiled"
    original = memo.compile_hip

    def compile_and_edit(*given: Any) -> Compiled:
        compiled = original(*given)
        time.sleep(0.02)  # more than a file's time is rounded by
        header.write_bytes(b"three")
        return compiled

    monkeypatch.setattr(memo, "compile_hip", compile_and_edit)
    assert memo.compile_changed(*arguments).code_object == b"one two"
    monkeypatch.setattr(memo, "compile_hip", original)
    assert memo.compile_changed(*arguments).code_object == b"one three"
    assert len(compiler) == 2


def test_a_header_that_is_gone(compiler: list[tuple[str, ...]], tmp_path: Path) -> None:
    source, header = tmp_path / "a.hip", tmp_path / "header.h"
    source.write_bytes(b"one ")
    header.write_bytes(b"two")
    arguments = source, LLVM22, "gfx942", (), (), tmp_path / "compiled"
    memo.compile_changed(*arguments)
    header.unlink()
    with pytest.raises(FileNotFoundError):
        memo.compile_changed(*arguments)
    assert len(compiler) == 2
