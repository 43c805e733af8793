"""What a manifest may say: errors name file, row, field, value and what is allowed."""

from __future__ import annotations

import copy
import json
import os
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn import user_files
from amdattn.device import manifest, manifest_schema
from amdattn.errors import CorruptKernel, ManifestError
from amdattn.ops.gemm import plans as gemm_plans
from build_scripts import manifest as built
from build_scripts.build import HSACO

# Some of the shipped rows, as the newest schema has them.
TEXT = built.render(
    [
        row
        for row in built.read_rows(HSACO).values()
        if row["op"] in ("gemm_nt", "attn_fwd", "attn_merge")
        and (row["arch"], row["dtype"]) == ("gfx942", "float16")
    ]
)
DOCUMENT: dict[str, Any] = json.loads(TEXT)
AT = next(i for i, row in enumerate(DOCUMENT["kernels"]) if row["op"] == "gemm_nt")
NAME = DOCUMENT["kernels"][AT]["name"]
ODD: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 3, 1.5, 1e300, 2**31, 2**40, 2**70, float("nan"), float("inf")),
    *(
        "",
        "x",
        "any",
        "bfloat16",
        "../x.hsaco",
        "/dev/zero",
        [],
        [0],
        [1, 1, 1],
        [[]],
        {},
        {"a": 1},
    ),
)


@pytest.fixture
def kernels_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """Puts the shipped objects beside a manifest of this text, and has them used."""
    for file in HSACO.iterdir():
        if file.name != "manifest.json":
            (tmp_path / file.name).symlink_to(file)

    def use(text: str) -> Path:
        (tmp_path / "manifest.json").write_text(text, encoding="utf-8")
        forget()
        return tmp_path

    monkeypatch.setenv("AMDATTN_KERNEL_DIR", str(tmp_path))
    yield use
    monkeypatch.undo()
    forget()


def forget() -> None:
    manifest._of_override.cache_clear()
    manifest._load.cache_clear()
    gemm_plans.forget_plans()


