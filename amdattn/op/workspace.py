"""Named regions of one device allocation, each on its own alignment boundary."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

REGION_ALIGN_BYTES = 256  # what hipMalloc itself gives: no region shares a cache line with another


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes ``[offset, offset + nbytes)`` of a workspace."""

    name: str
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class WorkspaceLayout:
    """Where each named region lies. `total_bytes` is what to allocate; it may be 0."""

    regions: tuple[Region, ...] = ()

    @staticmethod
    def of(sizes: Iterable[tuple[str, int]]) -> WorkspaceLayout:
        """Lay out (name, nbytes) pairs in order. Names must differ, sizes be >= 0."""
        regions: list[Region] = []
        offset = 0
        for name, nbytes in sizes:
            if nbytes < 0:
                raise ValueError(f"region {name!r} has a negative size ({nbytes})")
            if any(region.name == name for region in regions):
                raise ValueError(f"region {name!r} is named twice")
            regions.append(Region(name, offset, nbytes))
            offset += -(-nbytes // REGION_ALIGN_BYTES) * REGION_ALIGN_BYTES
        return WorkspaceLayout(tuple(regions))

    @property
    def total_bytes(self) -> int:
        """Bytes from the first region's start to the last one's end."""
        if not self.regions:
            return 0
        last = self.regions[-1]
        return last.offset + last.nbytes

    def __getitem__(self, name: str) -> Region:
        for region in self.regions:
            if region.name == name:
                return region
        raise KeyError(name)
