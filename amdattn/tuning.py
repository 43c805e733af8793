"""Times every kernel choice for a problem on the bound device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amdattn import virtual
from amdattn.arrays.buffers import DeviceArray, empty
from amdattn.arrays.interchange import asarray
from amdattn.device import manifest, runtime
from amdattn.op.choices import Choices
from amdattn.op.executor import RunnablePlan
from amdattn.op.operation import Operation
from amdattn.testing import do_bench

# Time of this CPU per microsecond that a choice is modelled to take: the upper end of the 0.03 to
# 0.1 that were seen. And time of a GPU per choice, whatever its kernel takes.
_CPU_SECONDS_PER_US, _GPU_SECONDS = 0.1, 0.2
_SOME = 1 << 16  # random elements, repeated: contents of operands do not matter for the time


@dataclass(frozen=True, slots=True)
class Timed:
    """A choice, its time, and the planner's estimate; both in microseconds."""

    choice: Any
    us: float
    estimated_us: float


@dataclass(frozen=True, slots=True)
class Tuning:
    """Timed choices for a problem, the fastest first.

    Attributes
    ----------
    problem : object
        A problem of an operation.
    timed : tuple of Timed
    how : str
        E.g. "modelled at 2100 MHz" or "measured on" a device.
    """

    problem: Any
    timed: tuple[Timed, ...]
    how: str


def choices_of(operation: Operation[Any, Any], problem: Any) -> Choices[Any]:
    """The choices for a problem on the bound device; raises if there are none."""
    props = runtime.device_props()
    found = operation.choices(problem, props, manifest.kernels())
    found.require(props)
    return found


def prospect(operation: Operation[Any, Any], choices: Sequence[Any]) -> str:
    """A sentence that says how these choices will be timed, and about how long that takes."""
    props = runtime.device_props()
    if runtime.get().choice.kind == "virtual":
        us = sum(operation.cost(choice) for choice in choices) / props.peak_clock_ghz / 1000
        how, seconds = "each simulated on one XCD", us * _CPU_SECONDS_PER_US
    else:
        how, seconds = "each measured on the GPU", _GPU_SECONDS * len(choices)
    long = f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{max(seconds, 1):.0f} s"
    return f"{len(choices)} choices, {how}: about {long} at most"


def tune(
    operation: Operation[Any, Any],
    problem: Any,
    choices: Choices[Any],
    some: Sequence[Any] = (),
    advance: Callable[[Any, bool], None] = lambda choice, done: None,
) -> Tuning:
    """Time choices: modelled on the virtual device, measured on a GPU.

    On a GPU caches are flushed before every run.

    Parameters
    ----------
    operation : Operation
    problem : object
        A problem of the operation.
    choices : Choices
        From `choices_of`.
    some : sequence
        Time only these choices; empty: all.
    advance : callable
        Called with each choice, and whether it has been timed, before and after that.
    """
    clock = _Modelled() if runtime.get().choice.kind == "virtual" else _Measured()
    props = runtime.device_props()
    timed = []
    for choice in some or choices.items:
        advance(choice, False)
        plan = operation.plan_of(problem, props, choice, choices)
        estimated = operation.cost(choice) / props.peak_clock_ghz / 1000
        timed.append(Timed(choice, clock.us(runner(plan)), estimated))
        advance(choice, True)
    return Tuning(problem, tuple(sorted(timed, key=lambda one: one.us)), clock.how)


class _Modelled:
    """Times by the performance model at the peak clock, that of kernels that wait for memory."""

    def __init__(self) -> None:
        self._ghz = runtime.device_props().peak_clock_ghz
        self.how = f"modelled at {1000 * self._ghz:.0f} MHz"

    def us(self, run: Callable[[], Any]) -> float:
        launches = virtual.profiled(run, clock_mhz=round(1000 * self._ghz))
        return sum(launch.cycles for launch in launches) / self._ghz / 1000


class _Measured:
    """Median times by events of the device."""

    def __init__(self) -> None:
        self.how = f"measured on {runtime.device_props().name}"

    def us(self, run: Callable[[], Any]) -> float:
        return 1000 * float(do_bench(run, return_mode="median"))


def runner(
    plan: RunnablePlan[Any], variant: str = "", given: Mapping[str, DeviceArray] = {}
) -> Callable[[], Any]:
    """A function that runs a plan on given operands, random other ones, and its own results."""
    variant = variant or plan.default_variant
    operands = random_operands(plan, variant, given)
    views, stream = plan.views_of({name: operands[name] for name in plan.input_names}, None)
    results = tuple(operands.get(name) for name in plan.result_names)
    workspace = plan.new_workspace() if plan.workspace.regions else None
    return lambda: plan.execute(None, views, results, variant, stream, workspace)


def random_operands(
    plan: RunnablePlan[Any], variant: str = "", given: Mapping[str, DeviceArray] = {}
) -> dict[str, DeviceArray]:
    """Operands of a plan on the device by name: those of `given`, and random other ones.

    Raises
    ------
    ValueError
        An operand holds lengths or indices, which cannot be random, and has no typical contents.
    """
    import numpy as np

    random = np.random.default_rng(0).standard_normal(_SOME, np.float32)
    operands = {**given}
    for spec in plan.specs(variant or plan.default_variant).values():
        if spec.name in given:
            continue
        if spec.present and spec.typical is not None:
            operands[spec.name] = asarray(spec.typical())
            continue
        if spec.present and spec.role == "out":
            operands[spec.name] = empty(spec.shape, spec.dtype.name)
        elif spec.present and spec.dtype.name.startswith("int"):
            raise ValueError(f"{spec.title} cannot be random: {plan.problem.brief}")
        elif spec.present:
            some = random.astype(spec.dtype.numpy())
            operands[spec.name] = asarray(np.resize(some, spec.shape))
    return operands