def changed(*path: Any, to: Any) -> str:
    """The document with another value at a path in it; of schema 3, so of another digest."""
    document = copy.deepcopy(DOCUMENT)
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return json.dumps(document)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("name", ("", "a b", 1, None, "x" * 300)),
        ("symbol", ("../x", DOCUMENT["kernels"][0]["symbol"])),
        ("arch", ("", "gfx", "MI300X", 942)),
        ("dtype", ("bf17", 16, None, [])),
        ("params", ([], None, {"step": "64"}, {"step": 0}, {"step": 2**40}, {"packed": 1})),
        ("params", ({"stride": 1}, {"mfma": -16}, {"kv_dtype": "float9"})),
        ("tile", ([], {"m": 0}, {"m": -1}, {"m": 1.5}, {"m": 2**40}, {"m": "64"}, {"m": True})),
        ("tile", ({"m": 16, "z": 16}, {"m": None}, {"n": float("nan")}, {"n": [16]})),
        ("accepts", ({"max_n": -1}, {"max_n": "7"}, {"k_multiple": 0}, {"row_stride": [2, 1]})),
        ("accepts", ({"out_dtype": ["x"]}, {"out_dtype": []}, {"activation": [1]}, {"maximum": 1})),
        ("accepts", ({"head_dims": [8, 64]}, {"softcaps": [1, 0]}, {"softcaps": ["0", "1"]})),
        ("workgroup", ([], [64], [64, 1, 0], [64, 1, -1], [64.0, 1, 1], [1024, 2, 1], "64")),
        ("vgpr", (0, -1, 513, 1.0, "64", None, True)),
        ("lds_bytes", (-1, 2**40, "0", 0.5)),
        ("scratch_bytes", (-1, "0")),
        ("sha256", ("", "0" * 63, "G" * 64, 0)),
        ("bytes", (0, -1, 2**40, 1.5, "9", None)),
        ("code_object_version", (3, 7, "5")),
        ("kernarg", ("NoArgs", 1, [])),
        ("target", ("amdgcn-amd-amdhsa--gfx90a", 1)),
        ("file", ("/dev/zero", "../gfx942/x.hsaco", "gfx942/../x.hsaco", "gfx942/x", "", 1)),
        ("file", ("/etc/passwd", "gfx942//x.hsaco", ".hsaco", "a\nb.hsaco", "~/x.hsaco")),
        ("sources", ({}, None, "x")),
    ],
)
def test_values_that_no_row_has(
    kernels_of: Callable[[str], Path], field: str, values: tuple[Any, ...]
) -> None:
    for value in values:
        folder = kernels_of(changed("kernels", AT, field, to=value))
        with pytest.raises(ManifestError) as refused:
            amdattn.kernels()
        text = str(refused.value)
        row = f"{folder / 'manifest.json'} is malformed: kernels[{AT}]"
        assert text.startswith(row) and " must be " in text, text
        assert re.search(rf"\b{field}[.=]", text), text
        assert field == "name" or f"({NAME})" in text


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ((), [], "must be an object"),
        (("schema",), 99, "has schema 99; this amdattn reads schema 2 and 3"),
        (("schema",), True, "has schema True"),
        (("kernels",), [], "kernels=.* must be a list with elements"),
        (("kernels",), {}, "kernels={} must be a list"),
        (("kernels", 0), [], r"kernels\\[0\\]: all of it=\\[\\] must be an object"),
        (("kernels", 0, "speed"), 1, r"kernels\\[0\\] .*has 'speed', which means nothing"),
        (("more",), 1, "the document has 'more', which means nothing"),
        (("kernargs", "GemmArgs", "header"), "../gemm.h", "header='../gemm.h' must be the name"),
        (("kernargs", "GemmArgs", "size"), 0, r"kernargs\\['GemmArgs'\\]: size=0 must be"),
        (("kernargs", "GemmArgs", "fields", 0), ["a", 0, 8], "fields=.* must be a list"),
        (("kernargs", "GemmArgs", "fields", 0, 3), "void*", r"fields\\[0\\] type='void\\*' must"),
        (("kernargs", "GemmArgs", "fields", 0, 1), 4000, r"fields\\[0\\]=.* must be in 128 bytes"),
        (("sha256",), "0" * 64, "was changed since it was built: sha256='0000"),
    ],
)  # fmt: skip
def test_documents_that_are_none(
    kernels_of: Callable[[str], Path], path: tuple[Any, ...], value: Any, text: str
) -> None:
    kernels_of(changed(*path, to=value) if path else json.dumps(value))
    with pytest.raises(ManifestError, match=text.replace("\\\\", "\\")):
        amdattn.kernels()


def test_fields_that_are_missing(kernels_of: Callable[[str], Path]) -> None:
    for field in DOCUMENT["kernels"][AT]:
        row = {key: value for key, value in DOCUMENT["kernels"][AT].items() if key != field}
        kernels_of(changed("kernels", AT, to=row))
        with pytest.raises(ManifestError, match=rf"kernels\[{AT}\].* has no '{field}'"):
            amdattn.kernels()


def test_what_no_rule_can_tell_is_not_believed(kernels_of: Callable[[str], Path]) -> None:
    """A kernel that accepts more than it does, or is of another element type."""
    for path, value in (
        (("accepts", "k_multiple"), 1),
        (("dtype",), "bfloat16"),
        (("grid",), "one_workgroup"),
        (("tile", "m"), 32),
        (("params", "step"), 128),
    ):
        assert DOCUMENT["kernels"][AT][path[0]] not in (value, {path[-1]: value})
        kernels_of(changed("kernels", AT, *path, to=value))
        with pytest.raises(ManifestError, match="was changed since it was built"):
            amdattn.kernels()
    kernels_of(TEXT)
    assert len(amdattn.kernels()) == len(DOCUMENT["kernels"])
    kernels_of(TEXT.replace(" ", "  ", 1))
    with pytest.raises(ManifestError, match="was changed since it was built"):
        amdattn.kernels()


