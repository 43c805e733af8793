"""What workgroups of attention take, of a few that are simulated at the device's greatest clock.

Over N(0, 1) of `amdattn.bench.inputs`; merges, whose time depends on no number, over zeros.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import amdattn
from amdattn import virtual
from amdattn.bench.clocks import clocks
from amdattn.bench.inputs import NORMAL, Sizes, entry
from amdattn.bench.replay import Speed
from amdattn.device import manifest
from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import as_dtype
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.ops.attention.ordering import order_of
from amdattn.ops.attention.planning import inverse
from amdattn.ops.attention.plans import planned_with
from amdattn.ops.attention.problem import AttentionProblem

HEAD_DIM = 128
_KEYS = (1024, 4096)  # that a figure is from
_SHARED_KEYS = (128, 1024)  # and one of two workgroups of a CU


@dataclass(frozen=True)
class Cost:
    """Clocks of a workgroup of a kernel: beside its blocks, of each, and more."""

    outside: float
    block: float
    masked_block: float
    part: float


def _operands(
    kernel: KernelSpec, rows: int, keys: int, heads: tuple[int, int]
) -> list[NDArray[np.generic]]:
    """q, k and v of a sequence."""
    sizes, element = Sizes(1, rows, keys, *heads, HEAD_DIM, HEAD_DIM), as_dtype(kernel.dtype)
    return [entry(NORMAL, sizes, name, 0)[None].astype(element.numpy()) for name in "qkv"]


def _lifetimes(kernel: KernelSpec, rows: int, keys: int, **options: Any) -> list[int]:
    q, k, v = _operands(kernel, rows, keys, (1, 1))
    problem = AttentionProblem(
        1, rows, keys, 1, 1, HEAD_DIM, dtype=kernel.dtype, **{"num_splits": 1, **options}
    )
    plan = planned_with(problem, amdattn.device_props(), kernel.name)
    with virtual.profile(clock_mhz=clock_mhz()) as profile:
        plan.run(q, k, v)
    launch = next(one for one in profile.launches if kernel.symbol == one.kernel)
    return [time.end - time.start for time in launch.times]


@functools.cache
def cost_of(name: str) -> Cost:
    """From a few simulated workgroups."""
    arch = amdattn.device_props().arch
    (kernel,) = (row for row in manifest.kernels() if (row.name, row.arch) == (name, arch))
    rows, block = kernel.tile["q"], kernel.tile["kv"]
    short, long = (_lifetimes(kernel, rows, keys)[0] for keys in _KEYS)
    of_block = (long - short) / (_KEYS[1] - _KEYS[0]) * block
    outside = short - _KEYS[0] / block * of_block
    causal = _lifetimes(kernel, rows, rows + _KEYS[0], causal=True)[0]
    masked = causal - outside - (rows + _KEYS[0]) / block * of_block
    part = _lifetimes(kernel, rows, 2 * _KEYS[0], num_splits=2)[0]
    more = part - outside - _KEYS[0] / block * of_block
    return Cost(outside, of_block, masked / (rows / block), more)


@functools.cache
def speed_of(name: str) -> Speed:
    """How long workgroups take, of what they take alone: two of a CU, the older one first."""
    props = amdattn.device_props()
    (kernel,) = (row for row in manifest.kernels() if (row.name, row.arch) == (name, props.arch))
    alone: dict[int, tuple[tuple[float, float], ...]] = {1: ((0.0, 1.0),)}
    if workgroups_per_cu(kernel, props)[0] == 1:
        return Speed(alone)
    lone, older, younger = zip(*(_sharing(kernel, keys) for keys in _SHARED_KEYS), strict=True)

    def line(clks: tuple[float, ...]) -> tuple[float, float]:
        slope = (clks[1] - clks[0]) / (lone[1] - lone[0])
        return clks[0] - slope * lone[0], slope

    return Speed({**alone, 2: (line(older), line(younger))})


def _sharing(kernel: KernelSpec, keys: int) -> tuple[float, float, float]:
    """Clocks of a workgroup alone, of the older one of a CU, and of the younger one beside it."""
    props = amdattn.device_props()
    heads = 2 * props.num_cus, props.num_xcds
    q, k, v = _operands(kernel, kernel.tile["q"], keys, heads)
    problem = AttentionProblem(
        1, kernel.tile["q"], keys, *heads, HEAD_DIM, dtype=kernel.dtype, num_splits=1
    )
    with virtual.profile(clock_mhz=clock_mhz()) as profile:
        planned_with(problem, props, kernel.name).run(q, k, v)
    (launch,) = profile.launches
    ends = np.sort([time.end - launch.times[0].start for time in launch.times])
    cost = cost_of(kernel.name)
    lone = cost.outside + keys / kernel.tile["kv"] * cost.block
    older, younger = (float(np.median(half)) for half in np.split(ends, 2))
    done = 1 - (younger - older) / lone  # of the younger one, when the older one ends
    return lone, older, older / max(done, 0.01)


@functools.cache
def find_clk(name: str) -> tuple[float, float]:
    """What workgroups take longer that find their tile: the first ones, and later ones."""
    props = amdattn.device_props()
    (kernel,) = (row for row in manifest.kernels() if (row.name, row.arch) == (name, props.arch))
    rows, at_once = kernel.tile["q"], workgroups_per_cu(kernel, props)[0] * props.num_cus
    lengths, heads = (rows, rows - 1), at_once
    q, k, _ = (one[0] for one in _operands(kernel, sum(lengths), sum(lengths), (heads, 8)))
    sums = np.cumsum([0, *lengths]).astype(np.int32)
    problem = AttentionProblem(
        *(2, rows, rows, heads, 8, HEAD_DIM), dtype=kernel.dtype, num_splits=1,
        total_q=sum(lengths), total_kv=sum(lengths),
    )  # fmt: skip
    plan = planned_with(problem, props, kernel.name)
    (launch,) = plan.launches
    order = order_of(problem, kernel, props).arguments(inverse(heads))
    args = tuple((name, order.get(name, value)) for name, value in launch.args)
    found = []
    for each in (
        plan,
        dataclasses.replace(plan, launches=(dataclasses.replace(launch, args=args),)),
    ):
        with virtual.profile(clock_mhz=clock_mhz()) as profile:
            each.run(q, k, k, cu_seqlens_q=sums, cu_seqlens_k=sums)
        times = sorted((t.start, t.end - t.start) for t in profile.launches[0].times)
        half = len(times) // 2
        found.append(
            [float(np.median([took for _, took in some])) for some in (times[:half], times[half:])]
        )
    (first, later), (first_found, later_found) = found
    return first_found - first, later_found - later


def clock_mhz() -> int:
    """The device's greatest."""
    return round(clocks(amdattn.device_props()).peak_ghz * 1000)


def launch_clk() -> float:
    """From a launch to the next one."""
    of_device = clocks(amdattn.device_props())
    return of_device.launch_us * of_device.peak_ghz * 1e3


@functools.cache
def merge_cost(name: str) -> tuple[float, float]:
    """Clocks of a merge after `name`, and more for each partial result: of one block of keys."""
    arch = amdattn.device_props().arch
    (kernel,) = (row for row in manifest.kernels() if (row.name, row.arch) == (name, arch))
    points = []
    for heads in (8, 256):
        rows, keys = kernel.tile["q"], 2 * kernel.tile["kv"]
        element = as_dtype(kernel.dtype).numpy()
        q, k = (np.zeros((1, n, heads, HEAD_DIM), element) for n in (rows, keys))
        problem = AttentionProblem(
            1, rows, keys, heads, heads, HEAD_DIM, dtype=kernel.dtype, num_splits=2
        )
        plan = planned_with(problem, amdattn.device_props(), kernel.name)
        with virtual.profile(clock_mhz=clock_mhz()) as profile:
            plan.run(q, k, k)
        points.append((2 * heads, profile.launches[-1].cycles))
    (few, first), (many, last) = points
    slope = (last - first) / (many - few)
    return first - few * slope, slope
