"""Modelled time of one workgroup of attention forward by what its inputs hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import amdattn
from amdattn import virtual
from amdattn.bench.inputs import CLASSES as OF_SCORES, NORMAL, Inputs, Place, Sizes, normal
from amdattn.dtypes import as_dtype
from amdattn.ops.attention.plans import planned_with
from amdattn.ops.attention.problem import AttentionProblem

# Sinks that are no keys, over inputs that are normal.
SINKS = {"a sink of 10 nats": 10.0, "a sink of 30 nats": 30.0}
CLASSES: dict[str, Inputs] = {**OF_SCORES, **dict.fromkeys(SINKS, NORMAL)}


def lifetime(
    kernel: Any, keys: int, name: str, inputs: Inputs | None = None, head: int = 0, **options: Any
) -> int:
    """Modelled clk of one workgroup over one head of a class, or of `inputs` in its place."""
    rows, columns = kernel.tile["q"], kernel.params["head_dim"]
    sizes = Sizes(1, rows, keys, head + 1, head + 1, columns, kernel.params["head_dim_v"])
    found, element = inputs or CLASSES[name], as_dtype(kernel.dtype).numpy()
    found.check(sizes)

    def operand(which: str) -> Any:
        _, count, _, dim = sizes.shape(which)
        some = normal(which, head * count * dim, count * dim).reshape(count, 1, dim)
        return found.rows(sizes, Place(which, 0, 0, head), some)[None].astype(element)

    problem = AttentionProblem(
        1, rows, keys, 1, 1, **kernel.params,
        dtype=kernel.dtype, softcap=min(30.0, kernel.accepts["softcaps"][1]),
        round_mode=kernel.accepts["round_mode"][0], num_splits=1,
        sinks=name in SINKS, **options,
    )  # fmt: skip
    plan = planned_with(problem, amdattn.device_props(), kernel.name)
    sinks = np.full(1, SINKS[name], np.float32) if name in SINKS else None
    return lifetime_of(lambda: plan.run(*map(operand, "qkv"), sinks=sinks))


def lifetime_of(run: Callable[[], Any]) -> int:
    """Modelled clk of the workgroups of a call's first launch, the longest."""
    with virtual.profile() as profile:
        run()
    return int(max(time.end - time.start for time in profile.launches[0].times))
