"""Micro kernels that decide assumptions of the performance model: instructions and predictions.

The kernels are shipped compiled (hsaco/micro); `python -m build_scripts.build` assembles them from
this table. A row states what an MI300X would show under each reading of an open question. The first
reading is the model's own, and a test holds the model to it.
"""

from __future__ import annotations

from amdattn.bench.micro_rows import (
    LDS_WAIT,
    WAVES,
    Clk,
    Clock,
    Latency,
    LdsRate,
    Region,
    Row,
    Stream,
    reads,
)

MFMA = "v_mfma_f32_32x32x8_bf16 a[0:15], v[8:9], v[10:11], a[0:15]"
MFMA_CLK = 32
_LDS_ZERO = (
    "".join(f"v_mov_b32 v{i}, 0\n" for i in (4, 24, 25, 26, 27))
    + f"ds_write_b128 v4, v[24:27]{LDS_WAIT}"
)

# -- instructions alone ----------------------------------------------------------------------------

_FMA = "v_fma_f32 v20, v8, v9, v10"
_PK_FMA = "v_pk_fma_f32 v[20:21], v[8:9], v[10:11], v[12:13]"
_PK_MUL = "v_pk_mul_f32 v[20:21], v[8:9], v[10:11]"
_CVT = "v_cvt_f32_f16 v20, v8"
_PKRTZ = "v_cvt_pkrtz_f16_f32 v20, v8, v9"
_EXP = "v_exp_f32 v20, v8"
_DOT2 = "v_dot2_f32_f16 v20, v8, v9, v10"

ALONE: tuple[Clk, ...] = (
    Clk(name="fma_f32", what="v_fma_f32", text=_FMA, settles="an issue slot of a SIMD (`slot`)",
        readings=(reads("a slot", 4),)),
    Clk(name="pk_fma_f32", what="v_pk_fma_f32", text=_PK_FMA,
        settles="packed f32 does two operations per lane in one slot",
        readings=(reads("one slot", 4), reads("two passes", 8))),
    Clk(name="fma_f64", what="v_fma_f64",
        text="v_fma_f64 v[20:21], v[8:9], v[10:11], v[12:13]", settles="f64 at full rate",
        readings=(reads("full rate", 4), reads("half rate", 8))),
    Clk(name="exp_f32", what="v_exp_f32", text=_EXP, settles="`trans`, clk of a transcendental",
        readings=(reads("a quarter of the rate", 16), reads("half, as on gfx950", 8))),
    Clk(name="cvt_f32_f16", what="v_cvt_f32_f16", text=_CVT,
        settles="`convert`, clk of a conversion to or from f32",
        readings=(reads("LLVM's quarter rate", 16), reads("full rate", 4))),
    Clk(name="cvt_pkrtz_f16_f32", what="v_cvt_pkrtz_f16_f32", text=_PKRTZ,
        settles="v_cvt_pkrtz does not take the clk of `convert`",
        readings=(reads("full rate", 4), reads("quarter rate", 16))),
    Clk(name="mfma_32x32x8_bf16", what="v_mfma_f32_32x32x8_bf16", text=MFMA,
        settles="clk of the matrix unit", readings=(reads("8 passes", MFMA_CLK),)),
    Clk(name="mfma_16x16x16_bf16", what="v_mfma_f32_16x16x16_bf16",
        text="v_mfma_f32_16x16x16_bf16 a[0:3], v[8:9], v[10:11], a[0:3]",
        settles="clk of the matrix unit", readings=(reads("4 passes", 16),)),
    Clk(name="mfma_16x16x32_fp8", what="v_mfma_f32_16x16x32_fp8_fp8",
        text="v_mfma_f32_16x16x32_fp8_fp8 a[0:3], v[8:9], v[10:11], a[0:3]",
        settles="clk of the matrix unit", readings=(reads("4 passes", 16),)),
    Clk(name="mfma_32x32x2_f32", what="v_mfma_f32_32x32x2_f32",
        text="v_mfma_f32_32x32x2_f32 a[0:15], v8, v9, a[0:15]",
        settles="clk of the matrix unit", readings=(reads("16 passes", 64),)),
    Clk(name="barrier", what="s_barrier of one wave", text="s_barrier",
        settles="`barrier`, from the last arrival to the release",
        readings=(reads("TensileLite's constant", 8), reads("slower", 32))),
    Clk(name="branch", what="taken branch", text="s_branch to@\ns_nop 0\nto@:",
        settles="`taken_branch`",
        readings=(reads("TensileLite's constant", 24), reads("LLVM's", 32))),
    Clk(name="nop", what="s_nop 3", text="s_nop 3", settles="an issue slot of a SIMD (`slot`)",
        readings=(reads("four slots", 16),)),
    Clk(name="chain_s_load", what="chain of s_load_dword",
        text="s_load_dword s5, s[22:23], 0x0" + LDS_WAIT, settles="`scalar_latency`",
        readings=(reads("MT4G's measurement", 48),)),
    Clk(name="chain_lds_b32", what="chain of ds_read_b32", before=_LDS_ZERO,
        text="ds_read_b32 v4, v4" + LDS_WAIT, settles="`lds_latency`",
        readings=(reads("MT4G's measurement", 52),)),
    Clk(name="chain_lds_b64", what="chain of ds_read_b64", before=_LDS_ZERO,
        text="ds_read_b64 v[4:5], v4" + LDS_WAIT,
        settles="wide LDS reads take the latency of narrow ones and their transfer",
        readings=(reads("they do", 56), reads("a vendor tool's constant", 84))),
    Clk(name="chain_lds_b128", what="chain of ds_read_b128", before=_LDS_ZERO,
        text="ds_read_b128 v[4:7], v4" + LDS_WAIT,
        settles="wide LDS reads take the latency of narrow ones and their transfer",
        readings=(reads("they do", 64), reads("a vendor tool's constant", 108))),
)  # fmt: skip

