"""The choices of planning."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from amdattn.arch.props import DeviceProps
from amdattn.device import manifest
from amdattn.device.manifest import KernelSpec, candidates
from amdattn.errors import UnsupportedProblem
from amdattn.op.plan import Made
from amdattn.op.support import Mismatch, all_allowed

C = TypeVar("C")
P = TypeVar("P")
Rejected = tuple[KernelSpec, list[Mismatch]]


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """A kernel and its estimated clocks, if nothing else has to be chosen."""

    kernel: KernelSpec
    clk: float

    @property
    def facts(self) -> dict[str, object]:
        """The facts that distinguish it from other choices."""
        return {"kernel": self.kernel.name}


def clk_of(choice: Any) -> float:
    """Its estimated clocks."""
    clk: float = choice.clk
    return clk


def fastest(items: Sequence[C]) -> C:
    """The choice of the least estimated time; the first of equals."""
    return min(items, key=clk_of)


@dataclass(frozen=True, slots=True)
class Choices(Generic[C]):
    """All legal choices, and why other kernels cannot do the work.

    Attributes
    ----------
    items : tuple
        In order of preference among equal costs.
    rejected : tuple of (KernelSpec, list of Mismatch)
        Nearest kernels first; all of them if there are no items.
    rows : sequence of KernelSpec
        All kernels, including others that plans launch.
    """

    items: tuple[C, ...]
    rejected: tuple[Rejected, ...]
    rows: Sequence[KernelSpec]

    def require(self, props: DeviceProps) -> None:
        """Raise UnsupportedProblem if there is no choice, naming what the nearest kernel lacks."""
        if self.items:
            return
        nearest, wrong = self.rejected[0]
        reasons = "; ".join(map(str, all_allowed(wrong, [others for _, others in self.rejected])))
        raise UnsupportedProblem(f"{reasons} on {props.arch} (nearest kernel: {nearest.name})")


def kernel_choices(
    problem: P,
    props: DeviceProps,
    rows: Sequence[KernelSpec],
    op: str,
    mismatches: Callable[[KernelSpec, P], list[Mismatch]],
    cost_clk: Callable[[KernelSpec, P, DeviceProps], float],
    distance: Callable[[Rejected], tuple[int, ...]] = lambda one: (len(one[1]),),
    order: Callable[[KernelSpec], int] = lambda kernel: 0,
) -> Choices[KernelChoice]:
    """All kernels of `op` that take a problem, by `order`; the others with the nearest first."""
    found = [(row, mismatches(row, problem)) for row in candidates(rows, op, props)]
    found.sort(key=lambda one: order(one[0]))
    items = [KernelChoice(row, cost_clk(row, problem, props)) for row, wrong in found if not wrong]
    rejected = sorted((one for one in found if one[1]), key=distance)
    return Choices(tuple(items), tuple(rejected), rows)


def planner(
    planning: Any, plan_type: type[Made], best: Callable[[Sequence[Any]], Any] = fastest
) -> functools._lru_cache_wrapper[Made]:
    """Return ``(problem, props)``: the plan of a problem on a device, made once.

    Parameters
    ----------
    planning : module
        A module with the `choices` and `build` of `Operation`.
    """

    @functools.lru_cache(maxsize=1024)
    def planned(problem: Any, props: DeviceProps) -> Made:
        found = planning.choices(problem, props, manifest.kernels())
        found.require(props)
        return plan_type.of(planning.build(problem, props, best(found.items), found))

    return planned
