"""Issue, units and co-execution: kernels of few instructions, whose clk the documents state."""

from __future__ import annotations

import pytest

from benchmarks.performance_model.micro_kernel import clk_per, pass_clk, profile

MFMA = {  # passes x 4 clk: matrix instruction calculator, CDNA3 ISA 7.5
    "v_mfma_f32_32x32x8_bf16 a[0:15], v[8:9], v[10:11], a[0:15]": 32,
    "v_mfma_f32_32x32x8_f16 a[0:15], v[8:9], v[10:11], a[0:15]": 32,
    "v_mfma_f32_16x16x16_bf16 a[0:3], v[8:9], v[10:11], a[0:3]": 16,
    "v_mfma_f32_16x16x32_fp8_fp8 a[0:3], v[8:9], v[10:11], a[0:3]": 16,
    "v_mfma_f32_32x32x2_f32 a[0:15], v8, v9, a[0:15]": 64,
    "v_mfma_f32_16x16x4_f32 a[0:3], v8, v9, a[0:3]": 32,
    "v_mfma_f64_16x16x4_f64 a[0:7], v[8:9], v[10:11], a[0:7]": 32,
    "v_mfma_i32_32x32x16_i8 a[0:15], v[8:9], v[10:11], a[0:15]": 32,
}
VECTOR = {
    "v_add_f32 v20, v8, v9": 4,
    "v_perm_b32 v20, v8, v9, v10": 4,
    "v_pk_fma_f32 v[20:21], v[8:9], v[10:11], v[12:13]": 4,
    "v_fma_f64 v[20:21], v[8:9], v[10:11], v[12:13]": 4,
    "v_exp_f32 v20, v8": 16,
    "v_rcp_f32 v20, v8": 16,
}


@pytest.mark.parametrize(("text", "clk"), MFMA.items())
def test_mfma_occupies_its_simd_for_its_passes(text: str, clk: int) -> None:
    assert clk_per(text, waves=1) == clk
    assert clk_per(text, waves=4) == clk  # a wave on each SIMD


@pytest.mark.parametrize(("text", "clk"), VECTOR.items())
def test_vector_instructions_occupy_their_simd(text: str, clk: int) -> None:
    assert clk_per(text, waves=1) == clk
    assert clk_per(text, waves=4) == clk


@pytest.mark.parametrize("text", [*list(MFMA)[:1], *list(VECTOR)[:1], *list(VECTOR)[-1:]])
def test_two_waves_of_a_simd_share_a_unit(text: str) -> None:
    clk = (MFMA | VECTOR)[text]
    assert clk_per(text, waves=8) == pytest.approx(2 * clk, rel=0.05)


def test_vector_work_hides_behind_an_mfma() -> None:
    """In 32 clk one slot is the MFMA's own and one is lost: six other instructions fit."""
    mfma = next(iter(MFMA))
    assert clk_per(mfma + "\nv_add_f32 v20, v8, v9" * 6, copies=8) == 32
    assert clk_per(mfma + "\nv_add_f32 v20, v8, v9" * 7, copies=8) == 36


@pytest.mark.parametrize(("text", "clk"), [("s_nop 0", 4), ("s_nop 3", 16), ("s_nop 7", 32)])
def test_wait_states(text: str, clk: int) -> None:
    assert clk_per(text) == clk


def test_scalar_instructions_take_one_slot() -> None:
    assert clk_per("s_add_u32 s5, s6, 1") == 4


def test_taken_branch() -> None:
    assert clk_per("s_branch to{i}\ns_nop 0\nto{i}:") == 24  # TensileLite's six slots


def test_branch_that_is_not_taken() -> None:
    assert clk_per("s_cbranch_execz to{i}\ns_nop 0\nto{i}:") == 8


def test_waves_of_a_simd_issue_to_different_units_in_one_slot() -> None:
    """Two waves with vector and scalar work each: the slots of either unit are full, not summed."""
    text = "v_add_f32 v20, v8, v9\ns_add_u32 s5, s6, 1"
    assert clk_per(text, copies=16, waves=4) == 8
    assert clk_per(text, copies=16, waves=8) == pytest.approx(8, rel=0.1)


def test_priority_goes_before_age() -> None:
    """A wave that raises its priority gets all slots it wants; without, the older one does."""
    work = "v_add_f32 v20, v8, v9\n" * 64
    # Twice, so that the second time the code is in the cache.
    twice = f"s_mov_b32 s4, 2\nloop:\ns_barrier\n{work}s_sub_u32 s4, s4, 1\n"
    twice += "s_cmp_lg_u32 s4, 0\ns_cbranch_scc1 loop\n"
    raise_younger = "v_cmp_gt_u32 vcc, 256, v0\ns_cbranch_vccnz from\ns_setprio 3\nfrom:\n"
    ends = {}
    for name, text in (("age", twice), ("priority", raise_younger + twice)):
        found = profile(text, waves=8, trace_events=100_000)
        adds = [e for e in found.events if e.track == "vector" and e.simd == 0]
        last = {wave: max(e.end for e in adds if e.wave == wave) for wave in {e.wave for e in adds}}
        ends[name] = [last[wave] for wave in sorted(last)]
    assert len(ends["age"]) == len(ends["priority"]) == 2
    assert ends["age"][0] < ends["age"][1]
    assert ends["priority"][1] < ends["priority"][0]


def test_units_are_counted_exactly() -> None:
    mfma = next(iter(MFMA))
    found = profile("\n".join([mfma, "v_add_f32 v20, v8, v9", "v_exp_f32 v21, v8"] * 10), waves=4)
    empty = profile("", waves=4)
    assert found.clk["mfma"] == 4 * 10 * 32
    assert found.clk["valu"] - empty.clk["valu"] == 4 * 10 * (4 + 4 + 16)


def test_results_repeat_bit_for_bit() -> None:
    text = "ds_read_b128 v[20:23], v3\n" + "v_exp_f32 v24, v8\ns_waitcnt lgkmcnt(0)\ns_barrier"
    first, second = (profile(text, waves=8, trace_events=1000) for _ in range(2))
    assert first == second


def test_a_pass_of_an_empty_loop() -> None:
    """Subtract, compare, taken branch."""
    assert pass_clk("") == 4 + 4 + 24