_PORTS = "two ports of 64 bytes per clk"
LDS: tuple[LdsRate, ...] = (
    LdsRate(name="lds_read_b32", what="LDS, ds_read_b32", nbytes=4,
            text="ds_read_b32 v20, v2", settles=_PORTS,
            readings=(reads("two ports", 128), reads("one", 64))),
    LdsRate(name="lds_read_b64", what="LDS, ds_read_b64", nbytes=8,
            text="ds_read_b64 v[20:21], v5", settles=_PORTS,
            readings=(reads("two ports", 128), reads("one", 64))),
    LdsRate(name="lds_read_b128", what="LDS, ds_read_b128", nbytes=16,
            text="ds_read_b128 v[20:23], v3", settles=_PORTS,
            readings=(reads("two ports", 128), reads("one", 64))),
    LdsRate(name="lds_write_b128", what="LDS, ds_write_b128", nbytes=16,
            text="ds_write_b128 v3, v[8:11]",
            settles="writes also send their addresses through the port",
            readings=(reads("20 clk per write", 102.4), reads("16 clk", 128))),
)  # fmt: skip

# -- beside a matrix instruction -------------------------------------------------------------------

# Name, instruction, its clk, the model's reading, and the kind of instruction. One that overlaps
# takes its own slots beside the MFMA, which itself takes two in its 32 clk; one that does not runs
# before or after the MFMA.
OVERLAPS, EXCLUSIVE = "overlaps", "exclusive"
_BESIDE: tuple[tuple[str, str, int, str, str], ...] = (
    ("max3_f32", "v_max3_f32 v20, v8, v9, v10", 4, OVERLAPS, "scalar f32"),
    ("fma_mix_f32", "v_fma_mix_f32 v20, v8, v9, v10 op_sel_hi:[0,0,1]", 4, OVERLAPS, "mixed f32"),
    ("cvt_pkrtz_f16_f32", _PKRTZ, 4, OVERLAPS, "v_cvt_pkrtz"),
    ("perm_b32", "v_perm_b32 v20, v8, v9, v10", 4, OVERLAPS, "v_perm"),
    ("cvt_f32_f16", _CVT, 16, OVERLAPS, "conversions"),
    ("pk_mul_f32", _PK_MUL, 4, EXCLUSIVE, "packed f32"),
    ("pk_mul_f16", "v_pk_mul_f16 v20, v8, v9", 4, EXCLUSIVE, "packed 16 bit"),
    ("dot2_f32_f16", _DOT2, 4, EXCLUSIVE, "dot products"),
    ("cvt_pk_fp8_f32", "v_cvt_pk_fp8_f32 v20, v8, v9", 16, EXCLUSIVE, "conversions to fp8"),
    ("exp_f32", _EXP, 16, OVERLAPS, "transcendentals"),
)
_COUNTS = (1, 4, 6)
_FMA_COUNTS = (4, 6, 7)


