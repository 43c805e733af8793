"""How many workgroups of a kernel a CU holds at a time."""

from __future__ import annotations

from amdattn.arch.props import LANES_PER_WAVE, DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.errors import ManifestError


def workgroups_per_cu(kernel: KernelSpec, props: DeviceProps) -> tuple[int, str]:
    """How many workgroups of `kernel` fit a CU at once, and what limits it."""
    x, y, z = kernel.workgroup
    num_waves = -(-x * y * z // LANES_PER_WAVE)
    arch = props.architecture
    # CDNA3 and CDNA4 allocate VGPRs and AGPRs of a wave from one file; `vgpr` counts both.
    registers = -(-kernel.vgpr // arch.vgpr_granule) * arch.vgpr_granule
    waves_per_simd = min(arch.waves_per_simd, arch.vgprs_per_simd // max(registers, 1))
    by_registers = waves_per_simd * arch.simds_per_cu // num_waves
    by_lds = props.lds_bytes // kernel.lds_bytes if kernel.lds_bytes else by_registers
    found = min(by_registers, by_lds)
    if by_registers <= by_lds:
        limit = f"registers ({registers} per lane, AGPRs among them)"
    else:
        limit = f"LDS ({kernel.lds_bytes} of {props.lds_bytes} bytes)"
    if found < 1:
        raise ManifestError(f"kernel {kernel.name} cannot run on {props.name}: too many {limit}")
    return found, limit
