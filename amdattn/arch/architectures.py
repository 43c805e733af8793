"""Facts of architectures: limits of a CU and of a launch, and times of the performance model.

`virtual_device/arch` states them for the model, each with its source, and a test compares the two.
Planning reads these, so that it needs no native library.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Architecture:
    """Facts of every product of one architecture.

    Attributes
    ----------
    name : str
        Target without features, e.g. "gfx942".
    lds_bytes : int
        LDS of a CU.
    simds_per_cu, waves_per_simd : int
    vgprs_per_simd, vgpr_granule : int
        Registers of a lane, VGPRs and AGPRs together, and their unit of allocation.
    grid_x, grid_yz : int
        The most workgroups of a launch, by hipDeviceProp_t.maxGridSize in CLR.
    physical_cus_of_xcd : int
        CUs of an XCD, including those that every product has fused off.
    slot_clk : int
        Clk between two issue slots of a SIMD.
    lds_ports, lds_port_bytes : int
        Ports of a CU, and bytes that each of them reads in a clk.
    l1_bytes_per_clk, vmem_queue : int
        For a CU: bytes of its L1 in a clk, and vector memory instructions under way.
    l2_bytes, l2_bytes_per_clk, l2_write_bytes_per_clk : int
        For one XCD: its bytes, and the bytes that it delivers and takes in a clk.
    matrix_flops_per_clk : int
        For bfloat16, of one CU.
    launch_us : float
        Time from the end of a kernel to the next one of its stream. It is the only constant for it,
        and no modelled time of one kernel includes it. AMD's simulator has 2.7 for gfx942 and 2.1
        to 2.6 for gfx950; the smallest kernels of MI300A in a row take 2.5 to 2.9 (mgpusim), the
        smallest that AITER has tuned 2.9.
    dispatch_wave_clk, first_fetch_clk : int
        Clk between two waves that an XCD starts, and from a wave's start to its first instruction.
    mall_latency_ns, hbm_latency_ns : int
        Latency of a load from the last level cache, and of one from HBM.
    open_trans : bool
        Whether it is unknown what transcendentals do while the matrix unit works.
    converts_bf16 : bool
        Whether an instruction rounds float32 to bfloat16. It does so to nearest even, and kernels
        have no other rounding there.
    fp8 : str
        The 8-bit element type with 4 exponent bits that instructions take.
    bf8 : str
        The 8-bit element type with 5 exponent bits.
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
    """The facts of one architecture.

    Raises
    ------
    ValueError
        There is no such architecture.
    """
    if name not in ARCHITECTURES:
        raise ValueError(f"arch={name!r} must be one of {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[name]
