"""What planning has to choose from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.errors import UnsupportedProblem
from amdattn.op.mismatch import Mismatch, all_allowed

C = TypeVar("C")
Rejected = tuple[KernelSpec, list[Mismatch]]


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """A kernel and its estimated clocks, where there is nothing else to choose."""

    kernel: KernelSpec
    clk: float

    @property
    def facts(self) -> dict[str, object]:
        """What tells it from the others."""
        return {"kernel": self.kernel.name}


@dataclass(frozen=True, slots=True)
class Choices(Generic[C]):
    """Every legal way to do something, and what is in the way of kernels that cannot.

    Attributes
    ----------
    items : tuple
        In the order in which they are preferred where they cost the same.
    rejected : tuple of (KernelSpec, list of Mismatch)
        The nearest first; all of them if there are no items.
    rows : sequence of KernelSpec
        All kernels, also those that plans launch besides.
    """

    items: tuple[C, ...]
    rejected: tuple[Rejected, ...]
    rows: Sequence[KernelSpec]

    def require(self, props: DeviceProps) -> None:
        """Raise UnsupportedProblem, naming what the nearest kernel lacks, if there is nothing."""
        if self.items:
            return
        nearest, wrong = self.rejected[0]
        reasons = "; ".join(map(str, all_allowed(wrong, [others for _, others in self.rejected])))
        raise UnsupportedProblem(f"{reasons} on {props.arch} (nearest kernel: {nearest.name})")
