"""Facts of architectures: limits of a CU and of a launch, and times of the performance model.

`virtual_device/arch` states the same facts for the model, each with its source; a test compares the
two. Planning reads the facts here, so it needs no native library.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Architecture:
    """Facts that all products of one architecture share.

    Attributes
    ----------
    name : str
        Target without features, e.g. "gfx942".
    lds_bytes : int
        Bytes of LDS per CU.
    simds_per_cu, waves_per_simd : int
    vgprs_per_simd, vgpr_granule : int
        Registers per lane, VGPRs and AGPRs together, and their unit of allocation.
    grid_x, grid_yz : int
        The most workgroups of a launch in x, and in y or z: hipDeviceProp_t.maxGridSize in CLR.
    physical_cus_of_xcd : int
        CUs of an XCD, including those that are fused off in every product.
    slot_clk : int
        Clk between two issue slots of a SIMD.
    lds_ports, lds_port_bytes : int
        LDS ports per CU, and the bytes that each port reads per clk.
    l1_bytes_per_clk, vmem_queue : int
        Per CU: the bytes that its L1 delivers per clk, and the vector memory instructions that may
        be in flight.
    l2_bytes, l2_bytes_per_clk, l2_write_bytes_per_clk : int
        Per XCD: the size of the L2, and the bytes that it delivers and accepts per clk.
    matrix_flops_per_clk : int
        bfloat16 operations per CU and clk.
    launch_us : float
        Time from the end of a kernel to the start of the next one in its stream. This is the only
        constant for it, and no modelled time of one kernel includes it. AMD's simulator has 2.7 for
        gfx942 and 2.1 to 2.6 for gfx950; consecutive smallest kernels take 2.5 to 2.9 on an MI300A
        (mgpusim), and the smallest kernel in AITER's tuned tables takes 2.9.
    dispatch_wave_clk, first_fetch_clk : int
        Clk between the starts of two waves on an XCD, and from the start of a wave to its first
        instruction.
    mall_latency_ns, hbm_latency_ns : int
        Latency of a load from the last level cache, and from HBM.
    open_trans : bool
        Whether it is unknown if transcendentals overlap with the matrix unit.
    converts_bf16 : bool
        Whether an instruction rounds float32 to bfloat16. It rounds to nearest even, and kernels
        offer no other rounding there.
    fp8 : str
        The 8-bit element type with 4 exponent bits that the instructions accept.
    bf8 : str
        The 8-bit element type with 5 exponent bits that the instructions accept.
    """

    name: str
    lds_bytes: int
    simds_per_cu: int
    waves_per_simd: int
    vgprs_per_simd: int
    vgpr_granule: int
    grid_x: int
    grid_yz: int
    physical_cus_of_xcd: int
    slot_clk: int
    lds_ports: int
    lds_port_bytes: int
    l1_bytes_per_clk: int
    vmem_queue: int
    l2_bytes: int
    l2_bytes_per_clk: int
    l2_write_bytes_per_clk: int
    matrix_flops_per_clk: int
    launch_us: float
    dispatch_wave_clk: int
    first_fetch_clk: int
    mall_latency_ns: int
    hbm_latency_ns: int
    open_trans: bool
    converts_bf16: bool
    fp8: str
    bf8: str


ARCHITECTURES = {
    arch.name: arch
    for arch in (
        Architecture(
            name="gfx942",
            lds_bytes=64 * 1024,
            simds_per_cu=4,
            waves_per_simd=8,
            vgprs_per_simd=512,
            vgpr_granule=8,
            grid_x=2**31 - 1,
            grid_yz=65536,
            physical_cus_of_xcd=40,
            slot_clk=4,
            lds_ports=2,
            lds_port_bytes=64,
            l1_bytes_per_clk=64,
            vmem_queue=64,
            l2_bytes=4 << 20,
            l2_bytes_per_clk=1843,
            l2_write_bytes_per_clk=594,
            matrix_flops_per_clk=2048,
            launch_us=2.7,
            dispatch_wave_clk=14,
            first_fetch_clk=716,
            mall_latency_ns=217,
            hbm_latency_ns=412,
            open_trans=True,
            converts_bf16=False,
            fp8="float8_e4m3fnuz",
            bf8="float8_e5m2fnuz",
        ),
        Architecture(
            name="gfx950",
            lds_bytes=160 * 1024,
            simds_per_cu=4,
            waves_per_simd=8,
            vgprs_per_simd=512,
            vgpr_granule=8,
            grid_x=2**31 - 1,
            grid_yz=65536,
            physical_cus_of_xcd=36,
            slot_clk=4,
            lds_ports=2,
            lds_port_bytes=64,
            l1_bytes_per_clk=64,
            vmem_queue=64,
            l2_bytes=4 << 20,
            l2_bytes_per_clk=1843,
            l2_write_bytes_per_clk=768,
            matrix_flops_per_clk=4096,
            launch_us=2.6,
            dispatch_wave_clk=14,
            first_fetch_clk=716,
            mall_latency_ns=217,
            hbm_latency_ns=412,
            open_trans=False,
            converts_bf16=True,
            fp8="float8_e4m3fn",
            bf8="float8_e5m2",
        ),
    )
}


def architecture(name: str) -> Architecture:
    """The facts of an architecture, e.g. "gfx942".

    Raises
    ------
    ValueError
        `name` is no supported architecture.
    """
    if name not in ARCHITECTURES:
        raise ValueError(f"arch={name!r} must be one of {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[name]
