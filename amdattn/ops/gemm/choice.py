"""A way to compute a product that a plan may take."""

from __future__ import annotations

from dataclasses import dataclass

from amdattn.device.manifest import KernelSpec
from amdattn.ops.gemm.cost import Cost
from amdattn.ops.gemm.problem import GemmProblem


@dataclass(frozen=True, slots=True)
class Choice:
    """A member, the parts of its tiles along k, their columns, and what they cost."""

    kernel: KernelSpec
    splits: int
    columns: int
    cost: Cost

    @property
    def facts(self) -> dict[str, object]:
        """What tells it from the others."""
        return {"kernel": self.kernel.name, "columns": self.columns, "splits": self.splits}


def steps(problem: GemmProblem, kernel: KernelSpec) -> int:
    """Steps of k: cache lines of a row, or two of them; of groups of k those of an even share."""
    step: int = kernel.params["step"]
    groups = problem.groups if problem.groups_share_k else 1
    return -(-problem.k // (step * groups))


def split_steps(problem: GemmProblem, kernel: KernelSpec, splits: int) -> int:
    """Steps of each part; the last one may have fewer."""
    return -(-steps(problem, kernel) // splits)
