"""The tables of attention's main loop are what its sources come to."""

from __future__ import annotations

import re

import pytest

from build_scripts import schedules


@pytest.fixture(scope="module")
def tables() -> dict[str, str]:
    return schedules.schedules()


def test_the_texts_are_those_of_the_sources(tables: dict[str, str]) -> None:
    assert {file.stem for file in schedules.FOLDER.glob("*.txt")} == set(tables)
    for name, text in tables.items():
        assert (schedules.FOLDER / f"{name}.txt").read_text(encoding="utf-8") == text


@pytest.mark.parametrize("name", ["d128", "d192x128", "d256x128"])
def test_vector_work_fits_beside_the_matrix_instructions(tables: dict[str, str], name: str) -> None:
    # Where it does not, the vector unit is the limit: a slot or two are what a bad fit costs.
    for slots, matrix in re.findall(r": (\d+) slots, (\d+) for", tables[name]):
        assert int(slots) <= int(matrix) + 4


def test_a_block_has_all_of_its_steps_once(tables: dict[str, str]) -> None:
    units = tables["d128"].split("Unit of tile ")[1:]
    assert len(units) == 6
    for unit in units:
        for step in ("exp", "scale", "round"):
            assert [int(n) for n in re.findall(rf"\b{step} (\d)", unit)] == list(range(8))
    counts = {
        step: len(re.findall(rf"\b{step} \d", tables["d128"])) for step in ("load_k", "load_v")
    }
    assert counts == {"load_k": 8, "load_v": 4}
    assert len(re.findall(r"barrier", tables["d128"])) == 1
