"""Readings of transcendentals belong to the model; what is shown belongs to terminals."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from amdattn.bench import run
from amdattn.cli import output
from amdattn.device.profiling import TRANS


def test_a_gpu_has_no_reading_to_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default is not refused there: it says nothing."""
    monkeypatch.setattr(run, "is_virtual", lambda: False)
    with run.reading(TRANS[0]):
        pass
    for trans in TRANS[1:]:
        with pytest.raises(ValueError, match=f"trans='{trans}' is of the model; a GPU"):
            run.reading(trans).__enter__()


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=terminal)
    monkeypatch.setattr(output, "stderr", console)
    assert output.progress_bar().disable is not terminal
    assert output.progress_bar(quiet=False).disable is not terminal
    assert output.progress_bar(quiet=True).disable
