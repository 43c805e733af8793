"""Estimates of the cost of a member of a family."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

from amdattn.arch.props import DeviceProps


class Estimate(NamedTuple):
    """Clocks of the slowest XCD, and their parts: see `Cost`."""

    clk: float
    memory_clk: float
    loads_clk: float
    split_clk: float


class Estimator(NamedTuple):
    """Costs of a member by parts and columns of a tile; a plan computes some 50 of 200.

    Attributes
    ----------
    at_least : callable
        A lower bound of the estimate for as many parts or more, which is quick to compute.
    estimate : callable
    """

    at_least: Callable[[int, int], float]
    estimate: Callable[[int, int], Estimate]


@functools.lru_cache(maxsize=64)
def memory_rates(props: DeviceProps, clock_ghz: float) -> tuple[float, float]:
    """Bytes in a clk from HBM, and from the last level cache, for one XCD."""
    clk_per_ns = props.num_xcds * clock_ghz
    return props.hbm_bytes_per_ns / clk_per_ns, props.mall_bytes_per_ns / clk_per_ns
