"""The products that kernels are shipped for, how they are identified, and their partitions.

Two products may have the same number of CUs (MI300X and MI325X), and a partition has fewer CUs than
its product. Products are therefore identified by the PCI device id, which is the same in every
partition mode.
"""

from __future__ import annotations

from dataclasses import dataclass

VENDOR = "AMD Instinct "


@dataclass(frozen=True, slots=True)
class Chip:
    """Published figures of a whole product, with all of its XCDs in one partition.

    Attributes
    ----------
    name : str
        Without the vendor, e.g. "MI300X".
    arch : str
        Target without features.
    ids : tuple of int
        PCI device ids, including those of variants and of virtual functions.
    num_cus, num_xcds : int
        Of the whole product.
    memory_bytes : int
        Capacity of HBM.
    peak_hbm_bytes_per_ns, hbm_bytes_per_ns : float
        The published rate of HBM, and the rate that reads sustain.
    mall_bytes : int
        Size of the last level cache.
    mall_bytes_per_ns : float
        Rate of writes to and reads from the last level cache.
    peak_clock_ghz, sustained_clock_ghz : float
        The greatest clock, and the clock that is assumed during long matrix products.
    """

    name: str
    arch: str
    ids: tuple[int, ...]
    num_cus: int
    num_xcds: int
    memory_bytes: int
    peak_hbm_bytes_per_ns: float
    hbm_bytes_per_ns: float
    mall_bytes: int
    mall_bytes_per_ns: float
    peak_clock_ghz: float
    sustained_clock_ghz: float

    @property
    def cus_of_xcd(self) -> int:
        """CUs of an XCD that are not fused off."""
        return self.num_cus // self.num_xcds


# An MI300X sustains reads of 4200 bytes/ns. Other products of its architecture are assumed to
# sustain the same share of their published rate.
_MEASURED = 4200 / 5300

CHIPS = (
    Chip(
        name="MI300X",
        arch="gfx942",
        ids=(0x74A1, 0x74A9, 0x74B5, 0x74BD),
        num_cus=304,
        num_xcds=8,
        memory_bytes=192 * 2**30,
        peak_hbm_bytes_per_ns=5300,
        hbm_bytes_per_ns=5300 * _MEASURED,
        mall_bytes=256 << 20,
        mall_bytes_per_ns=6000,
        peak_clock_ghz=2.1,
        sustained_clock_ghz=1.2,
    ),
    Chip(
        name="MI325X",
        arch="gfx942",
        ids=(0x74A5, 0x74B9),
        num_cus=304,
        num_xcds=8,
        memory_bytes=256 * 2**30,
        peak_hbm_bytes_per_ns=6000,
        hbm_bytes_per_ns=6000 * _MEASURED,
        mall_bytes=256 << 20,
        mall_bytes_per_ns=6000,
        peak_clock_ghz=2.1,
        sustained_clock_ghz=1.2,
    ),
    Chip(
        name="MI300A",
        arch="gfx942",
        ids=(0x74A0,),
        num_cus=228,
        num_xcds=6,
        memory_bytes=128 * 2**30,
        peak_hbm_bytes_per_ns=5300,
        hbm_bytes_per_ns=5300 * _MEASURED,
        mall_bytes=256 << 20,
        mall_bytes_per_ns=6000,
        peak_clock_ghz=2.1,
        sustained_clock_ghz=1.2,
    ),
    Chip(
        name="MI308X",
        arch="gfx942",
        ids=(0x74A2, 0x74A8, 0x74B6, 0x74BC),
        num_cus=80,
        num_xcds=4,
        memory_bytes=192 * 2**30,
        peak_hbm_bytes_per_ns=5300,
        hbm_bytes_per_ns=5300 * _MEASURED,
        mall_bytes=256 << 20,
        mall_bytes_per_ns=6000,
        peak_clock_ghz=2.1,
        sustained_clock_ghz=1.2,
    ),
    Chip(
        name="MI355X",
        arch="gfx950",
        ids=(0x75A3, 0x75B3),
        num_cus=256,
        num_xcds=8,
        memory_bytes=288 * 2**30,
        peak_hbm_bytes_per_ns=8000,
        hbm_bytes_per_ns=6250,
        mall_bytes=256 << 20,
        mall_bytes_per_ns=6565,
        peak_clock_ghz=2.4,
        sustained_clock_ghz=1.75,
    ),
    Chip(
        name="MI350X",
        arch="gfx950",
        ids=(0x75A0, 0x75B0),
        num_cus=256,
        num_xcds=8,
        memory_bytes=288 * 2**30,
        peak_hbm_bytes_per_ns=8000,
        hbm_bytes_per_ns=6250,
        mall_bytes=256 << 20,
        mall_bytes_per_ns=6565,
        peak_clock_ghz=2.2,
        sustained_clock_ghz=1.5,
    ),
)


def of_arch(arch: str) -> Chip:
    """The product that the name of an architecture stands for: its first one.

    Raises
    ------
    ValueError
        `arch` is no supported architecture.
    """
    found = _FIRST_OF.get(arch)
    if found is None:
        have = ", ".join(dict.fromkeys(chip.arch for chip in CHIPS))
        raise ValueError(f"arch={arch!r} must be one of {have}")
    return found


# The product that the virtual device models by default. The planners' constants are fitted to it.
REFERENCE = CHIPS[0]

_BY_NAME = {chip.name: chip for chip in CHIPS}
_FIRST_OF = {chip.arch: chip for chip in reversed(CHIPS)}

# Compute partition modes by the number of partitions, unless each XCD is a partition of its own.
_MODES = {1: "SPX", 2: "DPX", 3: "TPX", 4: "QPX"}


def by_id(chip_id: int) -> Chip | None:
    """The product with this PCI device id, or None."""
    return next((chip for chip in CHIPS if chip_id in chip.ids), None)


def named(name: str) -> Chip | None:
    """The product with exactly this name, e.g. "MI300X", or None."""
    return _BY_NAME.get(name)


def by_name(name: str) -> Chip | None:
    """The product that a runtime names, e.g. "AMD Instinct MI300X VF", or None."""
    words = name.removeprefix(VENDOR).split()
    return _BY_NAME.get(words[0]) if words else None


def first_of(arch: str) -> Chip:
    """The product that plans assume for an unknown product: the first one of its architecture.

    If the architecture is unknown too, it is REFERENCE.
    """
    return _FIRST_OF.get(arch, REFERENCE)


def hbm_bytes_per_ns(chip: Chip, num_xcds: int) -> float:
    """Rate of sustained HBM reads of a device with `num_xcds` XCDs: their share of the chip's."""
    return chip.hbm_bytes_per_ns * num_xcds / chip.num_xcds


def mall_bytes_per_ns(chip: Chip, num_xcds: int) -> float:
    """Rate of the last level cache of a device with `num_xcds` XCDs: their share of the chip's."""
    return chip.mall_bytes_per_ns * num_xcds / chip.num_xcds


def partition_mode(chip: Chip | None, num_xcds: int) -> str:
    """The partition mode in which a device has `num_xcds` XCDs, or "" if there is none."""
    if chip is None or chip.num_xcds % num_xcds:
        return ""
    partitions = chip.num_xcds // num_xcds
    if num_xcds == 1 and partitions > 1:
        return "CPX"
    return _MODES.get(partitions, "")
