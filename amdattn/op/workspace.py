"""Named regions of one device allocation, each on its own alignment boundary."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

REGION_ALIGN_BYTES = 256  # the alignment of hipMalloc: no region shares a cache line with another

Init = Literal["none", "zero", "zero_at_rest"]


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes ``[offset, offset + nbytes)`` of a workspace.

    Attributes
    ----------
    init : {"none", "zero", "zero_at_rest"}
        The contents that launches need: anything; zeros, which every run writes first; or zeros
        that launches themselves restore. Memory that is zero at rest lives as long as its stream or
        the caller's workspace, other memory as long as a run.
    """

    name: str
    nbytes: int
    init: Init = "none"
    offset: int = 0


@dataclass(frozen=True, slots=True)
class WorkspaceLayout:
    """The places of named regions. `total_bytes` has to be allocated; it may be 0."""

    regions: tuple[Region, ...] = ()

    @staticmethod
    def of(wanted: Iterable[Region]) -> WorkspaceLayout:
        """Lay out regions in order, those that are zero at rest first.

        Names must differ, and sizes must be >= 0.
        """
        regions: list[Region] = []
        offset = 0
        for region in sorted(wanted, key=lambda region: region.init != "zero_at_rest"):
            if region.nbytes < 0:
                raise ValueError(f"region {region.name!r} has a negative size ({region.nbytes})")
            if any(other.name == region.name for other in regions):
                raise ValueError(f"region {region.name!r} is named twice")
            regions.append(replace(region, offset=offset))
            offset += -(-region.nbytes // REGION_ALIGN_BYTES) * REGION_ALIGN_BYTES
        return WorkspaceLayout(tuple(regions))

    @property
    def total_bytes(self) -> int:
        """Bytes from the first region's start to the last one's end."""
        if not self.regions:
            return 0
        last = self.regions[-1]
        return last.offset + last.nbytes

    @property
    def zero_bytes(self) -> int:
        """Bytes at the beginning that are zero at rest."""
        at_rest = [region for region in self.regions if region.init == "zero_at_rest"]
        return at_rest[-1].offset + at_rest[-1].nbytes if at_rest else 0

    @property
    def scratch_offset(self) -> int:
        """The offset of the memory that is not zero at rest."""
        others = [region.offset for region in self.regions if region.init != "zero_at_rest"]
        return others[0] if others else self.total_bytes

    def __getitem__(self, name: str) -> Region:
        for region in self.regions:
            if region.name == name:
                return region
        raise KeyError(name)
