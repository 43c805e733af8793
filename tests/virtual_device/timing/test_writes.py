"""What is written costs: the L2's write-backs, HBM's rate, atomics, the end of a kernel."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn import virtual
from benchmarks.performance_model.micro import hbm_rate, lds_chase, reread
from benchmarks.performance_model.micro_kernel import STORE_CLK, duration, profile, profiles

STORE = "global_store_dword v2, v8, s[22:23] offset:{} {}\n"
LINES = 2  # 64 lanes of 4 bytes


def test_a_line_that_is_written_reaches_hbm_once() -> None:
    once = profile(STORE.format(1024, ""))
    twice = profile(STORE.format(1024, "") * 2)
    assert once.bytes["hbm_write"] == twice.bytes["hbm_write"] == LINES * 128
    assert twice.bytes["l2_write"] == 2 * once.bytes["l2_write"] == 2 * LINES * 128
    assert once.write_back_clk > 0
    assert profile("").bytes["hbm_write"] == profile("").write_back_clk == 0


def test_half_lines_are_written_back() -> None:
    few = "s_mov_b64 exec, 0xff\n"  # 32 bytes of one line
    assert profile(few + STORE.format(1024, "")).bytes["hbm_write"] == 64


def test_what_the_last_level_cache_has_dirty_costs_hbm_nothing_more() -> None:
    first, second = profiles(STORE.format(1024, ""), launches=2)
    assert first.bytes["mall_write"] == second.bytes["mall_write"] == LINES * 128
    assert first.bytes["hbm_write"] == LINES * 128 and second.bytes["hbm_write"] == 0


def test_stores_of_agent_scope_go_through_the_l2() -> None:
    wait = "s_waitcnt vmcnt(0)\n"
    base = duration("")
    local = duration(STORE.format(1024, "") + wait) - base
    through = duration(STORE.format(1024, "sc1") + wait) - base
    beyond = (217 - 102) * 1.2  # the last level cache behind the L2, ns at 1.2 GHz
    assert through - local == pytest.approx(beyond, abs=8)
    assert profile(STORE.format(1024, "sc1") + wait).write_back_clk == 0


def test_the_end_of_a_kernel_waits_for_stores_that_go_through_the_l2() -> None:
    """Those of attention, whose workgroups all end by writing their rows, and wait for no store."""
    q, k = (np.zeros((1, rows, 32, 128), ml_dtypes.bfloat16) for rows in (1024, 32))
    with virtual.profile(trace_events=1 << 20) as of_attention:
        amdattn.flash_attn_func(q, k, k)
    (launch,) = of_attention.launches
    assert launch.write_back_clk == 0 and 8 * launch.bytes["hbm_write"] == q.nbytes
    assert last_of_memory(launch) <= launch.cycles


def last_of_memory(launch: virtual.LaunchProfile) -> int:
    """When the last access of CU 0 was done."""
    return max(event.end for event in launch.events if event.track == "memory")


@pytest.mark.parametrize("scope", ["", "sc1"])
@pytest.mark.parametrize("workgroups", [1, 4])
def test_a_wave_ends_when_its_stores_are_acknowledged(scope: str, workgroups: int) -> None:
    """S_ENDPGM implies s_waitcnt 0 (CDNA3 ISA): waiting before it or not takes the same time."""
    store = STORE.format(1024, scope)
    (launch,) = profiles(store, launches=1, workgroups=workgroups, trace_events=1000)
    assert last_of_memory(launch) <= max(time.end for time in launch.times) <= launch.cycles
    waited = duration(store + "s_waitcnt vmcnt(0)")
    assert duration(store) == pytest.approx(waited, abs=4)
    assert duration("global_load_dword v20, v2, s[22:23] offset:2048") > duration("") + STORE_CLK
    assert (
        duration("ds_read_b32 v20, v2") == duration("ds_read_b32 v20, v2\ns_waitcnt lgkmcnt(0)") - 4
    )


def test_a_release_with_nothing_to_write_back_is_a_trip_to_the_l2() -> None:
    """It counts in vmcnt, which only an answer decrements; of what is dirty there is one beyond."""
    wait = "s_waitcnt vmcnt(0)\n"
    base, release = duration(wait), "buffer_wbl2 sc1\n" + wait
    assert duration(release) - base == pytest.approx(STORE_CLK + 4, abs=4)
    store = STORE.format(1024, "") + wait
    beyond = (217 - 102) * 1.2
    assert duration(store + release) - duration(store) > STORE_CLK + beyond


def test_a_release_writes_back() -> None:
    text = STORE.format(1024, "") + "s_waitcnt vmcnt(0)\n{}s_waitcnt vmcnt(0)\n"
    assert profile(text.format("")).write_back_clk > 0
    released = profile(text.format("buffer_wbl2 sc1\n"))
    assert released.write_back_clk == 0 and released.bytes["hbm_write"] == LINES * 128


def test_an_acquire_empties_the_l1() -> None:
    load = "global_load_dword v20, v2, s[22:23]\ns_waitcnt vmcnt(0)\n"  # the start has read it
    base = duration("")
    hit = duration(load) - base
    miss = duration("buffer_inv sc1\n" + load) - base - 4
    coherent = duration(load.replace("[22:23]", "[22:23] sc1")) - base
    assert 213 - 118 - 8 <= miss - hit <= 213 - 118 + 8
    assert coherent - hit == miss - hit


def test_atomics_fetch_their_line() -> None:
    """Of a line that nobody has: HBM's latency, at least; of one in the L2: the L2's."""
    text = "global_atomic_add v20, v2, v8, s[22:23] offset:{} sc0\ns_waitcnt vmcnt(0)\n"
    base = duration("", clock_mhz=2092)
    cold = duration(text.format(2048), clock_mhz=2092) - base
    warm = duration(text.format(0), clock_mhz=2092) - base
    assert 840 <= cold <= 900
    assert 213 <= warm <= 213 + 16
    assert profile(text.format(2048)).bytes["hbm_write"] == LINES * 128


@pytest.mark.parametrize(
    ("reads", "writes", "published"),
    [(True, False, (4.0, 4.3)), (False, True, (3.9, 4.8)), (True, True, (3.9, 4.2))],
)
def test_hbm_rates(reads: bool, writes: bool, published: tuple[float, float]) -> None:
    """TB/s: gpu-benches reads 4.2 and writes 4.8, BabelStream copies 4.11, on MI300X."""
    low, high = published
    assert low <= hbm_rate(reads, writes) <= high


def test_a_chain_of_lds_reads() -> None:
    assert lds_chase() == pytest.approx(52, abs=2)  # MT4G on MI300X


@pytest.mark.parametrize("chunk", [8192, 65536])
@pytest.mark.parametrize("every", [1, 2, 3, 8, 32])
def test_no_stride_leaves_sets_of_the_l2_unused(chunk: int, every: int) -> None:
    """2.5 MB fit 4 MB; by where they lie up to 7 % are loaded again, not all as with plain sets."""
    found = reread(2560 << 10, chunk=chunk, every=every)
    assert found.bytes["mall"] <= 0.15 * found.bytes["l2"]


@pytest.mark.parametrize("chunk", [8192, 65536])
def test_the_last_level_cache_holds_what_fits(chunk: int) -> None:
    """80 MB of the device are 10 MB of an XCD, every eighth chunk, in 32 MB."""
    found = reread(10 << 20, chunk=chunk, every=8)
    assert found.bytes["mall"] > 0.5 * found.bytes["l2"]  # 10 MB do not fit the L2
    assert found.bytes["hbm"] <= 0.01 * found.bytes["mall"]
