"""The tables of attention's main loop, and that they are what its sources come to."""

from __future__ import annotations

import re

import pytest

from build_scripts import schedule_legend, schedules
from build_scripts.toolchain import ASM_SRC


@pytest.fixture(scope="module")
def tables() -> dict[str, str]:
    return {
        name: schedule_legend.without_legend(text) for name, text in schedules.written().items()
    }


@pytest.mark.slow  # a minute of compiling; `build_scripts.verify` asks the same
def test_the_texts_are_those_of_the_sources() -> None:
    assert schedules.written() == schedules.schedules()


@pytest.mark.parametrize(
    ("name", "units", "more"),
    [
        ("d128", 6, 4),
        ("d128_q256", 4, 4),
        ("d192x128", 4, 4),
        ("d256x128", 4, 4),
        ("d64", 4, 3),
        ("d64_q256", 2, 5),
    ],
)
def test_vector_work_fits_beside_the_matrix_instructions(
    tables: dict[str, str], name: str, units: int, more: int
) -> None:
    # Where it does not, the vector unit is the limit: a slot or two are what a bad fit costs.
    slots_of_units = re.findall(r": (\d+) slots, (\d+) for", tables[name])
    assert len(slots_of_units) == units
    for slots, matrix in slots_of_units:
        assert int(slots) <= int(matrix) + more


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


@pytest.mark.parametrize(("name", "keys"), [("d64", 16), ("d128", 8)])
def test_softcap_is_of_every_score(tables: dict[str, str], name: str, keys: int) -> None:
    assert "cap_" not in tables[name]
    for unit in tables[f"{name}_softcap"].split("Unit of tile ")[1:]:
        for step in ("cap_rate", "cap_exp", "cap_add", "cap_rcp", "scale", "exp"):
            assert [int(n) for n in re.findall(rf"\b{step} (\d+)", unit)] == list(range(keys))


def test_every_text_begins_with_the_legend_of_its_steps(tables: dict[str, str]) -> None:
    for name, text in schedules.written().items():
        assert text == schedule_legend.with_legend(name, tables[name])


@pytest.mark.parametrize("member", ["d128", "d128_cdna4"])
def test_the_legend_names_what_the_sources_have(member: str) -> None:
    attn = ASM_SRC / "attn"
    bodies = dict(
        body.split(")", 1) for body in (attn / "steps.h").read_text().split("\nSTEP(")[1:]
    )
    functions = "".join((attn / name).read_text() for name in ("pipeline.h", "kv_loads.h"))
    for row in schedule_legend.rows(member).values():
        assert f"{row.calls}<" in bodies[row.step] or f"{row.calls}(" in bodies[row.step], row
        is_of_isa = re.match(r"[vs]_|upper_of|convert_pair", row.calls)
        assert is_of_isa or f"void {row.calls}(" in functions, row


def test_a_step_that_the_legend_has_not_is_an_error(tables: dict[str, str]) -> None:
    with pytest.raises(KeyError, match="no row for \\['skip'\\]"):
        schedule_legend.with_legend("d128", tables["d128"].replace("exceeds 0", "skip 0", 1))
