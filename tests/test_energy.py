"""The energy-and-clock estimate: what it must do, and that it holds where it was fitted."""

from __future__ import annotations

import dataclasses

import pytest

from amdattn.arch.energies import ENERGIES, mi355x
from amdattn.bench.run import energy
from amdattn.energy import PJ_PER_FLOP_16X16X16, Activity, estimate, mi300x
from benchmarks.performance_model import micro_kernel
from benchmarks.performance_model.published import MILLISECONDS
from benchmarks.performance_model.times import _split_ways, schedule

GEMM = Activity(  # AMD's own: 708 TFLOP in a second at 1.207 GHz
    cycles=1.207e9, matrix_flops={"16x16x16": 708e12}
)


def test_the_gemm_that_gave_the_energy_comes_back() -> None:
    found = estimate(GEMM)
    assert found.clock_ghz == pytest.approx(1.207, rel=1e-6)
    assert found.seconds == pytest.approx(1.0, rel=1e-6)
    assert pytest.approx(0.547, abs=0.001) == PJ_PER_FLOP_16X16X16


def test_power_meets_the_cap_or_the_clock_its_peak() -> None:
    assert sum(estimate(GEMM).watts.values()) == pytest.approx(750)
    idle = estimate(Activity(cycles=1e9))
    assert idle.clock_ghz == mi300x().peak_ghz
    assert sum(idle.watts.values()) < 750


@pytest.mark.parametrize("part", ["vector_slots", "lds_bytes", "l1_bytes", "l2_bytes", "hbm_bytes"])
def test_more_of_anything_lowers_the_clock_and_leaves_the_cycles(part: str) -> None:
    more = dataclasses.replace(GEMM, **{part: 1e12})
    assert estimate(more).clock_ghz < estimate(GEMM).clock_ghz
    assert estimate(more).seconds * estimate(more).clock_ghz == pytest.approx(GEMM.cycles / 1e9)


def test_large_tiles_draw_more() -> None:
    large = dataclasses.replace(GEMM, matrix_flops={"32x32x8": 708e12})
    assert estimate(large).clock_ghz < estimate(GEMM).clock_ghz
    assert estimate(large, mi300x(large_tile=1)) == estimate(GEMM)


def test_the_gemm_of_an_mi355x_comes_back_whatever_is_guessed() -> None:
    for guess in ({}, {"gemm_ghz": 1.75}, {"idle_watts": 350.0}, {"plain_valu": 1.0}):
        ghz = guess.get("gemm_ghz", 1.6)
        gemm = Activity(cycles=ghz * 1e9, matrix_flops={"16x16x32": 1575e12})
        found = estimate(gemm, mi355x(**guess))
        assert found.clock_ghz == pytest.approx(ghz) and found.seconds == pytest.approx(1.0)
        assert sum(found.watts.values()) == pytest.approx(1400)
    assert ENERGIES["MI355X"].matrix_pj_per_flop["32x32x16"] == pytest.approx(0.507, abs=0.001)
    assert ENERGIES["MI355X"].peak_ghz == 2.4
    large = mi355x(large_tile=1.26).matrix_pj_per_flop
    assert large["32x32x16"] == pytest.approx(1.26 * large["16x16x32"])


def test_an_mfma_without_an_energy_is_refused() -> None:
    with pytest.raises(ValueError, match="32x32x16"):
        estimate(dataclasses.replace(GEMM, matrix_flops={"32x32x16": 1.0}))


def test_activity_of_a_launch() -> None:
    text = "v_mfma_f32_16x16x16_bf16 a[0:3], v[8:9], v[10:11], a[0:3]\nv_add_f32 v20, v8, v9\n"
    text += "v_exp_f32 v21, v8\nds_read_b128 v[24:27], v3"
    one, none = (Activity.of(micro_kernel.profile(t, waves=4)) for t in (text, ""))
    assert one.matrix_flops == {"16x16x16": 4 * 2 * 16 * 16 * 16}
    assert one.vector_slots - none.vector_slots == 4 * (1 + 4)
    assert one.lds_bytes - none.lds_bytes == 4 * 64 * 16


def test_blocks_of_an_mfma_count() -> None:
    """As a kernel that clears registers with them has."""
    zeros = "v_mfma_f32_32x32x4_2b_bf16 a[0:31], v[8:9], v[8:9], 0"
    (kind,) = Activity.of(micro_kernel.profile(zeros, waves=4)).matrix_flops.items()
    assert kind == ("32x32x4_2b", 4 * 2 * 32 * 32 * 4 * 2)


def test_a_record_says_why_it_has_no_energy() -> None:
    found = energy(dataclasses.replace(GEMM, matrix_flops={"32x32x16": 1.0}))
    assert found["refused"].startswith("MFMA ['32x32x16'] have no energy")


def test_parts_of_the_last_round() -> None:
    """15 parts of 40 workgroups are two rounds of 13 tiles, 7 parts one round of 28."""
    assert _split_ways(40, 192) == 15
    assert _split_ways(0, 192) == _split_ways(300, 192) == _split_ways(40, 47) == 1


def test_rounds_of_the_published_shapes() -> None:
    for size in MILLISECONDS:
        batch, heads, seqlen = size
        plan = schedule("aiter", size)
        assert plan.iterations == batch * heads * -(-seqlen // 256) * seqlen // 64
        assert 0.8 < plan.iterations / (304 * plan.depth) <= 1
