"""What runs beside a matrix instruction: the tables of arch/gfx*.cc, in kernels."""

from __future__ import annotations

import pytest

from amdattn import virtual
from benchmarks.performance_model.figures import BESIDE, beside, coexecution
from benchmarks.performance_model.micro import hidden
from benchmarks.performance_model.micro_kernel import clk_per, profile

MFMA = "v_mfma_f32_32x32x8_bf16 a[0:15], v[8:9], v[10:11], a[0:15]"  # 32 clk
ALONE = {
    "v_mfma_f32_32x32x2_f32 a[0:15], v8, v9, a[0:15]": 64,
    "v_mfma_f64_16x16x4_f64 a[0:7], v[8:9], v[10:11], a[0:7]": 32,
}
HIDDEN = (
    "v_add_f32 v20, v8, v9",
    "v_max3_f32 v20, v8, v9, v10",
    "v_perm_b32 v20, v8, v9, v10",
    "v_fma_mix_f32 v20, v8, v9, v10 op_sel_hi:[0,0,1]",
    "v_cvt_pkrtz_f16_f32 v20, v8, v9",
)
EXCLUSIVE = {
    "v_pk_fma_f32 v[20:21], v[8:9], v[10:11], v[12:13]": 4,
    "v_pk_mul_f32 v[20:21], v[8:9], v[10:11]": 4,
    "v_pk_mov_b32 v[20:21], v[8:9], v[10:11]": 4,
    "v_pk_mul_f16 v20, v8, v9": 4,
    "v_pk_fmac_f16 v20, v8, v9": 4,
    "v_pk_add_i16 v20, v8, v9": 4,
    "v_dot2_f32_f16 v20, v8, v9, v10": 4,
    "v_dot2c_f32_f16 v20, v8, v9": 4,
    "v_dot4_i32_i8 v20, v8, v9, v10": 4,
    "v_qsad_pk_u16_u8 v[20:21], v[8:9], v10, v[12:13]": 4,
    "v_cvt_pk_fp8_f32 v20, v8, v9": 16,
}
EXP = "v_exp_f32 v20, v8"
# Further instructions that LLVM never issues beside a matrix instruction, by their sources.
NEVER = {
    "v20, v8, v9": (
        *("v_pk_add_f16", "v_pk_max_f16", "v_pk_min_f16", "v_pk_add_u16", "v_pk_sub_i16"),
        *("v_pk_sub_u16", "v_pk_max_i16", "v_pk_max_u16", "v_pk_min_i16", "v_pk_min_u16"),
        *("v_pk_mul_lo_u16", "v_pk_ashrrev_i16", "v_pk_lshlrev_b16", "v_pk_lshrrev_b16"),
        *("v_dot2c_i32_i16", "v_dot4c_i32_i8", "v_dot8c_i32_i4"),
    ),
    "v20, v8, v9, v10": (
        *("v_pk_fma_f16", "v_pk_mad_i16", "v_pk_mad_u16"),
        *("v_dot2_i32_i16", "v_dot2_u32_u16", "v_dot4_u32_u8", "v_dot8_i32_i4", "v_dot8_u32_u4"),
    ),
    "v[20:21], v[8:9], v[10:11]": ("v_pk_add_f32",),
    "v[20:21], v[8:9], v10, v[12:13]": ("v_mqsad_pk_u16_u8",),
    "v[20:23], v[8:9], v10, v[12:15]": ("v_mqsad_u32_u8",),
}


@pytest.mark.parametrize(("lost", "hides"), [(0, 7), (1, 6), (2, 5)])
def test_slots_that_a_matrix_instruction_takes(lost: int, hides: int) -> None:
    virtual.set_option("mfma_lost_slots", lost + 1)
    try:
        assert clk_per(MFMA + f"\n{HIDDEN[0]}" * hides, copies=8) == 32
        assert clk_per(MFMA + f"\n{HIDDEN[0]}" * (hides + 1), copies=8) == 36
    finally:
        virtual.set_option("mfma_lost_slots", 0)


@pytest.mark.parametrize("text", HIDDEN)
def test_scalar_work_hides(text: str) -> None:
    assert clk_per(MFMA + f"\n{text}" * 6, copies=8) == 32


@pytest.mark.parametrize(("text", "clk"), EXCLUSIVE.items())
def test_exclusive_work_waits_for_the_matrix_unit_and_holds_it(text: str, clk: int) -> None:
    assert clk_per(text) == clk
    assert clk_per(MFMA + f"\n{text}", copies=8) == 32 + clk
    assert clk_per(MFMA + f"\n{text}" * 3, copies=8) == 32 + 3 * clk


def test_all_of_the_list_is_exclusive() -> None:
    texts = [f"{name} {operands}" for operands, names in NEVER.items() for name in names]
    assert clk_per("\n".join(f"{MFMA}\n{text}" for text in texts), copies=1) == 36 * len(texts)
    packs = [f"v_cvt_pk_{kind}_f32 v20, v8, v9" for kind in ("fp8", "bf8")]
    assert clk_per("\n".join(f"{MFMA}\n{text}" for text in packs), copies=4) == 48 * 2


