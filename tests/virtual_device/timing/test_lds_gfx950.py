"""The modelled LDS of gfx950 against HipKittens' probes of an MI355X, and against documents."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.lds_probes import FORMS, PROBED, found

PORTS = 2
# analysis/paper_experiments/phases of HazyResearch/HipKittens: phase_results.txt and
# bank_results.txt of each instruction.
GROUPS = {
    "ds_read_b64": [range(32)],
    "ds_read_b96": [
        [*range(0, 4), *range(20, 24)],
        [*range(4, 8), *range(16, 20)],
        [*range(8, 12), *range(28, 32)],
        [*range(12, 16), *range(24, 28)],
    ],
    "ds_read_b128": [
        [*range(0, 4), *range(12, 16), *range(20, 28)],
        [*range(4, 12), *range(16, 20), *range(28, 32)],
    ],
    "ds_write_b64": [range(16), range(16, 32)],
}
BANKS = {"ds_read_b64": 64, "ds_read_b96": 32, "ds_read_b128": 64, "ds_write_b64": 32}
# Clk of a port without conflicts, by the rate of reads. At 64 bytes a clk of a port a b128 takes
# 16, as far apart as they return in a trace (timing of SQTT); at 128, 8, but a phase of the banks
# takes 2 of a port.
SERVICE = {
    "measured": {
        "ds_read_b32": 4,
        "ds_read_b64": 8,
        "ds_read_b96": 16,
        "ds_read_b128": 16,
        "ds_read_b64_tr_b16": 8,
        "ds_read_b64_tr_b8": 8,
        "ds_read_b64_tr_b4": 8,
        "ds_read_b96_tr_b6": 16,
        "ds_write_b32": 8,
        "ds_write_b64": 12,
        "ds_write_b128": 20,
    },
    "published": {"ds_read_b64": 4, "ds_read_b128": 8}
    | {f"ds_read_b64_tr_b{bits}": 4 for bits in (16, 8, 4)},
}


@pytest.fixture(scope="module")
def probes() -> dict[str, Any]:
    return found()


@pytest.mark.parametrize("name", PROBED)
def test_lanes_that_are_served_together(probes: Any, name: str) -> None:
    published = {frozenset(lane + half for lane in g) for g in GROUPS[name] for half in (0, 32)}
    assert {frozenset(group) for group in probes["groups"][name]} == published


@pytest.mark.parametrize("name", PROBED)
def test_banks(probes: Any, name: str) -> None:
    """Lane 1 conflicts with lane 0 at multiples of so many dwords only."""
    assert probes["banks"][name] == list(range(BANKS[name], 129, BANKS[name]))


@pytest.mark.parametrize("name", PROBED)
def test_two_lanes_in_a_bank_are_one_more_round(probes: Any, name: str) -> None:
    """SQ_LDS_BANK_CONFLICT counted 1 for such a pair; a round is a clk of each port in turn."""
    assert probes["pair"][name] == PORTS


@pytest.mark.parametrize("name", FORMS)
def test_a_wave_in_one_bank(probes: Any, name: str) -> None:
    """Every lane takes a round of its own, less the phases that there are anyway; 60 for b64 writes
    as the published counter has it.
    """
    kind = "write" if "write" in name else "read"
    width = name.split("_")[2]
    phases = {"read": {"b32": 2, "b64": 2, "b96": 8, "b128": 4}, "write": {"b32": 2, "b64": 4}}
    expected = 64 - phases[kind].get(width, 8)
    assert probes["one_bank"][name] == expected * PORTS


@pytest.mark.parametrize("lds", SERVICE)
def test_service(probes: Any, lds: str) -> None:
    expected = {name: [clk, 0] for name, clk in (SERVICE["measured"] | SERVICE[lds]).items()}
    assert probes["service"][lds] == expected


def test_the_reading_is_told_and_measured_by_default(probes: Any) -> None:
    assert probes["readings"] == ["default", "lds-256", "default"]


def test_throughput(probes: Any) -> None:
    """Two SIMDs share a port: 128 or 256 bytes a clk of the CU."""
    assert probes["one_wave"] == {"measured": 16, "published": 8}
    bytes_per_clk = {lds: 8 * 1024 / clk for lds, clk in probes["eight_waves"].items()}
    assert bytes_per_clk == pytest.approx({"measured": 128, "published": 256}, rel=0.05)


def test_no_lds_instruction_in_the_slot_behind_an_mfma(probes: Any) -> None:
    """Formocast; the LDS instruction itself takes two slots."""
    assert probes["before_mfma"] == 4 + 8
    assert probes["behind_mfma"] == 4 + 4 + 8


def test_wait_states(probes: Any) -> None:
    assert probes["nops"] == [4, 16, 64]


def test_a_load_to_lds_takes_a_slot_of_the_vector_unit(probes: Any) -> None:
    """Two waves a SIMD, 40 instructions each."""
    to_lds, to_registers = probes["valu_beside_loads"].values()
    assert to_registers == pytest.approx(2 * 40 * 4, rel=0.02)
    assert to_lds == pytest.approx(2 * 41 * 4, rel=0.02)
