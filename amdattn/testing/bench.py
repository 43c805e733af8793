"""Timing a function on the bound device."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from amdattn import scalars
from amdattn.device import runtime

_ESTIMATE_RUNS = 5
_MIN_MS = 1e-3  # resolution of device events
_MODES: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "max": max,
    "mean": statistics.fmean,
    "median": statistics.median,
}


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Any = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """Time `fn` on the default stream, with caches flushed before every run.

    Parameters
    ----------
    warmup, rep : float
        Budgets in milliseconds. At least one run of each is made.
    grad_to_none
        Accepted for compatibility; must be None, there are no gradients here.
    quantiles : sequence of float, optional
        Return these quantiles instead: one number if there is one.
    return_mode : {"mean", "median", "min", "max", "all"}

    Returns
    -------
    float, or list of float
        Milliseconds between events of the device, which is kept busy with the flush of its caches
        until the launch has been enqueued. On the virtual device that is time of this CPU, except
        in a `amdattn.virtual.profile` block.
    """
    if grad_to_none is not None:
        raise NotImplementedError("grad_to_none must be None: there are no gradients")
    if return_mode not in (*_MODES, "all"):
        raise ValueError(f"return_mode={return_mode!r} must be one of {(*_MODES, 'all')}")
    warmup, rep = scalars.number("warmup", warmup), scalars.number("rep", rep)
    if quantiles is not None:
        quantiles = [scalars.number("quantiles", q) for q in quantiles]
    device = runtime.get()
    fn()
    runtime.synchronize()
    estimate = elapsed_ms(device, fn)
    if estimate < warmup:
        estimate = statistics.fmean(elapsed_ms(device, fn) for _ in range(_ESTIMATE_RUNS))
        for _ in range(int(warmup / max(estimate, _MIN_MS))):
            fn()
    times = []
    for _ in range(max(1, int(rep / max(estimate, _MIN_MS)))):
        device.flush_caches()
        times.append(elapsed_ms(device, fn))
    if quantiles is not None:
        ordered = sorted(times)
        found = [_quantile(ordered, q) for q in quantiles]
        return found[0] if len(found) == 1 else found
    return times if return_mode == "all" else _MODES[return_mode](times)


def elapsed_ms(device: runtime.Runtime, fn: Callable[[], Any]) -> float:
    """Milliseconds on the default stream between events recorded before and after calling `fn`."""
    with device.current():
        return _elapsed_ms(device, fn)


def _elapsed_ms(device: runtime.Runtime, fn: Callable[[], Any]) -> float:
    hip = device.hip
    start = device.check("hipEventCreate", hip.hipEventCreate())
    stop = device.check("hipEventCreate", hip.hipEventCreate())
    try:
        device.check("hipEventRecord", hip.hipEventRecord(start, 0))
        fn()
        device.check("hipEventRecord", hip.hipEventRecord(stop, 0))
        device.check("hipEventSynchronize", hip.hipEventSynchronize(stop))
        return float(device.check("hipEventElapsedTime", hip.hipEventElapsedTime(start, stop)))
    finally:
        device.check("hipEventDestroy", hip.hipEventDestroy(start))
        device.check("hipEventDestroy", hip.hipEventDestroy(stop))


def _quantile(ordered: Sequence[float], q: float) -> float:
    """Linear interpolation between order statistics."""
    if not 0.0 <= q <= 1.0:
        raise ValueError(f"quantile {q} must be in 0..1")
    position = q * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)
