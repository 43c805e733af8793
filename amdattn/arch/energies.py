"""Energies of operations and of moved bytes by product, from public sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from amdattn.arch.products import REFERENCE, of_arch

_MI355X = of_arch("gfx950")


@dataclass(frozen=True)
class Energies:
    """Power of one device, and dynamic energies at 1 GHz.

    Energies grow with the square root of the clock, and the power of the clock trees with the clock
    to the power 1.5, according to a fit to 55 published operating points of an MI300X at its cap
    (gpu-benches roofline).

    Attributes
    ----------
    cap_watts, idle_watts, clock_tree_watts : float
        The power cap of the board, its idle power, and the power of the clock trees at 1 GHz; W.
    peak_ghz : float
        The greatest engine clock.
    matrix_pj_per_flop : mapping of str to float
        pJ per operation of a bfloat16 MFMA, by its MxNxK, followed by the number of blocks if it
        has several, e.g. "32x32x4_2b".
    vector_pj_per_slot : float
        pJ per issue slot of a VALU instruction of 64 lanes. A transcendental takes several slots.
    lds_pj_per_byte, l1_pj_per_byte, l2_pj_per_byte, hbm_pj_per_byte : float
        pJ per byte that the LDS, the L1, the L2 or HBM delivers.
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


# AMD's article on maximum achievable FLOPs gives 708 TFLOP/s at 1.207 GHz and 750 W for a bfloat16
# GEMM. The cap less idle power and clock trees is charged to its MFMA, 16x16x16.
MAF_TFLOPS, _MAF_GHZ, _CAP, _IDLE, _CLOCK_TREE = 708.0, 1.207, 750.0, 200.0, 94.0
PJ_PER_FLOP_16X16X16 = (_CAP - _IDLE - _CLOCK_TREE * _MAF_GHZ**1.5) / (MAF_TFLOPS * _MAF_GHZ**0.5)
# The gpu-benches fit gives 3.5 pJ per packed float32 operation; a plain FMA has 128 operations.
PJ_PER_FMA = 128 * 3.5
# The only two fitted numbers here; they are fitted to the published times of AITER and MoonMath.
# LARGE_TILE: energy per operation of a 32x32x8 MFMA relative to 16x16x16. AMD's article says that
# it draws more. PLAIN_VALU: energy of an average VALU operation of attention relative to a float32
# FMA.
LARGE_TILE = 1.26
PLAIN_VALU = 0.50


def mi300x(*, large_tile: float = LARGE_TILE, plain_valu: float = PLAIN_VALU) -> Energies:
    """Energies of an MI300X.

    Parameters
    ----------
    large_tile : float
        Energy per operation of a 32x32x8 MFMA relative to 16x16x16; fitted. 1: no difference.
    plain_valu : float
        Energy of an average VALU operation relative to a float32 FMA; fitted. 1: no difference.
    """
    return Energies(
        cap_watts=_CAP,
        idle_watts=_IDLE,
        clock_tree_watts=_CLOCK_TREE,
        peak_ghz=REFERENCE.peak_clock_ghz,
        matrix_pj_per_flop={
            "16x16x16": PJ_PER_FLOP_16X16X16,
            "32x32x8": PJ_PER_FLOP_16X16X16 * large_tile,
            # The only older shape in use: it clears registers. It is charged like 32x32x8.
            "32x32x4_2b": PJ_PER_FLOP_16X16X16 * large_tile,
        },
        vector_pj_per_slot=PJ_PER_FMA * plain_valu,
        # SRAM in 7 nm takes 8.5 pJ per 8 bytes from 32 KB and 14 pJ from 1 MB (Jouppi et al., ISCA
        # 2021, the update of Horowitz's table; not checked against the paper again).
        lds_pj_per_byte=8.5 / 8,
        l1_pj_per_byte=8.5 / 8,
        l2_pj_per_byte=14 / 8,
        hbm_pj_per_byte=100,  # gpu-benches fit: 100 W per TB/s
    )


# HipKittens' table gives 1575 TFLOP/s for hipBLASLt's bfloat16 GEMM of 8192^3 on an MI355X, which
# has 1400 W per board. The clock of this GEMM is not published. It would be 1.5 GHz if the matrix
# units never waited; those of good GEMM loops wait for 5 to 10 % of the time.
_CDNA4_TFLOPS, _CDNA4_CAP = 1575.0, 1400.0
GEMM_GHZ = 1.6


def mi355x(
    *,
    gemm_ghz: float = GEMM_GHZ,
    idle_watts: float = _IDLE,
    large_tile: float = 1.0,
    plain_valu: float = PLAIN_VALU,
) -> Energies:
    """Energies of an MI355X; none is fitted. See docs/studies/attention-bench-gfx950.md.

    The MFMA is charged with the cap less idle power and clock trees, at the clock of hipBLASLt's
    GEMM. All other numbers are those of an MI300X, because none are published for the MI355X,
    although this chip has fewer CUs and a newer process.

    Parameters
    ----------
    gemm_ghz : float
        The clock of the GEMM in GHz; the default is a guess.
    idle_watts : float
        Idle power in W; the default is a guess.
    large_tile : float
        Energy per operation of a 32x32x16 MFMA relative to 16x16x32. 1: no difference.
    plain_valu : float
        As in `mi300x`.
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
            # The shapes of gfx942: no published figure gives their energy on this chip.
            "16x16x16": matrix,
            "32x32x8": matrix * large_tile,
            "32x32x4_2b": matrix * large_tile,
        },
    )


# By product. Too little is published about the caps and energies of the others to guess them.
ENERGIES = {REFERENCE.name: mi300x(), _MI355X.name: mi355x()}
