"""Energies of products: what their operations and bytes take, from public sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from amdattn.arch.products import REFERENCE, of_arch

_MI355X = of_arch("gfx950")


@dataclass(frozen=True)
class Energies:
    """Power and energies of one device; dynamic ones at 1 GHz.

    They grow with the square root of the clock, and the clock trees with its power 1.5, as a fit to
    55 published operating points of an MI300X at its cap found (gpu-benches roofline).

    Attributes
    ----------
    cap_watts, idle_watts, clock_tree_watts : float
        The last at 1 GHz.
    peak_ghz : float
    matrix_pj_per_flop : mapping of str to float
        By MxNxK of a bfloat16 MFMA, with its blocks where it has several.
    vector_pj_per_slot : float
        Of a VALU instruction of 64 lanes; a transcendental counts for as many as it takes slots.
    lds_pj_per_byte, l1_pj_per_byte, l2_pj_per_byte, hbm_pj_per_byte : float
    """

    cap_watts: float
    idle_watts: float
    clock_tree_watts: float
    peak_ghz: float
    matrix_pj_per_flop: Mapping[str, float]
    vector_pj_per_slot: float
    lds_pj_per_byte: float
    l1_pj_per_byte: float
    l2_pj_per_byte: float
    hbm_pj_per_byte: float


# bfloat16 GEMM of AMD's article on maximum achievable FLOPs: 708 TFLOP/s at 1.207 GHz and 750 W.
# What idle power and clock trees leave of the cap is charged to its MFMA, 16x16x16.
MAF_TFLOPS, _MAF_GHZ, _CAP, _IDLE, _CLOCK_TREE = 708.0, 1.207, 750.0, 200.0, 94.0
PJ_PER_FLOP_16X16X16 = (_CAP - _IDLE - _CLOCK_TREE * _MAF_GHZ**1.5) / (MAF_TFLOPS * _MAF_GHZ**0.5)
# The gpu-benches fit has 3.5 pJ per packed float32 operation: 128 operations of a plain FMA.
PJ_PER_FMA = 128 * 3.5
# Fitted to the published times of AITER and MoonMath, the only two fitted numbers here:
LARGE_TILE = 1.26  # a 32x32x8 MFMA over two 16x16x16, per operation; AMD's article: it draws more
PLAIN_VALU = 0.50  # an average VALU operation of attention over a float32 FMA


def mi300x(*, large_tile: float = LARGE_TILE, plain_valu: float = PLAIN_VALU) -> Energies:
    """The numbers of an MI300X; 1 for both arguments: nothing fitted."""
    return Energies(
        cap_watts=_CAP,
        idle_watts=_IDLE,
        clock_tree_watts=_CLOCK_TREE,
        peak_ghz=REFERENCE.peak_clock_ghz,
        matrix_pj_per_flop={
            "16x16x16": PJ_PER_FLOP_16X16X16,
            "32x32x8": PJ_PER_FLOP_16X16X16 * large_tile,
            # Of old shapes only this one occurs, to clear registers; taken for a tile as large.
            "32x32x4_2b": PJ_PER_FLOP_16X16X16 * large_tile,
        },
        vector_pj_per_slot=PJ_PER_FMA * plain_valu,
        # 7 nm SRAM: 8.5 pJ per 8 bytes of 32 KB, 14 pJ of 1 MB (Jouppi et al., ISCA 2021, the
        # update of Horowitz's table; not checked against the paper again).
        lds_pj_per_byte=8.5 / 8,
        l1_pj_per_byte=8.5 / 8,
        l2_pj_per_byte=14 / 8,
        hbm_pj_per_byte=100,  # gpu-benches fit: 100 W per TB/s
    )


# bfloat16 GEMM of 8192^3 on an MI355X, hipBLASLt: 1575 TFLOP/s (HipKittens' table), at the 1400 W
# of the board. Its clock is in no publication. Matrix units that never wait would make it 1.5 GHz;
# those of good GEMM loops wait for 5 to 10 % of the time.
_CDNA4_TFLOPS, _CDNA4_CAP = 1575.0, 1400.0
GEMM_GHZ = 1.6


def mi355x(
    *,
    gemm_ghz: float = GEMM_GHZ,
    idle_watts: float = _IDLE,
    large_tile: float = 1.0,
    plain_valu: float = PLAIN_VALU,
) -> Energies:
    """The numbers of an MI355X, none of them fitted; docs/studies/attention-bench-gfx950.md.

    What idle power and clock trees leave of the cap at the clock of the GEMM is charged to its
    MFMA. Everything else is an MI300X's, for want of anything better: of a chip with fewer CUs, in
    a newer process.

    Parameters
    ----------
    gemm_ghz : the clock of the GEMM, a guess
    idle_watts : a guess
    large_tile : a 32x32x16 MFMA over two 16x16x32, per operation; 1: as much
    plain_valu : as of an MI300X
    """
    clock_trees = _CLOCK_TREE * gemm_ghz**1.5
    matrix = (_CDNA4_CAP - idle_watts - clock_trees) / (_CDNA4_TFLOPS * gemm_ghz**0.5)
    base = mi300x(plain_valu=plain_valu)
    return replace(
        base,
        cap_watts=_CDNA4_CAP,
        idle_watts=idle_watts,
        peak_ghz=_MI355X.peak_clock_ghz,
        matrix_pj_per_flop={
            "16x16x32": matrix,
            "32x32x16": matrix * large_tile,
            # The shapes of gfx942, for which there is no anchor at all.
            "16x16x16": matrix,
            "32x32x8": matrix * large_tile,
            "32x32x4_2b": matrix * large_tile,
        },
    )


# By product; the others' caps and shares are not public enough to guess.
ENERGIES = {REFERENCE.name: mi300x(), _MI355X.name: mi355x()}
