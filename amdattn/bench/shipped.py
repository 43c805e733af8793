"""The package's own attention kernels as a benchmark runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amdattn.bench.family import FamilySampler
from amdattn.bench.kernels import Functions
from amdattn.bench.modelled import Modelled
from amdattn.bench.shapes import Shape
from amdattn.bench.shipped_launches import ShippedLaunches

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from amdattn.bench.modelled import ModelOptions


class Shipped(ShippedLaunches):
    """The kernels that a plan chooses; the parameters are those of ShippedLaunches."""

    def model(
        self, shape: Shape, functions: Functions, **options: Unpack[ModelOptions]
    ) -> list[Modelled]:
        """Model every launch with the performance model; see `FamilySampler`."""
        return FamilySampler(self, shape, functions, **options).model()
