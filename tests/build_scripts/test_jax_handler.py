"""The handler for JAX as it is built: small, of C alone, with the names that Python looks for."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from amdattn import paths
from build_scripts import jax_handler


def test_what_is_installed() -> None:
    path = paths.native_library_dir() / jax_handler.NAME
    library = ctypes.CDLL(str(path))
    for name in ("cpu", "rocm", "bind", "set_resolver", "add_kernel"):
        assert hasattr(library, f"amdattn_xla_{name}")
    assert not hasattr(library, "find_kernel")  # nothing else is seen from outside
    assert path.stat().st_size < 64 << 10
    with path.open("rb") as file:
        tags = ELFFile(file).get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
        assert {tag.needed for tag in tags} <= {"libc.so.6", "ld-linux-x86-64.so.2"}


def test_it_is_compiled_once(tmp_path: Path) -> None:
    library = jax_handler.build(tmp_path)
    before = library.stat().st_mtime_ns
    assert jax_handler.build(tmp_path) == library and library.stat().st_mtime_ns == before
    assert [file.name for file in tmp_path.iterdir()] == [jax_handler.NAME]


@pytest.mark.parametrize(
    ("cxx", "expected"),
    [
        ("g++-12 -m64", ["gcc-12", "-m64"]),
        ("/usr/bin/clang++", ["/usr/bin/clang"]),
        ("c++", ["cc"]),
        ("mycc", ["mycc"]),
    ],
)
def test_the_compiler_that_is_named(
    cxx: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMDATTN_CXX", cxx)
    assert jax_handler.compiler() == expected