def overlapping(count: int, clk: int, lost_slots: int = 1) -> float:
    """Clk of an MFMA and of `count` instructions of `clk` each that overlap with it.

    The issue of the MFMA and its lost slots occupy the vector unit too; an instruction of a quarter
    of the rate leaves room for the lost slots.
    """
    own = 4 * (1 + (lost_slots if clk == 4 else 0))
    return max(MFMA_CLK, own + count * clk)


def exclusive(count: int, clk: int) -> float:
    """Clk of an MFMA and of `count` instructions of `clk` each if none overlaps."""
    return MFMA_CLK + count * clk


def _beside() -> tuple[Clk, ...]:
    rows = [
        Clk(
            name=f"beside_fma_f32_x{count}",
            what=f"MFMA 32x32x8 and {count} v_fma_f32",
            text=MFMA + f"\n{_FMA}" * count,
            copies=8,
            settles="`mfma_lost_slots`, slots that an MFMA takes besides its own",
            readings=tuple(
                reads(f"{lost} lost", overlapping(count, 4, lost)) for lost in (1, 0, 2)
            ),
        )
        for count in _FMA_COUNTS
    ]
    for name, text, clk, model, what in _BESIDE:
        for count in _COUNTS:
            values = {
                OVERLAPS: overlapping(count, clk),
                EXCLUSIVE: exclusive(count, clk),
            }
            other = OVERLAPS if model == EXCLUSIVE else EXCLUSIVE
            rows.append(
                Clk(
                    name=f"beside_{name}_x{count}",
                    what=f"MFMA 32x32x8 and {count} {text.split()[0]}",
                    text=MFMA + f"\n{text}" * count,
                    copies=8,
                    settles=f"whether {what} run beside an MFMA of the same wave",
                    readings=(reads(model, values[model]), reads(other, values[other])),
                )
            )
    return tuple(rows)


BESIDE = _beside()

# In each copy, one wave of each SIMD does 4 MFMAs, and another does vector work of half their time.
_OTHERS = (
    ("fma_f32", _FMA, 16, OVERLAPS, "scalar f32"),
    ("pk_mul_f32", _PK_MUL, 16, EXCLUSIVE, "packed f32"),
    ("dot2_f32_f16", _DOT2, 16, EXCLUSIVE, "dot products"),
    ("exp_f32", _EXP, 4, OVERLAPS, "transcendentals"),
)


def _of_two_waves(text: str, count: int) -> str:
    branch = "v_cmp_gt_u32 vcc, 256, v0\ns_cbranch_vccnz matrix@\n"
    vector = f"{text}\n" * count + "s_branch done@\n"
    return branch + vector + "matrix@:\n" + f"{MFMA}\n" * 4 + "done@:"


OTHER_WAVE = tuple(
    Clk(
        name=f"other_wave_{name}",
        what=f"4 MFMA 32x32x8 of one wave, {count} {text.split()[0]} of another",
        text=_of_two_waves(text, count),
        copies=4,
        waves=WAVES,
        settles=f"whether {what} run beside an MFMA of another wave of the SIMD",
        readings=tuple(
            # Which wave's turn it is decides how much of the other's time is lost in addition.
            reads(reading, 192, 222) if reading == EXCLUSIVE else reads(reading, 128, 134)
            for reading in ((model, OVERLAPS) if model == EXCLUSIVE else (model, EXCLUSIVE))
        ),
    )
    for name, text, count, model, what in _OTHERS
)

