"""Packs of code objects: what is read of them, and errors that name the file that is to blame."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import lzma
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import amdattn
from amdattn import user_files
from amdattn.device import manifest, manifest_schema, packs
from amdattn.errors import CorruptKernel
from build_scripts import packed_objects

IMAGES = {f"k{i}.hsaco": bytes((i + j) % 251 for j in range(900 + i)) for i in range(5)}
PACKS = ("pack_0.xz", "pack_1.xz", "pack_2.xz")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five objects in packs of two, two and one."""
    monkeypatch.setattr(packed_objects, "PACK_BYTES", 2000)
    packed_objects.write_folder(tmp_path / "packed", {"pack": IMAGES})
    assert {path.name for path in (tmp_path / "packed").iterdir()} == {packs.INDEX, *PACKS}
    return tmp_path / "packed"


def row(folder: Path, name: str = "k3.hsaco", **changes: Any) -> manifest.KernelSpec:
    """The row of an object, which is in the second pack."""
    digest = hashlib.sha256(IMAGES.get(name, b"")).hexdigest()
    facts = {"sha256": digest, "nbytes": len(IMAGES.get(name, b"")), **changes}
    return dataclasses.replace(amdattn.kernels()[0], path=folder / name, **facts)


def test_objects_of_packs_are_what_was_packed(folder: Path) -> None:
    for name, image in (*IMAGES.items(), *reversed(IMAGES.items())):
        assert row(folder, name).read_code_object() == image
        assert row(folder, name, nbytes=None).read_code_object() == image


def test_a_file_goes_before_a_pack(folder: Path) -> None:
    (folder / "k3.hsaco").write_bytes(b"new")
    digest = hashlib.sha256(b"new").hexdigest()
    assert row(folder, sha256=digest).read_code_object() == b"new"


def test_the_hash_of_the_manifest_decides(folder: Path) -> None:
    with pytest.raises(CorruptKernel, match=r"k3\.hsaco has sha256 .*reinstall"):
        row(folder, sha256="0" * 64).read_code_object()


def test_no_more_packs_are_kept_than_two(folder: Path) -> None:
    for name in IMAGES:
        row(folder, name).read_code_object()
    assert packs._unpacked.cache_info().currsize <= 2


def flip(content: bytes) -> bytes:
    at = len(content) // 2
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (flip, r"pack_1\.xz: Corrupt input data"),
        (lambda x: x[:-40], r"pack_1\.xz: Compressed data ended"),
        (lambda x: b"", r"pack_1\.xz: Compressed data ended"),
        (lambda x: b"MZ" + x, r"pack_1\.xz: Input format not supported"),
        (lambda x: lzma.compress(lzma.decompress(x)[:-1]), r"pack_1\.xz: unpacks to 1804 bytes"),
        (lambda x: lzma.compress(lzma.decompress(x) + b"?"), r"pack_1\.xz: unpacks to more than"),
    ],
)
def test_a_damaged_pack_is_named(
    folder: Path, damage: Callable[[bytes], bytes], named: str
) -> None:
    file = folder / "pack_1.xz"
    content = file.read_bytes()
    file.write_bytes(damage(content))
    for _ in range(2):  # the second time, too
        with pytest.raises(CorruptKernel, match=rf"cannot read .*/k3\.hsaco: {named}"):
            row(folder).read_code_object()
    assert row(folder, "k0.hsaco").read_code_object()  # of another pack
    file.write_bytes(content)
    assert row(folder).read_code_object() == IMAGES["k3.hsaco"]


def test_what_is_missing_is_named(folder: Path) -> None:
    with pytest.raises(CorruptKernel, match=r"no k9\.hsaco, and packs\.json has none"):
        row(folder, "k9.hsaco", nbytes=9).read_code_object()
    (folder / "pack_1.xz").unlink()
    with pytest.raises(CorruptKernel, match=r"No such file or directory: '.*pack_1\.xz'"):
        row(folder).read_code_object()
    (folder / packs.INDEX).unlink()
    with pytest.raises(CorruptKernel, match=r"there is neither k3\.hsaco nor packs\.json"):
        row(folder).read_code_object()


@pytest.mark.parametrize("name", ["pack_1.xz", packs.INDEX])
@pytest.mark.parametrize("kind", ["folder", "pipe", "zero", "large"])
def test_what_is_no_file_is_named(folder: Path, name: str, kind: str) -> None:
    file = folder / name
    file.unlink()
    if kind == "folder":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)  # nobody writes to it: opening it would wait for ever
    elif kind == "zero":
        file.symlink_to("/dev/zero")
    else:
        with file.open("wb") as opened:
            opened.truncate(user_files.MAX_BYTES + 1)
    with pytest.raises(CorruptKernel, match=name):
        row(folder).read_code_object()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("[" * 100000, "nests too deeply"),
        ("[]", "is no object of packs"),
        ('{"pack_1.xz": []}', "not an object of names and bytes"),
        *(
            (f'{{"pack_1.xz": {{"k3.hsaco": {n}}}}}', "not an object of names and bytes")
            for n in ("0", "-1", "1.5", "true", "null", str(2**40), "NaN")
        ),
        (json.dumps({"pack_1.xz": {str(i): 2**23 for i in range(3)}}), "has more than 16777216"),
        *(
            (f'{{"{name}": {{}}}}', "is not the name of a pack in its folder")
            for name in ("../pack_1.xz", "/pack_1.xz", "pack_1", "")
        ),
        ('{"pack_1.xz": {"k3.hsaco": 904}}', r"k3\.hsaco has 904 bytes, more than 903"),
    ],
)
def test_a_malformed_index_is_named(folder: Path, text: str, why: str) -> None:
    (folder / packs.INDEX).write_text(text)
    with pytest.raises(CorruptKernel, match=rf"packs\.json: .*{why}"):
        row(folder).read_code_object()


def test_what_unpacks_to_more_than_there_is(folder: Path) -> None:
    """A few KB that would become 128 MB: unpacking stops where the index says."""
    packer = lzma.LZMACompressor(preset=0)
    some = bytes(2**24)
    packed = b"".join([*(packer.compress(some) for _ in range(8)), packer.flush()])
    assert len(packed) < 2**15
    (folder / "pack_1.xz").write_bytes(packed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CorruptKernel, match=r"pack_1\.xz: unpacks to more than 1805"):
        row(folder, nbytes=manifest_schema.MAX_CODE_OBJECT_BYTES).read_code_object()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**16  # KB


def test_what_takes_more_memory_than_there_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**28}]
    (folder / "pack_1.xz").write_bytes(lzma.compress(b"image", filters=filters))
    with pytest.raises(CorruptKernel, match=r"pack_1\.xz: Memory usage limit"):
        row(folder).read_code_object()

    def no_memory(*_: object) -> bytes:
        raise MemoryError

    monkeypatch.setattr(packs, "_unpacked", no_memory)
    with pytest.raises(CorruptKernel, match="MemoryError"):
        row(folder).read_code_object()


def test_a_python_without_lzma_is_told_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lzma", None)
    with pytest.raises(CorruptKernel, match=r"pack_1\.xz needs the module lzma"):
        row(folder).read_code_object()