def test_exclusive_work_of_one_wave_holds_up_the_matrix_work_of_another() -> None:
    """Two waves a SIMD, one with MFMAs alone, the other with packed work alone: neither hides."""
    branch = "v_cmp_gt_u32 vcc, 256, v0\ns_cbranch_vccnz matrix\n{vector}\ns_endpgm\nmatrix:\n"
    ends = {}
    for name, text in (("packed", next(iter(EXCLUSIVE))), ("scalar", HIDDEN[0])):
        body = branch.format(vector=f"{text}\n" * 64) + f"{MFMA}\n" * 64
        (time,) = profile(body, waves=8).times
        ends[name] = time.end - time.start
    assert ends["packed"] - ends["scalar"] == pytest.approx(64 * 4, abs=32)


@pytest.mark.parametrize(("text", "clk"), ALONE.items())
def test_wide_inputs_leave_no_room(text: str, clk: int) -> None:
    assert clk_per(text) == clk
    assert clk_per(f"{text}\n{HIDDEN[0]}", copies=8) == clk + 4
    assert clk_per(f"{text}\n{EXP}", copies=8) == clk + 16


def test_transcendentals_under_both_readings() -> None:
    assert clk_per(f"{MFMA}\n{EXP}", copies=8) == 32
    assert clk_per(f"{MFMA}\n{EXP}", copies=8, reading="default") == 32
    assert clk_per(f"{MFMA}\n{EXP}", copies=8, reading="trans-exclusive") == 48
    # Nothing else knows the difference.
    assert clk_per(EXP, reading="trans-exclusive") == 16
    assert clk_per(f"{MFMA}\n{HIDDEN[0]}", copies=8, reading="trans-exclusive") == 32


def test_the_option_decides_where_the_call_does_not() -> None:
    assert profile(EXP).reading == "default"
    virtual.set_option("trans_exclusive", 1)
    try:
        assert profile(EXP).reading == "trans-exclusive"
        assert profile(EXP, reading="default").reading == "default"
        assert profile(EXP).reading == "trans-exclusive"  # restored
    finally:
        virtual.set_option("trans_exclusive", 0)
    assert profile(EXP).reading == "default"


def test_what_is_no_reading() -> None:
    with pytest.raises(ValueError, match=r"reading='half' must be one of default, lost-slots-0"):
        virtual.profile(reading="half")


@pytest.mark.parametrize(
    ("text", "clk"),
    [
        ("v_cvt_f32_f16 v20, v8", 16),
        ("v_cvt_f16_f32 v20, v8", 16),
        ("v_cvt_f32_i32 v20, v8", 16),
        ("v_cvt_pk_f32_fp8 v[20:21], v8", 16),
        ("v_cvt_pkrtz_f16_f32 v20, v8, v9", 4),
        ("v_cvt_f32_ubyte0 v20, v8", 4),
        ("v_cvt_f16_i16 v20, v8", 4),
    ],
)
def test_conversions_as_llvm_has_them(text: str, clk: int) -> None:
    assert clk_per(text) == clk
    assert clk_per(f"{MFMA}\n{text}", copies=8) == 32


def test_the_printed_table_says_what_the_kernels_show() -> None:
    table = {(arch, names): does for arch, names, does, _, _ in coexecution()}
    for names, text in (
        ("v_pk_{add,mul,fma}_f32, v_pk_mov_b32", "v_pk_mul_f32 v[20:21], v[8:9], v[10:11]"),
        ("v_dot\\*", "v_dot2_f32_f16 v20, v8, v9, v10"),
        ("v_cvt_pk_{fp8,bf8}_f32", "v_cvt_pk_fp8_f32 v20, v8, v9"),
    ):
        assert table["gfx942", names] == "exclusive" and hidden(text).count == 0
    trans = "v_exp, v_log, v_rcp, v_rsq, v_sqrt, v_sin, v_cos"
    assert table["gfx942", trans] == "open" and table["gfx950", trans] == "overlaps"
    assert hidden(EXP).count == 1 and hidden(EXP, reading="trans-exclusive").count == 0
    behind = {after for arch, _, does, after, _ in coexecution() if arch == "gfx942"}
    assert behind == {"0"}
    assert {"12"} == {
        after
        for arch, names, _, after, _ in coexecution()
        if arch == "gfx950" and names.startswith("v_pk")
    }


def test_rows_of_what_an_mfma_hides() -> None:
    some = [row for row in BESIDE if row[0] in ("v_pk_mul_f32", "v_exp_f32")]
    assert [row[:3] for row in beside(some)] == [
        ("`v_pk_mul_f32`", "0", "4"),
        ("`v_exp_f32`, beside", "1", "4"),
        ("`v_exp_f32`, exclusive", "0", "16"),
    ]
