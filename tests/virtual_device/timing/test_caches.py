"""Lines under way, and what caches keep from one launch to the next."""

from __future__ import annotations

import pytest

from benchmarks.performance_model.micro_kernel import clk_per, profile, profiles

COLD_LINE = "global_load_dword v20, v2, s[22:23] offset:2048\n"
STRAIGHT = "v_add_f32 v20, v8, v9\n" * 1024


def ends_of_loads(body: str, **options: int) -> dict[int, int]:
    """By wave: when the last load's data are there."""
    found = profile(body, trace_events=10_000, **options)
    return {e.wave: e.end for e in found.events if e.track == "memory"}


def test_a_second_wave_waits_for_a_line_under_way() -> None:
    """On another SIMD of the CU, 64 clk later: its data cannot be there earlier."""
    late = "v_cmp_gt_u32 vcc, 64, v0\ns_cbranch_vccnz load\ns_nop 15\nload:\n"
    ends = ends_of_loads(late + COLD_LINE + "s_waitcnt vmcnt(0)", waves=2)
    assert ends[0] <= ends[1] <= ends[0] + 8


def test_another_cu_waits_for_a_line_under_way() -> None:
    """Workgroups 0 and 8 are of one XCD: neither gets ahead on lines that the other asked for."""
    body = "".join(
        f"global_load_dword v20, v2, s[22:23] offset:{i}\ns_waitcnt vmcnt(0)\n"
        for i in range(1024, 4096, 512)
    )
    (alone,) = profile(body).times
    both = profile(body, workgroups=9).times
    assert len({time.cu for time in both}) == 2
    for time in both:
        assert time.end - time.start == pytest.approx(alone.end - alone.start, rel=0.03)


def test_waves_do_not_run_ahead_of_the_code_that_they_fetch() -> None:
    """Eight waves have the same misses: none gets a line before it has arrived."""
    clk = {}
    for waves in (1, 8):
        (found,) = profile(STRAIGHT, waves=waves, warm_code=False).times
        clk[waves] = found.end - found.start
    assert clk[8] == pytest.approx(clk[1], rel=0.02)


def test_scalar_loads_wait_for_a_line_under_way() -> None:
    """The kernel's arguments: every wave's wait lasts as long as the first one's."""

    def waited(waves: int) -> float:
        sites = profile("", waves=waves).sites
        return next(s for s in sites if s.text == "s_waitcnt lgkmcnt(0)").stalls["waitcnt"] / waves

    assert waited(4) == pytest.approx(waited(1), rel=0.02)


def test_a_launch_finds_what_the_one_before_left() -> None:
    """Data in the L2; not in the L1, which a launch starts without."""
    first, second, third = profiles(COLD_LINE + "s_waitcnt vmcnt(0)", launches=3)
    arguments = 128  # a line of their own for each launch
    assert first.bytes["hbm"] > 4 * arguments
    assert second.bytes["hbm"] <= second.bytes["mall"] <= arguments
    assert second.bytes["l2"] == first.bytes["l2"]
    assert second.cycles < first.cycles - 2 * 350  # two loads in a row, 310 ns each
    assert second.cycles == third.cycles


def test_code_is_fetched_once() -> None:
    cold, warm = profiles(STRAIGHT, launches=2, warm_code=False)
    clk = [time.end - time.start for one in (cold, warm) for time in one.times]
    assert clk[0] > 2 * clk[1]
    (assumed,) = profiles(STRAIGHT, launches=1)
    assert assumed.sites == profiles(STRAIGHT, launches=1)[0].sites
    assert sum(s.stalls.get("fetch", 0) for s in assumed.sites) == 0
    assert sum(s.stalls.get("fetch", 0) for s in warm.sites) == 0


def test_sessions_repeat_bit_for_bit() -> None:
    text = STRAIGHT + COLD_LINE + "s_waitcnt vmcnt(0)"
    first, second = (profiles(text, launches=3, waves=8, warm_code=False) for _ in range(2))
    assert first == second


# Bytes that the loop below reads between two loads of the first lines.
_L1, _L2 = 64 << 10, 8 << 20


@pytest.mark.parametrize(
    ("name", "evicted", "published"),
    [("L1", 0, (116, 120)), ("L2", _L1, (213, 213)), ("MALL", _L2, (455, 455))],
)
def test_latencies_at_the_clock_of_their_measurement(
    name: str, evicted: int, published: tuple[int, int]
) -> None:
    """gpu-benches and MT4G on MI300X, 2.092 GHz; HBM: 835 to 900 clk."""
    del name
    evict = f"s_mov_b64 s[24:25], s[22:23]\ns_mov_b32 s4, {evicted >> 15}\n"
    evict += "v_lshlrev_b32 v6, 9, v1\nloop:\n"  # 512 bytes a lane: 32 KiB for four lines of each
    evict += "".join(f"global_load_dword v20, v6, s[24:25] offset:{128 * i}\n" for i in range(4))
    evict += "s_add_u32 s24, s24, 0x8000\ns_addc_u32 s25, s25, 0\ns_waitcnt vmcnt(0)\n"
    evict += "s_sub_u32 s4, s4, 1\ns_cmp_lg_u32 s4, 0\ns_cbranch_scc1 loop\n"
    load = "global_load_dword v20, v2, s[22:23]\ns_waitcnt vmcnt(0)\n"
    found = profile(
        (evict if evicted else "") + load, memory=16 << 20, clock_mhz=2092, trace_events=100_000
    )
    loads = [e for e in found.events if e.track == "memory"]
    low, high = published
    assert low - 6 <= loads[-1].end - loads[-1].start <= high + 6
    assert 835 <= loads[0].end - loads[0].start <= 900


@pytest.mark.parametrize("name", ["b32 v20, v2", "b64 v[20:21], v5", "b128 v[20:23], v3"])
@pytest.mark.parametrize("waves", [2, 4, 8])
def test_reads_reach_the_rate_of_the_ports(name: str, waves: int) -> None:
    """128 B/clk of a CU, whatever the width; 16 operations of a port cap b32 at 6 % less."""
    width = int(name.split()[0][1:])
    bytes_of_wave = 64 * width // 8
    rate = waves * bytes_of_wave / clk_per(f"ds_read_{name}", waves=waves)
    issue_bound = waves * bytes_of_wave / 8  # a wave issues one in 8 clk
    assert min(128, issue_bound) * 0.91 <= rate <= 129


def test_a_wave_has_fifteen_lds_operations_under_way() -> None:
    """lgkmcnt cannot count more: with 128 clk each, the 16th waits for the first."""
    text = "ds_read_b32 v20, v4\n" * 16
    found = profile(text + "s_waitcnt lgkmcnt(0)", table=[128 * i for i in range(64)])
    reads = [s for s in found.sites if s.text.startswith("ds_read_b32")]
    assert [s.stalls.get("lds", 0) > 0 for s in reads] == [False] * 15 + [True]
