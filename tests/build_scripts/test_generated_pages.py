"""Pages that scripts write from the sources are current, and what api.md says is all there is."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

import amdattn
from build_scripts import api, fidelity, hazards


@pytest.mark.parametrize("script", [api, fidelity, hazards], ids=lambda module: module.__name__)
def test_page_is_current(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [script.__name__, "--check"])
    assert script.main() == 0


@pytest.mark.parametrize("script", [api, fidelity, hazards], ids=lambda module: module.__name__)
def test_a_stale_page_is_found(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    stale = tmp_path / script.PAGE.name
    stale.write_text(script.PAGE.read_text().replace("e", "a", 1))
    monkeypatch.setattr(sys, "argv", [script.__name__, "--check"])
    monkeypatch.setattr(script, "PAGE", stale)
    assert script.main() == 1


def test_every_public_name_has_an_entry() -> None:
    text = api.render()
    missing = [
        name
        for name in amdattn.__all__
        if callable(getattr(amdattn, name)) and f"### `{name}`" not in text
    ]
    assert not missing
    assert "#### `DeviceArray.reshape`" in text and "### `do_bench`" in text


def test_a_name_without_a_docstring_is_refused() -> None:
    class Bare:
        pass

    with pytest.raises(api.Undocumented, match=r"^Bare is public and has no docstring$"):
        list(api.entry("Bare", Bare, 3))


def test_entries_of_a_docstring() -> None:
    class Shown:
        """What it is, of ``some`` thing.

        Parameters
        ----------
        a, b : int
            Two
            lines.
        c
        """

        def method(self, first: int, *rest: int, last: str = "x") -> None:
            """Do it."""

        @classmethod
        def made(cls, *, alone: int) -> None:
            """Make it."""

        def _hidden(self) -> None:
            pass

    Shown.__module__ = "amdattn.shown"
    assert "\n".join(api.entry("Shown", Shown, 3)).split("\n") == [
        *("", "### `Shown`", "", "What it is, of `some` thing.", "", "**Parameters**", ""),
        *("- `a, b` : int  ", "  Two lines.", "- `c`"),
        *("", "#### `Shown.made`", "", "```text", "made(*, alone)", "```", "", "Make it."),
        *("", "#### `Shown.method`", "", "```text", "method(first, *rest, last='x')"),
        *("```", "", "Do it."),
    ]
