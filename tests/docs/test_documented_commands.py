"""Commands in the documents are ones that exist: scripts, modules, and options of amdattn."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from amdattn import cli
from tests.support.paths import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Beside what a page shows in blocks and between backquotes, commands are not told from words.
SHOWN = re.compile(r"^```[a-z]*\n(.*?)^```|`([^`\n]+)`|^((?: {4}[^\n]*\n)+)", re.M | re.S)


def commands(page: Path) -> Iterator[list[str]]:
    """Words of every line that is shown as one, from "amdattn" or "python" on."""
    for shown in SHOWN.finditer(page.read_text(encoding="utf-8")):
        text = next(part for part in shown.groups() if part is not None)
        for line in text.replace("\\\n", " ").split("\n"):
            words = re.split(r"\s#|[|;>&]", line)[0].split()
            starts = [i for i, word in enumerate(words) if word in ("amdattn", "python", "python3")]
            if starts and all("=" in word for word in words[: starts[0]]):
                yield words[starts[0] :]


@functools.cache
def _amdattn() -> Any:
    return typer.main.get_command(cli.app)


def unknown(words: list[str]) -> str:
    """What of a command does not exist; "" if all of it does."""
    if words[0] != "amdattn":
        return _unknown_script(words[1:])
    command = _amdattn()
    rest = iter(words[1:])
    word = ""
    for word in rest:
        if not hasattr(command, "get_command") or word.startswith("-"):
            break
        found = command.get_command(None, word)  # type: ignore[arg-type]
        if found is None:
            return f"command {word}" if word.isalpha() and not word.isupper() else ""
        command = found
    options = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
    given = [name.split("=")[0] for name in (word, *rest) if re.match(r"--?[a-z]", name)]
    return " ".join(name for name in given if name not in {*options, "--help"})


def _unknown_script(words: list[str]) -> str:
    if words[:1] == ["-m"] and len(words) > 1:
        name = words[1].split(".")[0]
        ours = (ROOT / name).is_dir()
        return "" if not ours or _runs(words[1]) else f"module {words[1]}"
    file = words[0] if words else ""
    ours = file.endswith(".py") and (ROOT / file.split("/")[0]).is_dir()
    return "" if not ours or (ROOT / file).is_file() else f"file {file}"


def _runs(module: str) -> bool:
    try:
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{module}.__main__")
    except ModuleNotFoundError:
        return False
    return spec is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_exist(page: Path) -> None:
    wrong = [
        f"{' '.join(words)}: no {what}" for words in commands(page) if (what := unknown(words))
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("amdattn check attention --mutate", "--mutate"),
        ("amdattn bench attention -b 2 --peer object=x", ""),
        ("amdattn bench atention", "command atention"),
        ("amdattn bench NAME", ""),
        ("python -m build_scripts.bench_tables", "module build_scripts.bench_tables"),
        ("python -m benchmarks.attention_bench --json x", ""),
        ("python -m benchmarks.checker_mutation all", ""),
        ("python -m benchmarks.peers", "module benchmarks.peers"),
        ("python benchmarks/gone.py", "file benchmarks/gone.py"),
        ("python -m pytest", ""),
    ],
)
def test_what_does_not_exist_is_found(line: str, what: str) -> None:
    assert unknown(line.split()) == what


def test_commands_are_found() -> None:
    found = [words for page in PAGES for words in commands(page)]
    assert sum(words[0] == "amdattn" for words in found) > 60
    assert sum("benchmarks" in " ".join(words) for words in found) > 10


NAMED = re.compile(
    r"`((?:amdattn|virtual_device|hsaco|build_scripts|asm_src|tests|benchmarks|\.ci)/[\w./-]*)`"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_pages_name_exist(page: Path) -> None:
    named = set(NAMED.findall(page.read_text(encoding="utf-8")))
    assert sorted(name for name in named if not (ROOT / name).exists()) == []
