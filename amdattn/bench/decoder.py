"""Times of passes through decoders of known sizes: each part, and the floor.

One layer runs between the embedding and the head, on its own operands. No cache holds its weights
at the start; each launch finds in the caches what earlier launches left there. Queries, keys and
values are N(0, 1).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import add
from typing import Any

from amdattn import virtual
from amdattn.bench import run
from amdattn.bench.clocks import clocks
from amdattn.bench.decoder_parts import DTYPE, MODELS, Model, Part, parts
from amdattn.bench.record import MEASURED, MODELLED
from amdattn.device import runtime
from amdattn.dtypes import as_dtype
from amdattn.energy import Activity
from amdattn.ops.gemm import planning
from amdattn.ops.gemm.execution import GemmPlan
from amdattn.testing import do_bench
from amdattn.tuning import runner

_OF_SQUARES = "4x4x4_16b"  # matrix instruction of norms: too few to matter for the energy
LEAST_LAUNCHES = 6  # per layer, as the floor counts them
# A product with more operations is extrapolated from shorter ones, which take minutes.
_MOST_FLOP, _LENGTHS = 3e11, (1024, 2048)


@dataclass(frozen=True)
class PartTime:
    """The time of one part of a pass.

    Attributes
    ----------
    name : str
    times : int
        How often the pass runs the part.
    launches : int
        Launches of one run of the part.
    kernels : tuple of str
        One per launch.
    us : float
        One run of the part, without launch overhead: modelled at `Pass.clock_ghz`, or measured.
    cycles : float
        Modelled cycles of one run; 0 if measured.
    flops : int
        Operations of matrix products and attention in one run.
    activity : Activity or None
        What an estimate of the energy needs; None if measured.
    """

    name: str
    times: int
    launches: int
    kernels: tuple[str, ...]
    us: float
    cycles: float
    flops: int
    activity: Activity | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Pass:
    """One pass through a model: a decoding step, or a prompt.

    Attributes
    ----------
    model : str
        One of `MODELS`.
    batch, tokens : int
        Sequences, and new tokens per sequence.
    context : int
        Keys per sequence after the pass.
    parts : tuple of PartTime
        In the order of the pass.
    launch_us : float
        Launch overhead per launch.
    floor_us : float
        Time to read weights, keys and values at the rate of HBM, plus six launches per layer.
    clock_ghz : float
        The clock of modelled times.
    origin : {"modelled", "measured"}
    matrix_flops_per_clk : int
        bfloat16 operations per clk of the device.
    """

    model: str
    batch: int
    tokens: int
    context: int
    parts: tuple[PartTime, ...]
    launch_us: float
    floor_us: float
    clock_ghz: float
    origin: str
    matrix_flops_per_clk: int

    @property
    def launches(self) -> int:
        """Launches of the pass."""
        return sum(part.times * part.launches for part in self.parts)

    @property
    def launches_of_layer(self) -> int:
        """Launches per layer, of the parts that every layer has."""
        layers = MODELS[self.model].layers
        return sum(part.launches * part.times for part in self.parts if part.times > 1) // layers

    @property
    def us(self) -> float:
        """Time of the pass, launch overhead included."""
        return sum(part.times * part.us for part in self.parts) + self.launches * self.launch_us

    @property
    def of_floor(self) -> float:
        """Time of the pass divided by the floor."""
        return self.us / self.floor_us

    @property
    def of_the_limit(self) -> float:
        """Share of the matrix units' rate during the cycles of the kernels; 0 if measured."""
        cycles = sum(part.times * part.cycles for part in self.parts)
        flops = sum(part.times * part.flops for part in self.parts)
        return flops / cycles / self.matrix_flops_per_clk if cycles else 0.0

    @property
    def energy(self) -> Mapping[str, Any]:
        """Estimated joules, and time at the clock that the power cap allows; {} if measured."""
        known = [p.activity.scaled(p.times) for p in self.parts if p.activity is not None]
        if not known:
            return {}
        activity = reduce(add, known)
        flops = {x: n for x, n in activity.matrix_flops.items() if x != _OF_SQUARES}
        return run.energy(dataclasses.replace(activity, matrix_flops=flops))


def floor_us(model: Model, batch: int, context: int) -> float:
    """A lower bound for the time of a step, in microseconds: reads of HBM, and launches.

    HBM delivers the weights, one row of the embedding per sequence, and the caches. There are six
    launches per layer, and one each for the embedding, the last norm, the head and the choice of a
    token.
    """
    arch, size = clocks(runtime.device_props()), as_dtype(DTYPE).itemsize
    weights = sum(n * k for n, k in model.products.values())
    keys = 2 * batch * context * model.heads_kv * model.head_dim
    elements = model.layers * (weights + keys) + (model.vocabulary + batch) * model.hidden
    launches = LEAST_LAUNCHES * model.layers + 4
    return elements * size / arch.hbm_bytes_per_ns / 1e3 + launches * arch.launch_us


