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
    limits = {
        f"registers ({registers} per lane, AGPRs among them)": waves_per_simd
        * arch.simds_per_cu
        // num_waves
    }
    if kernel.lds_bytes:
        limits[f"LDS ({kernel.lds_bytes} of {props.lds_bytes} bytes)"] = (
            props.lds_bytes // kernel.lds_bytes
        )
    limit = min(limits, key=lambda name: limits[name])
    if limits[limit] < 1:
        raise ManifestError(f"kernel {kernel.name} cannot run on {props.name}: too many {limit}")
    return limits[limit], limit
