"""Times of every way to compute a matrix product, on the device at hand."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from amdattn import virtual
from amdattn.arrays.buffers import DeviceArray, empty
from amdattn.arrays.interchange import asarray
from amdattn.device import manifest, runtime
from amdattn.dtypes import as_dtype
from amdattn.ops.gemm import planning
from amdattn.ops.gemm.execution import GemmPlan
from amdattn.ops.gemm.problem import GemmProblem
from amdattn.ops.gemm.table import Tuned
from amdattn.testing import do_bench

_SOME = 1 << 16  # random elements; what an operand holds does not matter for the time


@dataclass(frozen=True, slots=True)
class Timed:
    """A choice, what it was estimated at, and what it takes."""

    choice: planning.Choice
    us: float

    @property
    def estimated_us(self) -> float:
        """By the planner."""
        return self.choice.cost.us


@dataclass(frozen=True, slots=True)
class Tuning:
    """Every choice for a problem, the fastest first, and how they were timed."""

    problem: GemmProblem
    timed: tuple[Timed, ...]
    how: str

    @property
    def best(self) -> Tuned:
        """As a table has it."""
        fastest = self.timed[0]
        choice = fastest.choice
        us = round(fastest.us, 3)
        return Tuned(choice.kernel.name, choice.splits, choice.columns, us, self.how)


def choices_of(
    problem: GemmProblem, splits: Sequence[int] = (), candidates: int = 0
) -> list[planning.Choice]:
    """What there is to time on the bound device.

    Parameters
    ----------
    splits : sequence of int
        Only these numbers of parts; none: all that the planner tries.
    candidates : int
        Only so many, those with the least estimated time; 0: all.
    """
    props = runtime.device_props()
    found = planning.every_choice(problem, props, manifest.kernels())
    chosen = [choice for choice in found if not splits or choice.splits in splits]
    if not chosen:
        have = sorted({choice.splits for choice in found})
        raise ValueError(f"splits={tuple(splits)}: none of them is tried, of {have}")
    chosen.sort(key=lambda choice: choice.cost.clk)
    return chosen[: candidates or None]


def tune(
    problem: GemmProblem,
    choices: Sequence[planning.Choice],
    advance: Callable[[], None] = lambda: None,
) -> Tuning:
    """Time choices for a problem; on a GPU with caches flushed before every run."""
    clock = _Modelled() if runtime.get().choice.kind == "virtual" else _Measured()
    operands = random_operands(problem)
    timed = []
    for choice in choices:
        plan = planned(problem, choice)
        workspace = plan.new_workspace() if plan.workspace.regions else None
        run = functools.partial(plan.run, **operands, workspace=workspace)
        timed.append(Timed(choice, clock.us(run)))
        advance()
    return Tuning(problem, tuple(sorted(timed, key=lambda one: one.us)), clock.how)


def planned(problem: GemmProblem, choice: planning.Choice) -> GemmPlan:
    """A plan that makes this choice."""
    return GemmPlan.of(planning.plan_choice(problem, runtime.device_props(), choice))


class _Modelled:
    """The performance model, at the clock at which kernels run that wait for memory."""

    def __init__(self) -> None:
        self._ghz = runtime.device_props().peak_clock_ghz
        self.how = f"modelled at {1000 * self._ghz:.0f} MHz"

    def us(self, run: Callable[[], Any]) -> float:
        with virtual.profile(clock_mhz=round(1000 * self._ghz)) as profile:
            run()
            runtime.synchronize()
        (launch,) = profile.launches
        return launch.cycles / self._ghz / 1000


class _Measured:
    """Events of the device, the median."""

    def __init__(self) -> None:
        self.how = f"measured on {runtime.device_props().name}"

    def us(self, run: Callable[[], Any]) -> float:
        return 1000 * float(do_bench(run, return_mode="median"))


def random_operands(problem: GemmProblem) -> dict[str, DeviceArray]:
    """a, b, out and, if there is one, bias of a product, on the device."""
    import numpy as np

    element = as_dtype(problem.dtype).numpy()
    some = np.random.default_rng(0).standard_normal(_SOME, np.float32).astype(element)
    operands = {
        name: asarray(np.resize(some, shape)) for name, shape in problem.input_shapes.items()
    }
    return {**operands, "out": empty((problem.m, problem.n), problem.out_dtype)}