def test_the_schema_before_is_read() -> None:
    """Folders of earlier kernels are compared with: docs/tuning.md."""
    former = copy.deepcopy(DOCUMENT)
    former["schema"] = manifest_schema.FORMER_SCHEMA
    del former["sha256"], former["sources"]
    for row in former["kernels"]:
        del row["bytes"], row["sources"]
        row["source_sha256"] = {}
    manifest_schema.check(Path("manifest.json"), former)
    former["kernels"][3]["bytes"] = 7
    with pytest.raises(ManifestError, match="has 'bytes', which means nothing"):
        manifest_schema.check(Path("manifest.json"), former)


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["folder", "pipe", "zero", "nested", "large", "binary", "gone"])
def test_manifests_that_are_no_files(
    kernels_of: Callable[[str], Path], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kernels_of(TEXT) / "manifest.json"
    path.unlink()
    put(path, kind)
    if kind == "nested":
        path.write_text("[" * 100_000 + "]" * 100_000)
    forget()
    with pytest.raises(ManifestError, match=f"cannot read {path}"):
        amdattn.kernels()


def put(path: Path, kind: str) -> None:
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)  # nobody writes to it: opening it would wait for ever
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    elif kind == "large":
        with path.open("wb") as file:
            file.truncate(user_files.MAX_BYTES + 1)
    elif kind == "binary":
        path.write_bytes(b"\xff\xfe\x00")


@pytest.mark.parametrize("kind", ["folder", "pipe", "zero", "large", "binary", "gone"])
def test_code_objects_that_are_no_files(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "k.hsaco"
    put(path, kind)
    with pytest.raises(CorruptKernel, match=r"k\.hsaco"):
        kernel(path).read_code_object()


def kernel(path: Path, nbytes: int | None = 1000) -> manifest.KernelSpec:
    import dataclasses

    return dataclasses.replace(amdattn.kernels()[0], path=path, nbytes=nbytes)


def test_a_link_to_a_file_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(amdattn.kernels()[0].read_code_object())
    (tmp_path / "k.hsaco").symlink_to(tmp_path / "file")
    image = kernel(tmp_path / "k.hsaco", None).read_code_object()
    assert image == kernel(tmp_path / "k.hsaco", len(image)).read_code_object()


# -- fuzz ------------------------------------------------------------------------------------------


def mutated(drawn: random.Random) -> str:
    """The document with one to three changes anywhere in it, or in its text."""
    if drawn.random() < 0.1:
        at, word = (
            drawn.randrange(len(TEXT)),
            drawn.choice(("", "0", "9", "-", '"', "[", "}", "e9")),
        )
        return TEXT[:at] + word + TEXT[at + drawn.randint(0, 3) :]
    document = {**DOCUMENT, "kernels": list(DOCUMENT["kernels"])}
    for _ in range(drawn.randint(1, 3)):
        at = drawn.choice((AT, 0, drawn.randrange(len(document["kernels"]))))
        document["kernels"][at] = place = copy.deepcopy(document["kernels"][at])
        while True:
            key = drawn.choice(list(place) if isinstance(place, dict) else range(len(place)))
            inner = place[key]
            if isinstance(inner, (dict, list)) and inner and drawn.random() < 0.7:
                place = inner
                continue
            break
        if drawn.random() < 0.15:
            del place[key]
        elif type(inner) is int and drawn.random() < 0.5:
            place[key] = drawn.choice((inner * 2, inner // 2, inner + 1, -inner, inner * 2**20))
        else:
            place[key] = drawn.choice(ODD)
    return json.dumps(document)


@pytest.mark.device
@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_mutated_manifests(kernels_of: Callable[[str], Path], count: int) -> None:
    """Each is refused, naming the file, or computes what the shipped one does."""
    a = np.arange(4 * 64, dtype=np.float32).reshape(4, 64).astype(np.float16)
    q = a.reshape(1, 4, 1, 64)
    kernels_of(TEXT)

    def results() -> list[bytes]:
        return [amdattn.gemm_nt(a, a).tobytes(), amdattn.flash_attn_func(q, q, q).tobytes()]

    right, drawn, refused = results(), random.Random(0), 0
    for _ in range(count):
        folder = kernels_of(mutated(drawn))
        try:
            manifest.kernels()
            assert results() == right
        except (ManifestError, CorruptKernel) as error:
            assert str(folder) in str(error)
            refused += 1
    assert refused > 0.9 * count
