"""What the cost of a member of a family is told by."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

from amdattn.arch.props import DeviceProps


class Estimate(NamedTuple):
    """Clocks of the slowest XCD, and what they are made of: see `Cost`."""

    clk: float
    memory_clk: float
    loads_clk: float
    split_clk: float


class Estimator(NamedTuple):
    """What a member costs, by parts and columns of a tile; a plan asks for some 50 of 200.

    Attributes
    ----------
    at_least : callable
        Clocks that the estimate is not below, nor that of any more parts, and quickly known.
    estimate : callable
    """

    at_least: Callable[[int, int], float]
    estimate: Callable[[int, int], Estimate]


@functools.lru_cache(maxsize=64)
def memory_rates(props: DeviceProps, clock_ghz: float) -> tuple[float, float]:
    """Bytes a clk that HBM, and the last level cache, have for an XCD."""
    clk_per_ns = props.num_xcds * clock_ghz
    return props.hbm_bytes_per_ns / clk_per_ns, props.mall_bytes_per_ns / clk_per_ns
