"""Readings belong to the model; what is shown belongs to terminals."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from amdattn.arch import readings
from amdattn.bench import run
from amdattn.cli import output


def test_a_gpu_has_no_reading_to_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default is not refused there: it says nothing."""
    monkeypatch.setattr(run, "is_virtual", lambda: False)
    default, *others = readings.names("gfx942")
    with run.reading(default):
        pass
    for name in others:
        with pytest.raises(ValueError, match=f"reading='{name}' must be 'default' on a GPU"):
            run.reading(name).__enter__()


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=terminal)
    monkeypatch.setattr(output, "stderr", console)
    assert output.progress_bar().disable is not terminal
    assert output.progress_bar(quiet=False).disable is not terminal
    assert output.progress_bar(quiet=True).disable
