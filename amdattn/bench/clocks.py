"""Clocks and rates that convert modelled cycles to times, from the tables of `amdattn.arch`."""

from __future__ import annotations

from dataclasses import dataclass

from amdattn.arch import products
from amdattn.arch.props import KNOWN_DEVICES, DeviceProps


@dataclass(frozen=True, slots=True)
class Clocks:
    """Facts of one device that convert cycles to time, and the limits that a roofline shows.

    Units are in the names; `Architecture` and `Chip` of `amdattn.arch` describe the fields.
    """

    name: str  # of the product, with the partition mode if it is a partition
    peak_ghz: float
    sustained_ghz: float
    num_cus: int
    num_xcds: int
    launch_us: float  # between consecutive kernels of one stream
    dispatch_wave_clk: int
    first_fetch_clk: int
    hbm_bytes_per_ns: float
    matrix_flops_per_clk: int  # bfloat16, per CU
    l2_bytes: int  # per XCD
    mall_bytes: int

    @property
    def cus_per_xcd(self) -> int:
        """CUs of one XCD, which are those that the model simulates."""
        return self.num_cus // self.num_xcds


def clocks(device: DeviceProps | str) -> Clocks:
    """Clocks of a device, or of the product that the name of an architecture stands for.

    Raises
    ------
    ValueError
        `device` is the name of no supported architecture.
    """
    props = device if isinstance(device, DeviceProps) else _default_of(device)
    arch = props.architecture
    return Clocks(
        name=props.label,
        peak_ghz=props.peak_clock_ghz,
        sustained_ghz=props.sustained_clock_ghz,
        num_cus=props.num_cus,
        num_xcds=props.num_xcds,
        launch_us=arch.launch_us,
        dispatch_wave_clk=arch.dispatch_wave_clk,
        first_fetch_clk=arch.first_fetch_clk,
        hbm_bytes_per_ns=props.hbm_bytes_per_ns,
        matrix_flops_per_clk=arch.matrix_flops_per_clk,
        l2_bytes=arch.l2_bytes,
        mall_bytes=props.mall_bytes,
    )


def _default_of(arch: str) -> DeviceProps:
    return KNOWN_DEVICES[products.of_arch(arch).name]