# -- memory ----------------------------------------------------------------------------------------

LATENCIES: tuple[Latency, ...] = (
    Latency(name="latency_l1", what="L1 latency", level="l1", load=1, settles="`l1_latency`",
            readings=(reads("published measurements", 116, 122),)),
    Latency(name="latency_l2", what="L2 latency", level="l2", load=2, settles="`l2_latency`",
            readings=(reads("gpu-benches", 213, 220), reads("MT4G", 288))),
    Latency(name="latency_mall", what="MALL latency", level="mall", load=2, evicted=8 << 20,
            settles="`mall_latency_ns`, at 2.092 GHz",
            readings=(reads("gpu-benches", 455, 460),)),
    Latency(name="latency_hbm", what="HBM latency", level="hbm", load=0,
            settles="`hbm_latency_ns`, at 2.092 GHz",
            readings=(reads("gpu-benches", 835, 900),)),
)  # fmt: skip

REGIONS: tuple[Region, ...] = (
    Region(name="l1_rate", what="L1, 16 KB read again and again", nbytes=16 << 10, apart=0,
           settles="`l1_bytes_per_clk`",
           readings=(reads("64 bytes per clk at 2.1 GHz", 40.9),
                     reads("gpu-benches", 38.8, 39.3))),
    Region(name="l2_rate", what="L2, 2 MB read again and again", nbytes=2 << 20, apart=54272,
           settles="channels of the L2 have no conflicts",
           readings=(reads("none", 30.9), reads("as published", 15.8, 27.5))),
)  # fmt: skip

_RATE = "`hbm_rate`, of reads and writes together"
_FULL = 16  # passes: arrays of 319 MB on 304 CUs
STREAMS: tuple[Stream, ...] = (
    *(
        Stream(name=f"hbm_{name}_{passes}", what=f"HBM, {what}, {passes}/16 of the size",
               reads=n, writes=writes, passes=passes, settles="how rates grow with the size")
        for passes in (1, 4)
        for name, n, writes, what in (("read", 1, False, "read"), ("copy", 1, True, "copy"))
    ),
    Stream(name="mall_read", what="MALL, read", reads=1, writes=False, passes=4, warm=True,
           settles="`mall_rate`, behind an L2 that keeps a part of the array",
           readings=(reads("6.0 after the launch's start", 5.4, 5.6), reads("MT4G", 5.9, 6.0))),
    Stream(name="hbm_read", what="HBM, read", reads=1, writes=False, passes=_FULL, settles=_RATE,
           readings=(reads("gpu-benches, reads", 4.1, 4.2),)),
    Stream(name="hbm_write", what="HBM, write", reads=0, writes=True, passes=_FULL, settles=_RATE,
           readings=(reads("as reads", 3.9, 4.0), reads("faster, gpu-benches", 4.8))),
    Stream(name="hbm_copy", what="HBM, copy", reads=1, writes=True, passes=_FULL, settles=_RATE,
           readings=(reads("as reads", 4.1, 4.2),)),
    Stream(name="hbm_triad", what="HBM, two arrays read, one written", reads=2, writes=True,
           passes=_FULL, settles=_RATE,
           readings=(reads("as reads", 4.1, 4.2), reads("as published", 3.9, 4.09))),
)  # fmt: skip

CLOCKS: tuple[Clock, ...] = (
    Clock(name="clock_idle", what="engine clock, one wave at work",
          settles="the peak clock of the model", readings=(reads("stated", 2.1),)),
    Clock(name="clock_mfma", what="engine clock, all CUs do bfloat16 MFMAs", loaded=True,
          settles="the sustained clock of the model, and the energy estimate (section 4)",
          readings=(reads("AMD's article", 1.2), reads("no power cap", 2.1))),
)  # fmt: skip

CLK: tuple[Clk, ...] = (*ALONE, *LDS, *BESIDE, *OTHER_WAVE)
# In the order in which they run: the shortest first.
ROWS: tuple[Row, ...] = (*CLK, *LATENCIES, *REGIONS, *STREAMS, *CLOCKS)