def timed(
    name: str,
    batch: int,
    tokens: int,
    context: int,
    *,
    clock_mhz: int = 0,
    advance: Callable[[str], object] = lambda part: None,
) -> Pass:
    """Time a pass: modelled on the virtual device, measured on a GPU.

    Parameters
    ----------
    name : str
        One of `MODELS`.
    batch, tokens : int
        Sequences, and new tokens per sequence; at least 1.
    context : int
        Keys per sequence after the pass.
    clock_mhz : int
        Clock of modelled times; 0: the peak clock for a step, the sustained clock for a prompt.
    advance : callable
        Called with the name of each part before it is timed.

    Raises
    ------
    ValueError
        `name` is no known model, `batch` or `tokens` is less than 1, or there are more new tokens
        than keys.
    """
    if name not in MODELS:
        raise ValueError(f"shape={name!r} must be one of {', '.join(MODELS)}")
    for what, count in (("batch", batch), ("tokens", tokens)):
        if count < 1:
            raise ValueError(f"{what}={count} must be at least 1")
    if context < tokens:
        raise ValueError(f"context={context} must be at least tokens={tokens}, the new tokens")
    model, props = MODELS[name], runtime.device_props()
    arch = clocks(props)
    ghz = clock_mhz / 1000 or (arch.peak_ghz if tokens == 1 else arch.sustained_ghz)
    is_modelled = run.is_virtual()
    time = partial(_modelled, clock_mhz=round(1000 * ghz)) if is_modelled else _measured
    found = tuple(time(parts(model, batch, tokens, context), advance))
    return Pass(
        *(name, batch, tokens, context, found),
        launch_us=arch.launch_us,
        floor_us=floor_us(model, batch, context),
        clock_ghz=ghz,
        origin=MODELLED if is_modelled else MEASURED,
        matrix_flops_per_clk=arch.num_cus * arch.matrix_flops_per_clk,
    )


# -- their times -----------------------------------------------------------------------------------


def _measured(parts: Iterator[Part], advance: Callable[[str], object]) -> Iterator[PartTime]:
    """Time each part alone, with caches flushed before."""
    for part in parts:
        advance(part.name)
        us = 1000 * float(do_bench(part.run, return_mode="median"))
        yield _time(part, us=us)


def _modelled(
    parts: Iterator[Part], advance: Callable[[str], object], clock_mhz: int
) -> Iterator[PartTime]:
    """Model each part with the caches that earlier parts left.

    Long products are left out of this sequence and extrapolated from shorter ones.
    """
    found: list[Part] = []
    long: dict[int, Activity] = {}
    with virtual.profile(clock_mhz=clock_mhz) as profile:
        for part in parts:
            advance(part.name)
            if isinstance(part.plan, GemmPlan) and part.flops > _MOST_FLOP:
                long[len(found)] = Activity(0.0)
            else:
                part.run()
                runtime.synchronize()
            found.append(part)
    for i in long:
        advance(f"{found[i].name}, shorter ones")
        long[i] = _extrapolated(found[i], clock_mhz)
    launches = iter(profile.launches)
    for i, part in enumerate(found):
        activity = long.get(i)
        if activity is None:
            activity = reduce(add, (Activity.of(next(launches)) for _ in range(part.launches)))
        yield _time(part, activity.cycles / clock_mhz, activity)


def _extrapolated(part: Part, clock_mhz: int) -> Activity:
    """Extrapolate a product linearly from two lengths of k, with the kernel of its plan."""
    (launch,) = part.plan.launches
    at = []
    for length in _LENGTHS:
        problem = dataclasses.replace(part.plan.problem, k=length)
        plan = GemmPlan.of(planning.plan_gemm(problem, part.plan.props, [launch.kernel]))
        (profile,) = virtual.profiled(runner(plan), clock_mhz=clock_mhz)
        at.append(Activity.of(profile))
    share = (part.plan.problem.k - _LENGTHS[0]) / (_LENGTHS[1] - _LENGTHS[0])
    return at[0].scaled(1 - share) + at[1].scaled(share)


def _time(part: Part, us: float, activity: Activity | None = None) -> PartTime:
    kernels = tuple(launch.kernel.name for launch in part.plan.launches)
    cycles = 0.0 if activity is None else activity.cycles
    return PartTime(part.name, part.times, part.launches, kernels, us, cycles, part.flops, activity)
