"""A way to compute a product that a plan may take."""

from __future__ import annotations

from dataclasses import dataclass

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.ops.gemm.cost import Cost
from amdattn.ops.gemm.problem import GemmProblem


@dataclass(frozen=True, slots=True)
class Choice:
    """A member, the parts of its tiles along k, their columns, and what they cost.

    Attributes
    ----------
    passes : int
        How often B is read from HBM: once for each tile of m if workgroups are apart, and once if
        the last level cache holds it.
    """

    kernel: KernelSpec
    splits: int
    columns: int
    cost: Cost
    passes: int

    @staticmethod
    def of(
        problem: GemmProblem,
        kernel: KernelSpec,
        splits: int,
        columns: int,
        cost: Cost,
        props: DeviceProps,
    ) -> Choice:
        """Make the choice of a product on a device."""
        tile_m: int = kernel.tile["m"]
        is_held = problem.b_rows * problem.k * problem.element_bytes <= props.mall_bytes
        passes = 1 if is_held else -(-problem.m // tile_m)
        return Choice(kernel, splits, columns, cost, passes)

    @property
    def facts(self) -> dict[str, object]:
        """The facts that distinguish it from other choices."""
        return {"kernel": self.kernel.name, "columns": self.columns, "splits": self.splits}
