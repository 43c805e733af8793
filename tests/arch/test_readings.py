"""The table of readings: names, options, evidence, and the page that is made of it."""

from __future__ import annotations

import dataclasses

import pytest

from amdattn.arch import readings
from amdattn.arch.architectures import ARCHITECTURES
from amdattn.arch.readings import DEFAULT, NEUTRAL, READINGS
from amdattn.device.virtual_library import OPTIONS
from build_scripts.readings import PAGE, render


def test_each_architecture_has_its_own() -> None:
    of = {arch: readings.names(arch) for arch in ARCHITECTURES}
    assert all(names[0] == DEFAULT and len(set(names)) == len(names) for names in of.values())
    assert set(of["gfx942"]) - set(of["gfx950"]) == {"trans-exclusive"}
    assert set(of["gfx950"]) - set(of["gfx942"]) == {"lds-256"}
    assert [a for a in ARCHITECTURES if ARCHITECTURES[a].open_trans] == ["gfx942"]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_options_of_a_reading_are_all_options(arch: str) -> None:
    """So that one reading ends the one before."""
    assert readings.options(DEFAULT, arch) == NEUTRAL
    for name in readings.names(arch)[1:]:
        found = readings.options(name, arch)
        assert found.keys() == NEUTRAL.keys() <= OPTIONS.keys()
        changed = {key: value for key, value in found.items() if value}
        assert readings.name_of(changed) == name
    with pytest.raises(ValueError, match=f"reading='half' must be one of default, .* on {arch}"):
        readings.options("half", arch)
    other = next(r.name for r in READINGS if arch not in r.archs)
    with pytest.raises(ValueError, match=f"reading='{other}' must be one of"):
        readings.options(other, arch)


def test_names_of_what_was_simulated() -> None:
    assert readings.name_of({}) == DEFAULT
    assert readings.name_of({"wait_clk": 7}) == "wait_clk=7"
    assert readings.name_of({"wait_clk": 10, "trans_exclusive": 1}) == (
        "wait_clk=10 trans_exclusive=1"
    )


def test_what_is_asked_for() -> None:
    assert readings.chosen(None, "gfx942") == (DEFAULT,)
    assert readings.chosen(["slow-waits", DEFAULT, "slow-waits"], "gfx942") == (
        "slow-waits",
        DEFAULT,
    )
    assert readings.chosen(["all"], "gfx950") == readings.names("gfx950")
    with pytest.raises(ValueError, match="reading='lds-256' must be one of"):
        readings.chosen(["lds-256"], "gfx942")


def test_every_row_is_documented() -> None:
    for reading in READINGS:
        texts = dataclasses.asdict(reading)
        for field in ("changes", "speaks_for", "speaks_against", "source"):
            assert texts[field] and "|" not in texts[field], (reading.name, field)


def test_the_page_is_the_table() -> None:
    assert PAGE.read_text() == render(), "run python -m build_scripts.readings"
