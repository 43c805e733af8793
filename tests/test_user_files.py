"""Files of users that hold anything: a ValueError that names them, and nothing is ignored."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn import user_files
from amdattn.bench import record
from amdattn.checking.arguments import Buffer, read_arguments
from amdattn.checking.suppressions import Suppressions
from amdattn.dtypes import as_dtype
from amdattn.ops.gemm import plans as gemm_plans, table as gemm_table

READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "tuning table": (".json", gemm_table.load),
    "suppressions (json)": (".json", Suppressions.read),
    "suppressions (toml)": (".toml", Suppressions.read),
    "arguments (json)": (".json", lambda path: read_arguments(f"@{path}")),
    "arguments (text)": (".txt", lambda path: read_arguments(f"@{path}")),
    "benchmark": (".json", record.read),
}
reader = pytest.mark.parametrize(("suffix", "read"), READERS.values(), ids=list(READERS))


@reader
def test_what_is_no_file(tmp_path: Path, suffix: str, read: Callable[[Path], object]) -> None:
    path = tmp_path / f"it{suffix}"
    path.mkdir()
    with pytest.raises(ValueError, match=f"{path}.*is not a regular file"):
        read(path)
    path.rmdir()
    os.mkfifo(path)  # nobody writes to it: opening it would wait for ever
    with pytest.raises(ValueError, match=f"{path}.*is not a regular file"):
        read(path)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(ValueError, match=f"{path}.*is not a regular file"):
        read(path)
    path.unlink()
    with path.open("wb") as file:
        file.truncate(user_files.MAX_BYTES + 1)
    with pytest.raises(ValueError, match=f"{path}.*more than {user_files.MAX_BYTES}"):
        read(path)


@reader
def test_what_no_parser_takes(tmp_path: Path, suffix: str, read: Callable[[Path], object]) -> None:
    path = tmp_path / f"it{suffix}"
    nested = "[" * 100_000 + "]" * 100_000
    for text in (nested, f'{{"schema": 3, "entries": {nested}}}', f"x = {nested}", "9" * 10_000):
        path.write_text(text)
        with pytest.raises(ValueError, match=str(path)):
            read(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=str(path)):
        read(path)


@reader
def test_any_json(tmp_path: Path, suffix: str, read: Callable[[Path], object]) -> None:
    """Documents of the right outline with values of every kind: accepted or a ValueError."""
    if suffix != ".json":
        pytest.skip("no JSON")
    path = tmp_path / "it.json"
    odd: list[Any] = [None, True, -1, 0, 1 << 70, 1.5, "", "x", [], [[]], {}, {"name": []}]
    odd += [float("nan"), float("inf")]
    argument = {"name": "x", "role": "in", "dtype": "float32", "shape": [4]}
    outlines: list[Callable[[Any], Any]] = [
        lambda value: value,
        lambda value: [value],
        lambda value: {"schema": value, "entries": value, "records": value, "suppression": value},
        *(
            lambda value, schema=schema: {"schema": schema, "entries": [value], "records": [value]}
            for schema in (1, 2, 3)
        ),
        lambda value: {"schema": 3, "entries": [{"for": value, "choice": value}]},
        lambda value: {"suppression": [value]},
        lambda value: {"schema": 1, "records": [{"times": value}]},
        *(
            lambda value, key=key: [argument | {key: value}]
            for key in (*argument, "fill", "seed", "low", "high", "file", "value")
        ),
        lambda value: [{"name": "n", "dtype": value, "value": 1}],
        lambda value: [{"name": "n", "dtype": "float32", "value": value}],
    ]
    for outline in outlines:
        for value in odd:
            path.write_text(json.dumps(outline(value)))
            try:
                read(path)
            except ValueError as error:
                assert str(path) in str(error)


# -- arrays ----------------------------------------------------------------------------------------


def test_arrays(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"

    def contents() -> Any:
        return Buffer("x", "in", as_dtype("float32"), (2, 3), "file", file=str(path)).contents(0)

    np.save(path, np.ones((2, 3), np.float32))
    assert (contents() == 1).all()
    whole = path.read_bytes()
    for cut in (0, 5, 40, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match=r"is not a \.npy file of numbers"):
            contents()
    huge = whole.replace(b"(2, 3)", b"(2000000000, 2000000000)".ljust(24))
    np.savez(tmp_path / "x.npz", np.ones(3))
    for content in (huge, (tmp_path / "x.npz").read_bytes(), b"\x80\x04K\x01."):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"is not a \.npy file of numbers"):
            contents()
    np.save(path, np.array([{}]), allow_pickle=True)
    with pytest.raises(ValueError, match=r"is not a \.npy file of numbers"):
        contents()
    path.unlink()
    path.mkdir()
    with pytest.raises(ValueError, match="is not a regular file"):
        contents()


# -- the tuning table ------------------------------------------------------------------------------

KEY: dict[str, Any] = {
    **{"chip": "MI300X", "num_cus": 304, "dtype": "bfloat16", "m": 5, "n": 80, "k": 1024},
    **{"has_factors": False, "deterministic": True},
}
CHOICE: dict[str, Any] = {
    **{"kernel": "gemm_nt_bf16_m64n64", "splits": 3, "columns": 32, "us": 9.0, "how": "by hand"},
}


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    path = tmp_path / "gemm.json"
    monkeypatch.setenv("AMDATTN_GEMM_TABLE", str(path))

    def plan(entries: list[dict[str, Any]]) -> Any:
        path.write_text(json.dumps({"schema": gemm_table.SCHEMA, "entries": entries}))
        gemm_plans.forget_plans()
        gemm_table._load.cache_clear()
        return amdattn.plan_gemm(5, 80, 1024, device="MI300X")

    yield plan
    monkeypatch.undo()
    gemm_plans.forget_plans()


def test_a_choice_that_there_is(table: Any) -> None:
    plan = table([{"for": KEY, "choice": CHOICE}])
    assert (plan.kernel.name, plan.splits) == ("gemm_nt_bf16_m64n64", 3)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"kernel": "gemm_nt_old"}, "kernel='gemm_nt_old' must be one of gemm_nt_bf16_"),
        ({"kernel": "attn_fwd"}, "kernel='attn_fwd' must be one of gemm_nt_bf16_"),
        ({"kernel": "gemm_nt_f16_m64n64"}, "must be one of gemm_nt_bf16_"),
        ({"splits": 1 << 20}, "splits=1048576 must be one of 1, 2, 3"),
        ({"splits": 11}, "splits=11 must be one of 1, 2, 3"),
        ({"columns": 31}, "columns=31 must be one of"),
        ({"columns": 640}, "columns=640 must be one of"),
    ],
)
def test_choices_that_there_are_not(table: Any, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match="entry for m=5, n=80, k=1024, bfloat16") as refused:
        table([{"for": KEY, "choice": CHOICE | changes}])
    assert why in str(refused.value) and "amdattn tune gemm" in str(refused.value)


@pytest.mark.parametrize(
    ("key", "choice"),
    [
        *(({name: value}, {}) for name in ("m", "n", "k", "num_cus") for value in (0, -1, 1 << 31)),
        *(({}, {name: value}) for name in ("splits", "columns") for value in (0, -3, 1 << 40)),
        *(({}, {"us": value}) for value in (0.0, -1.0, float("nan"), float("inf"))),
    ],
)
def test_values_that_nothing_has(table: Any, key: dict[str, Any], choice: dict[str, Any]) -> None:
    (name,) = {**key, **choice}
    with pytest.raises(ValueError, match=f"entry 1: ValueError: {name} is "):
        table([{"for": KEY | key, "choice": CHOICE | choice}])


def test_an_entry_twice(table: Any) -> None:
    with pytest.raises(ValueError, match="entry 2: ValueError: repeats an earlier one"):
        table([{"for": KEY, "choice": CHOICE}] * 2)
