"""What is published of products that run at their power cap: clocks, and the greatest rate."""

from __future__ import annotations

from dataclasses import dataclass

from amdattn.arch.energies import MAF_TFLOPS
from amdattn.arch.products import REFERENCE, of_arch

_MI355X = of_arch("gfx950")


@dataclass(frozen=True, slots=True)
class _ClockLine:
    """GHz at no matrix use, and what they fall by to full use."""

    idle_ghz: float
    falls_ghz: float


# ROCm/gfx950-gluon-tutorials, attention of 32 batch entries at the cap, about 1400 W: 2714 MHz less
# 12.42 for every per cent of matrix use, between 65 and 95 %. There is no such line of others.
_LINES = {_MI355X.name: _ClockLine(2.714, 1.242)}
# bfloat16 products, TFLOP/s: AMD's article on maximum achievable FLOPs; HipKittens' table.
_GEMM_TFLOPS = {REFERENCE.name: MAF_TFLOPS, _MI355X.name: 1610.0}


def clock_by_matrix_use(product: str, use: float) -> float | None:
    """The clock in GHz of a long launch, by the share of the device's matrix peak that it has.

    At most the peak clock; None: of this product nothing is published. An estimate, extrapolated
    outside of 0.65 to 0.95, of a board and a kernel that are others'.
    """
    line = _LINES.get(product)
    if line is None:
        return None
    return min(line.idle_ghz - line.falls_ghz * use, _MI355X.peak_clock_ghz)


def gemm_tflops(product: str) -> float | None:
    """The greatest rate of a bfloat16 product that is published of it; None: none is known here."""
    return _GEMM_TFLOPS.get(product)
