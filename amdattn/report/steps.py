"""The steps of a report, their order, and their time limits."""

from __future__ import annotations

import functools
from collections.abc import Callable

from amdattn.report import kernels, preload, probes, replays, timings
from amdattn.report.rows import Step


def device_steps(quick: bool) -> list[Step]:
    """The steps on the bound device, none of which is modelled."""
    count = replays.QUICK_REPLAYS if quick else replays.REPLAYS
    steps = [
        Step("device", "device", 180, probes.device),
        Step("launch", "launch forms", 60, probes.launch_forms),
        Step("streams", "streams", 60, probes.streams),
        Step("events", "events", 60, probes.events),
        Step("graph", "a graph of 300 nodes", 60, probes.graph),
        Step("replays", "replays of a graph", 120, lambda: replays.replays(count)),
        Step("two_streams", "two streams at once", 60, probes.two_streams),
        Step("ids", "XCCs and CUs", 60, probes.ids),
        Step("clock", "clocks of the device", 60, probes.clock),
        Step("preload", "kernel arguments in SGPRs", 120, functools.partial(preload.run, quick)),
    ]
    for name, title, cases in kernels.groups(quick):
        steps.append(Step(name, title, 240, functools.partial(kernels.run, cases)))
    if not quick:
        title = "more workgroups against float64"
        steps.append(Step("larger", title, 240, lambda: kernels.run(kernels.larger_cases())))
    return steps + timings.measured_steps(quick)


def model_steps(quick: bool) -> list[Step]:
    """The steps on the virtual device: the performance model's figures of the same work."""
    return timings.modelled_steps(quick)


GROUPS: dict[str, Callable[[bool], list[Step]]] = {"device": device_steps, "model": model_steps}
