"""What each reading changes, in kernels of a few instructions; and that the rest stays."""

from __future__ import annotations

import pytest

from amdattn import virtual
from amdattn.arch import readings
from benchmarks.performance_model.micro_kernel import clk_per, duration, profile

LONG = "v_mfma_f32_32x32x8_bf16 a[0:15], v[8:9], v[10:11], a[0:15]"  # 32 clk
SHORT = "v_mfma_f32_16x16x16_bf16 a[0:3], v[8:9], v[10:11], a[0:3]"  # 16 clk
ADD, MAX3 = "v_add_f32 v20, v8, v9", "v_max3_f32 v21, v8, v9, v10"
FMAC = "v_fmac_f32 v22, v8, v9"  # reads what it writes
READ = "ds_read_b128 v[24:27], v3"
CLOCK = 2000  # MHz
NS = CLOCK / 1000  # in clk


@pytest.mark.parametrize(
    ("reading", "short", "long"),
    [
        ("default", 2, 6),
        ("lost-slots-0", 3, 7),
        ("lost-slots-2", 1, 5),
        ("lost-slots-2-short", 1, 6),
    ],
)
def test_what_a_matrix_instruction_hides(reading: str, short: int, long: int) -> None:
    for matrix, clk, count in ((SHORT, 16, short), (LONG, 32, long)):
        hidden = clk_per(matrix + f"\n{ADD}" * count, copies=8, reading=reading)
        more = clk_per(matrix + f"\n{ADD}" * (count + 1), copies=8, reading=reading)
        assert (hidden, more) == (clk, clk + 4)


def test_waits_take_longer() -> None:
    """10 clk and the slot, which is 14: the fourth slot from it."""
    wait = "s_waitcnt lgkmcnt(0)"
    assert clk_per(wait) == 4 and clk_per(wait, reading="slow-waits") == 16
    assert clk_per(ADD, reading="slow-waits") == 4


@pytest.mark.parametrize(("text", "more"), [(ADD, 0), (MAX3, 4), (FMAC, 4)])
def test_three_sources_while_the_lds_is_busy(text: str, more: int) -> None:
    """Eight of them are issued before what was read is there, after 60 clk."""
    reads, name = f"{READ}\n" + f"{text}\n" * 32, "three-sources"
    slow, fast = duration(reads, reading=name), duration(reads)
    assert slow - fast == pytest.approx(8 * more, abs=4 * bool(more))
    assert clk_per(text, reading=name) == 4  # nothing is read


def test_channels_of_hbm() -> None:
    """64 lines, of one channel or of all 16."""

    def clk(apart: int, reading: str) -> int:
        table = [apart * lane for lane in range(64)]
        return duration(
            "global_load_dword v20, v4, s[22:23] offset:1024\ns_waitcnt vmcnt(0)",
            table=table, memory=64 * apart + 8192, reading=reading,
        )  # fmt: skip

    assert clk(4096, "default") == pytest.approx(clk(256, "default"), abs=8)
    spread, same = (clk(apart, "hbm-channels") for apart in (256, 4096))
    per_line = 128 / (4200 / 8 / 1.2 / 16)  # clk of a channel at 1.2 GHz
    at_cu = 64  # a line a clk, which hides the time of the channels if all have some
    assert same - spread == pytest.approx(64 * per_line - at_cu, rel=0.1)


def test_the_first_access_to_64_kib_waits_for_its_address() -> None:
    def more(step: int, count: int = 16) -> int:
        """Clk, of loads one after the other."""
        loads = "".join(
            f"v_add_u32 v21, {1024 + step * i}, v2\nglobal_load_dword v20, v21, s[22:23]\n"
            "s_waitcnt vmcnt(0)\n"
            for i in range(count)
        )
        slow, fast = (
            duration(loads, memory=2 << 20, reading=name, clock_mhz=CLOCK)
            for name in ("translation", "default")
        )
        return slow - fast

    # Whichever of 64 KiB the arguments and the first load are in: one more or less.
    assert more(64 * 1024) - more(128) == pytest.approx(15 * 300 * NS, abs=300 * NS + 8)


def test_write_backs_take_longer() -> None:
    body = "buffer_wbl2 sc1\ns_waitcnt vmcnt(0)"
    slow = duration(body, reading="slow-write-back", clock_mhz=CLOCK)
    assert slow - duration(body, clock_mhz=CLOCK) == pytest.approx(1000 * NS, abs=8)
    assert duration(ADD, reading="slow-write-back") == duration(ADD)


def test_a_reading_ends_with_its_block() -> None:
    before = profile(LONG)
    for name in readings.names("gfx942"):
        assert profile(LONG, reading=name).reading == name
    assert profile(LONG) == before


def test_readings_combine_by_options() -> None:
    virtual.set_option("wait_clk", 10)
    virtual.set_option("trans_exclusive", 1)
    try:
        assert profile(ADD).reading == "trans_exclusive=1 wait_clk=10"
        assert profile(ADD, reading="default").reading == "default"
    finally:
        virtual.set_option("wait_clk", 0)
        virtual.set_option("trans_exclusive", 0)
    with pytest.raises(ValueError, match="refused option hbm_channels=129"):
        virtual.set_option("hbm_channels", 129)
