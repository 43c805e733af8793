"""Clocks and rates of the modelled device, as arch/gfx942.cc of the virtual device states them.

Sources are there; a test holds the two files against each other.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clocks:
    """Facts of one architecture by which cycles become time, and limits that a roofline shows."""

    peak_ghz: float
    sustained_ghz: float
    num_cus: int
    num_xcds: int
    launch_us: float  # between kernels of one stream
    dispatch_wave_clk: int
    first_fetch_clk: int
    hbm_bytes_per_ns: float
    matrix_flops_per_clk: int  # bfloat16, of one CU
    l2_bytes: int  # of one XCD
    mall_bytes: int

    @property
    def cus_per_xcd(self) -> int:
        """CUs that the model simulates."""
        return self.num_cus // self.num_xcds


CLOCKS = {
    "gfx942": Clocks(2.1, 1.2, 304, 8, 2.7, 14, 716, 4200, 2048, 4 << 20, 256 << 20),
}


def clocks(arch: str) -> Clocks:
    """Of one architecture."""
    if arch not in CLOCKS:
        raise ValueError(f"arch={arch!r} has no performance model; there is {', '.join(CLOCKS)}")
    return CLOCKS[arch]
