"""LDS phases and service, waits and barriers, against published probes and documents."""

from __future__ import annotations

import pytest

from amdattn import virtual
from benchmarks.performance_model.micro_kernel import clk_per, duration, pass_clk
from benchmarks.performance_model.published import READ_B128_GROUPS, WRITE_B128_GROUPS
from benchmarks.performance_model.runs import LDS_FORMS, lds_bytes, lds_clk, served_together

LATENCY = 44  # from the end of the service to the data: arch/gfx942.cc


@pytest.mark.parametrize(
    ("name", "clk"),
    {
        "ds_read_b32": 4,
        "ds_read_b64": 8,
        "ds_read_b128": 16,
        "ds_write_b32": 8,
        "ds_write_b128": 20,
    }.items(),
)
def test_service_without_conflicts(name: str, clk: int) -> None:
    assert lds_clk(name, lambda lane: lane * lds_bytes(name)) == (clk, 0)


@pytest.mark.parametrize("name", ["ds_read_b32", "ds_read_b64", "ds_read_b128"])
def test_one_address_is_a_broadcast(name: str) -> None:
    assert lds_clk(name, lambda lane: 0)[1] == 0


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("ds_read_b128", READ_B128_GROUPS),
        ("ds_read_b96", READ_B128_GROUPS),
        ("ds_write_b128", WRITE_B128_GROUPS),
    ],
)
def test_lanes_that_are_served_together(name: str, groups: tuple[tuple[int, ...], ...]) -> None:
    assert {frozenset(g) for g in served_together(name)} == {frozenset(g) for g in groups}


@pytest.mark.parametrize("ways", [1, 2, 4, 8, 16, 32])
def test_conflicts_of_a_stride(ways: int) -> None:
    """A stride of w dwords, a power of two, puts w lanes of a half wave into one bank."""
    assert lds_clk("ds_read_b32", lambda lane: 4 * ways * lane) == (4 * ways, 4 * (ways - 1))


def test_rows_of_128_bytes_serialise_every_lane() -> None:
    assert lds_clk("ds_read_b128", lambda lane: 128 * lane)[0] == 64 * 2


def test_inactive_lanes_cause_no_conflicts() -> None:
    assert lds_clk("ds_read_b32", lambda lane: 128 * lane, lanes=1)[1] == 0


def test_every_form_is_modelled() -> None:
    for name in LDS_FORMS:
        assert lds_clk(name, lambda lane: 0)[0] > 0


def test_throughput_of_one_wave() -> None:
    assert clk_per("ds_read_b128 v[20:23], v3") == 16
    assert clk_per("ds_read_b64 v[20:21], v5") == 8
    assert clk_per("ds_write_b128 v3, v[8:11]") == 20


def test_rates_of_lds_reads() -> None:
    """Of gfx942 the published rate is the measured one; test_lds_gfx950.py has where it is not."""
    read = "ds_read_b128 v[20:23], v3"
    assert clk_per(read) == 16
    virtual.set_option("lds_published", 1)
    try:
        assert clk_per(read) == 16
    finally:
        virtual.set_option("lds_published", 0)
    with pytest.raises(ValueError, match=r"reading='lds-256' must be one of .* on gfx942"):
        virtual.profile(reading="lds-256")


def test_ports_are_shared_by_two_simds() -> None:
    """Eight waves, four on either port."""
    assert clk_per("ds_read_b128 v[20:23], v3", waves=8) == pytest.approx(4 * 16, rel=0.05)


def test_a_wait_lasts_until_the_data_is_there() -> None:
    """A read and its wait: service and latency, then the slot after the wait."""
    assert clk_per("ds_read_b128 v[20:23], v3\ns_waitcnt lgkmcnt(0)") == pytest.approx(
        16 + LATENCY + 4, abs=4
    )


def test_a_wait_for_the_older_operation_does_not_wait_for_the_younger() -> None:
    two = "ds_read_b128 v[20:23], v3\nds_read_b128 v[24:27], v3\n"
    rest = "\ns_waitcnt lgkmcnt(0)"
    work = "\nv_exp_f32 v28, v20" * 8
    older = pass_clk(two + "s_waitcnt lgkmcnt(1)" + work + rest)
    both = pass_clk(two + "s_waitcnt lgkmcnt(0)" + work + rest)
    assert both - older == pytest.approx(16, abs=4)  # the service of the second


def test_a_wait_for_nothing_is_one_slot() -> None:
    assert clk_per("s_waitcnt vmcnt(0) lgkmcnt(0)") == 4


def test_a_barrier_waits_for_the_slowest_wave() -> None:
    """The first four waves work 32 x 16 clk before it, the others not: all leave together."""
    slow = "v_exp_f32 v20, v8\n" * 32
    text = "v_cmp_gt_u32 vcc, 256, v0\ns_cbranch_vccz skip\n{}skip:\ns_barrier\n"
    quick, late = (pass_clk(text.format(part), waves=8) for part in ("", slow))
    assert late - quick == pytest.approx(32 * 16, abs=32)


def test_a_barrier_of_one_wave() -> None:
    assert clk_per("s_barrier") == 8


def test_memory_latencies_are_ordered() -> None:
    """L1, L2 and HBM: a line again, a line that was evicted, a line for the first time."""
    load = "global_load_dword v20, v2, s[22:23] {}\ns_waitcnt vmcnt(0)\n"
    none = duration("")
    hit = duration(load.format("")) - none  # the kernel's start has read the line
    miss = duration(load.format("offset:2048")) - none
    assert 100 < hit < 140 + 16
    assert miss > 400
