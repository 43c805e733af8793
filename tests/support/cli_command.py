"""The amdattn command in this process: binding a device takes a second."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from amdattn import cli


class Command:
    """Runs command lines one after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._patch, self._capsys = monkeypatch, capsys
        monkeypatch.setenv("COLUMNS", "240")

    def __call__(self, *args: object, folder: Path | None = None) -> tuple[int, str, str]:
        """Exit code, stdout and stderr, of arguments after the program's name."""
        if folder is not None:
            self._patch.chdir(folder)
        self._patch.setattr(sys, "argv", ["amdattn", *map(str, args)])
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, errors = self._capsys.readouterr()
        return int(caught.value.code or 0), out, errors


@pytest.fixture
def amdattn_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)
