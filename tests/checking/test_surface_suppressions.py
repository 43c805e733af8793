"""Suppression files: the two formats, and every way to write one wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from amdattn.checking.suppressions import Suppression, Suppressions

GOOD = {"kernel": "lds_reduce", "pc": 0x4C, "kind": "lds_race", "reason": "both store the same"}


def write(folder: Path, *rows: Any) -> Path:
    file = folder / "known.json"
    file.write_text(json.dumps({"suppression": list(rows)}))
    return file


def test_toml_and_json_say_the_same(tmp_path: Path) -> None:
    toml = tmp_path / "known.toml"
    toml.write_text(
        '[[suppression]]\nkernel = "lds_reduce"\npc = 0x4c\nkind = "lds_race"\n'
        'reason = "both store the same"\n'
    )
    expected = (Suppression("lds_reduce", 0x4C, "lds_race", "both store the same"),)
    assert Suppressions.read(toml).entries == expected
    assert Suppressions.read(write(tmp_path, GOOD)).entries == expected
    assert Suppressions.read(write(tmp_path, GOOD | {"pc": "0x4c"})).entries == expected
    assert str(expected[0]) == "lds_race of lds_reduce at +0x4c: both store the same"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kernel": None}, r"suppression 2: lacks kernel; all of kernel, pc, kind, reason"),
        ({"pc": None}, "suppression 2: lacks pc"),
        ({"kind": None}, "suppression 2: lacks kind"),
        ({"reason": None}, "suppression 2: lacks reason"),
        ({"reason": "  "}, "reason='  ' must be a text that is not empty"),
        ({"kernel": 3}, "kernel=3 must be a text"),
        ({"kind": "race"}, "kind='race' must be one of use_before_wait, "),
        ({"pc": -4}, "pc=-4 must be the instruction's offset"),
        ({"pc": -1}, "pc=-1 must be the instruction's offset"),
        ({"pc": "-0x1"}, "pc=-1 must be the instruction's offset"),
        ({"pc": True}, "pc=True must be"),
        ({"pc": "here"}, "pc='here' must be"),
        ({"pc": 1.5}, r"pc=1\.5 must be"),
        ({"lane": 3}, "has lane; there is only kernel, pc, kind, reason"),
        ({}, "repeats an earlier entry"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    row = {key: value for key, value in (GOOD | changes).items() if value is not None}
    file = write(tmp_path, GOOD, row)
    with pytest.raises(ValueError, match=message) as caught:
        Suppressions.read(file)
    assert str(caught.value).startswith(str(file))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", "[[suppression]\n", "a.toml: "),
        ("a.json", "{", "a.json: "),
        ("a.json", "[]", "must hold a table, not a list"),
        ("a.json", "{}", "has no list of them"),
        ("a.json", '{"suppression": {}}', "has no list of them"),
        ("a.json", '{"suppression": [3]}', "suppression 1: must be a table"),
        ("a.toml", "[suppressions]\n", "but has suppressions"),
        ("a.txt", "", r"must be a \.toml or a \.json file"),
        ("a.json", b"\xff\xfe", "a.json: "),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, name: str, text: str | bytes, message: str) -> None:
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=message) as caught:
        Suppressions.read(file)
    assert str(caught.value).startswith(str(file))


def test_an_empty_list_is_fine(tmp_path: Path) -> None:
    assert Suppressions.read(write(tmp_path)).entries == ()
