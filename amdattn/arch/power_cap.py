"""Published clocks and greatest rates of products that run at their power cap."""

from __future__ import annotations

from dataclasses import dataclass

from amdattn.arch.energies import MAF_TFLOPS
from amdattn.arch.products import REFERENCE, of_arch

_MI355X = of_arch("gfx950")


@dataclass(frozen=True, slots=True)
class _ClockLine:
    """GHz without matrix use, and by how many GHz the clock falls at full use."""

    idle_ghz: float
    falls_ghz: float


# ROCm/gfx950-gluon-tutorials, attention with 32 batch entries at the cap of about 1400 W: 2714 MHz
# less 12.42 for every per cent of matrix use, between 65 and 95 %. There is no such line for other
# products.
_LINES = {_MI355X.name: _ClockLine(2.714, 1.242)}
# TFLOP/s of bfloat16 products, from AMD's article on maximum achievable FLOPs and from HipKittens'
# table.
_GEMM_TFLOPS = {REFERENCE.name: MAF_TFLOPS, _MI355X.name: 1610.0}


def clock_by_matrix_use(product: str, use: float) -> float | None:
    """Estimate the clock of a long launch in GHz from the share of the matrix peak that it reaches.

    The estimate is at most the peak clock. It comes from another board and another kernel, and is
    extrapolated outside of 0.65 to 0.95.

    Parameters
    ----------
    product : str
        Name of a product, e.g. "MI355X".
    use : float
        The launch's share of the matrix peak of the device, from 0 to 1.

    Returns
    -------
    float or None
        None if nothing is published for this product.
    """
    line = _LINES.get(product)
    if line is None:
        return None
    return min(line.idle_ghz - line.falls_ghz * use, _MI355X.peak_clock_ghz)


def gemm_tflops(product: str) -> float | None:
    """The greatest published TFLOP/s of a bfloat16 matrix product; None if none is known here."""
    return _GEMM_TFLOPS.get(product)
