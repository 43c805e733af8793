"""The facts of a device that planning needs; the runtime queries them."""

from __future__ import annotations

from dataclasses import dataclass

from amdattn import scalars
from amdattn.arch import products as chips
from amdattn.arch.architectures import Architecture, architecture

LANES_PER_WAVE = 64


@dataclass(frozen=True, slots=True)
class DeviceProps:
    """Facts of one device, or of one partition of it.

    Parameters
    ----------
    arch : str
        Target without feature suffix, e.g. "gfx942".
    name : str
        Marketing name as the runtime reports it.
    num_cus : int
        Compute units visible to a launch.
    num_xcds : int
        Accelerator dies. Consecutive workgroups are distributed over them round robin.
    lds_bytes : int
        Bytes of LDS per CU.
    memory_bytes : int
        Bytes of device memory.
    target : str
        Full target id, e.g. "gfx942:sramecc+:xnack-"; defaults to `arch`.
    chip : str
        The product, one of `amdattn.arch.products`, identified by its PCI device id; defaults to
        the product that `name` contains. "" if it is an unknown product: planning then assumes the
        XCDs of the first product of the architecture.

    Raises
    ------
    ValueError
        A count is not positive, there are more XCDs than CUs, or `chip` is no known product.
    """

    arch: str
    name: str
    num_cus: int
    num_xcds: int
    lds_bytes: int
    memory_bytes: int
    target: str = ""
    chip: str = ""

    def __post_init__(self) -> None:
        for field in ("num_cus", "num_xcds", "lds_bytes", "memory_bytes"):
            count = scalars.integer(field, getattr(self, field))
            if count <= 0:
                raise ValueError(f"{field}={count} must be positive")
            object.__setattr__(self, field, count)
        if self.num_xcds > self.num_cus:
            raise ValueError(f"num_xcds={self.num_xcds} must be at most num_cus={self.num_cus}")
        if not self.target:
            object.__setattr__(self, "target", self.arch)
        if self.chip and self._chip is None:
            have = ", ".join(chip.name for chip in chips.CHIPS)
            raise ValueError(f"chip={self.chip!r} must be one of {have}, or empty")
        named = chips.by_name(self.name)
        if not self.chip and named is not None and named.arch == self.arch:
            object.__setattr__(self, "chip", named.name)

    @property
    def _chip(self) -> chips.Chip | None:
        return chips.named(self.chip)

    @property
    def planned_as(self) -> chips.Chip:
        """The product whose clocks and rates plans use; if unknown, its architecture's first."""
        return self._chip or chips.first_of(self.arch)

    @property
    def label(self) -> str:
        """A short name: "MI308X", "MI300X:CPX" for a partition, or else the runtime's name."""
        if not self.chip:
            return self.name
        whole = self._chip is not None and self.num_xcds == self._chip.num_xcds
        return self.chip if whole else f"{self.chip}:{self.partition or self.num_xcds}"

    @property
    def architecture(self) -> Architecture:
        """The facts of the architecture; raises ValueError if it is unknown."""
        return architecture(self.arch)

    @property
    def peak_clock_ghz(self) -> float:
        """The greatest engine clock of the product, in GHz."""
        return self.planned_as.peak_clock_ghz

    @property
    def sustained_clock_ghz(self) -> float:
        """The clock that is assumed during long matrix products, in GHz."""
        return self.planned_as.sustained_clock_ghz

    @property
    def hbm_latency_clk(self) -> int:
        """Latency of a load from HBM, in clk at the peak clock."""
        return round(self.architecture.hbm_latency_ns * self.peak_clock_ghz)

    @property
    def mall_bytes(self) -> int:
        """Bytes of the last level cache; for a partition, the share of its XCDs."""
        whole = self.planned_as
        return whole.mall_bytes * self.num_xcds // whole.num_xcds

    @property
    def hbm_bytes_per_ns(self) -> float:
        """Rate of sustained reads of HBM; for a partition, the share of its XCDs."""
        return chips.hbm_bytes_per_ns(self.planned_as, self.num_xcds)

    @property
    def mall_bytes_per_ns(self) -> float:
        """Rate of the last level cache; for a partition, the share of its XCDs."""
        return chips.mall_bytes_per_ns(self.planned_as, self.num_xcds)

    @property
    def partition(self) -> str:
        """The compute partition mode with this number of XCDs, e.g. "CPX"; "" if it is unknown."""
        return chips.partition_mode(self._chip, self.num_xcds)


def _published(chip: chips.Chip, num_xcds: int) -> DeviceProps:
    """The facts of a chip, or of its partition with `num_xcds` XCDs."""
    share = chip.num_xcds // num_xcds
    return DeviceProps(
        *(chip.arch, chips.VENDOR + chip.name, chip.cus_of_xcd * num_xcds, num_xcds),
        *(architecture(chip.arch).lds_bytes, chip.memory_bytes // share, "", chip.name),
    )


# Published figures of whole (SPX) devices, for planning without a device.
KNOWN_DEVICES = {chip.name: _published(chip, chip.num_xcds) for chip in chips.CHIPS}
# Figures of the partitions of these devices, by names such as "MI300X:CPX".
KNOWN_PARTITIONS = {
    f"{chip.name}:{mode}": _published(chip, num_xcds)
    for chip in chips.CHIPS
    for num_xcds in range(chip.num_xcds - 1, 0, -1)
    if (mode := chips.partition_mode(chip, num_xcds))
}


def as_device_props(device: object) -> DeviceProps:
    """Accept a DeviceProps, or the name of a known device ("MI300X") or partition ("MI300X:CPX").

    Raises
    ------
    ValueError
        `device` is neither.
    """
    if isinstance(device, DeviceProps):
        return device
    known = {**KNOWN_DEVICES, **KNOWN_PARTITIONS}
    if isinstance(device, str) and device in known:
        return known[device]
    raise ValueError(
        f"device={device!r} must be a DeviceProps (amdattn.device_props() returns the bound "
        f"device's) or one of {', '.join(known)}"
    )
