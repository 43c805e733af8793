"""What planning needs to know about a device. Querying one is runtime.py's job."""

from __future__ import annotations

from dataclasses import dataclass

from amdattn import scalars

LANES_PER_WAVE = 64
SIMDS_PER_CU = 4
VGPRS_PER_SIMD_LANE = 512  # unified VGPR + AGPR file of CDNA3 and CDNA4, per lane
VGPR_GRANULE = 8


@dataclass(frozen=True, slots=True)
class DeviceProps:
    """Facts of one device (or of one partition of it).

    Parameters
    ----------
    arch : str
        Target without feature suffix, e.g. "gfx942".
    name : str
        Marketing name as the runtime reports it.
    num_cus : int
        Compute units visible to a launch.
    num_xcds : int
        Accelerator dies; consecutive workgroups go round robin over them.
    lds_bytes : int
        LDS of one CU.
    memory_bytes : int
        Device memory.
    target : str
        Full target id, e.g. "gfx942:sramecc+:xnack-"; defaults to `arch`.
    """

    arch: str
    name: str
    num_cus: int
    num_xcds: int
    lds_bytes: int
    memory_bytes: int
    target: str = ""

    def __post_init__(self) -> None:
        for field in ("num_cus", "num_xcds", "lds_bytes", "memory_bytes"):
            count = scalars.integer(field, getattr(self, field))
            if count <= 0:
                raise ValueError(f"{field}={count} must be positive")
            object.__setattr__(self, field, count)
        if not self.target:
            object.__setattr__(self, "target", self.arch)


# Published figures of whole (SPX) devices, for planning without one.
KNOWN_DEVICES = {
    props.name.removeprefix("AMD Instinct "): props
    for props in (
        DeviceProps("gfx942", "AMD Instinct MI300X", 304, 8, 65536, 192 * 2**30),
        DeviceProps("gfx942", "AMD Instinct MI325X", 304, 8, 65536, 256 * 2**30),
        DeviceProps("gfx942", "AMD Instinct MI300A", 228, 6, 65536, 128 * 2**30),
    )
}


def as_device_props(device: object) -> DeviceProps:
    """Accept a DeviceProps or the name of a known device ("MI300X")."""
    if isinstance(device, DeviceProps):
        return device
    if isinstance(device, str) and device in KNOWN_DEVICES:
        return KNOWN_DEVICES[device]
    raise ValueError(
        f"device={device!r} must be a DeviceProps (amdattn.device_props() gives the bound one's) "
        f"or one of {', '.join(KNOWN_DEVICES)}"
    )
