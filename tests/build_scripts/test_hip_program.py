"""Whole HIP programs: the bundle of code objects that a program carries, and what is missing."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from build_scripts import hip_program
from build_scripts.toolchain import ToolchainError


def test_a_bundle() -> None:
    """As clang's offload bundler writes it: a table, then images at multiples of a page."""
    images = {"gfx942": b"a" * 5000, "gfx950": b"b" * 3}
    bundle = hip_program.bundled(images)
    assert bundle.startswith(b"__CLANG_OFFLOAD_BUNDLE__")
    (count,), at = struct.unpack_from("<Q", bundle, 24), 32
    found = {}
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", bundle, at)
        name = bundle[at + 24 : at + 24 + length].decode()
        assert offset % 4096 == 0
        found[name] = bundle[offset : offset + size]
        at += 24 + length
    assert found.pop("host-x86_64-linux-gnu-") == b""
    assert found == {f"hipv4-amdgcn-amd-amdhsa--{arch}": image for arch, image in images.items()}


def test_without_headers(tmp_path: Path) -> None:
    """It is said what brings them."""
    with pytest.raises(ToolchainError, match=r"python -m build_scripts\.amd_runtime"):
        hip_program.compile_program(tmp_path / "a.hip", tmp_path / "a", runtime=tmp_path)
