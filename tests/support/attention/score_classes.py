"""Classes of scores that real models have, and worse: what modelled time must not depend on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import amdattn
from amdattn import virtual
from amdattn.dtypes import as_dtype
from amdattn.ops.attention.plans import planned_with
from amdattn.ops.attention.problem import AttentionProblem

Array = Any
# Changes (q, k), both (rows or keys, columns) and N(0, 1): scores q . k / sqrt(columns) are nats.
Fill = Callable[[Array, Array, np.random.Generator], None]


def _spread(nats: float) -> Fill:
    def fill(q: Array, k: Array, rng: np.random.Generator) -> None:
        q *= nats

    return fill


def _lognormal(sigma: float) -> Fill:
    def fill(q: Array, k: Array, rng: np.random.Generator) -> None:
        k *= np.exp(sigma * rng.standard_normal((len(k), 1)))

    return fill


def add_by_key(q: Array, k: Array, nats: Array) -> None:
    """Adds nats[key] to all scores of a key: the first column is for that alone."""
    q[:, 0], k[:, 0] = np.sqrt(q.shape[1]), nats


def _rising(nats: float) -> Fill:
    def fill(q: Array, k: Array, rng: np.random.Generator) -> None:
        add_by_key(q, k, np.linspace(0, nats, len(k)))

    return fill


def _one_key(nats: float, at: float) -> Fill:
    def fill(q: Array, k: Array, rng: np.random.Generator) -> None:
        offsets = np.zeros(len(k))
        offsets[int(at * (len(k) - 1))] = nats
        add_by_key(q, k, offsets)

    return fill


CLASSES: dict[str, Fill] = {
    "N(0,1)": _spread(1),
    "scores of sd 1.5": _spread(1.5),
    "scores of sd 2": _spread(2),
    "scores of sd 4": _spread(4),
    "scores of sd 8": _spread(8),
    "scores of sd 16": _spread(16),
    "norms of K lognormal 0.25": _lognormal(0.25),
    "norms of K lognormal 0.5": _lognormal(0.5),
    "norms of K lognormal 1": _lognormal(1),
    "scores rising by 10 nats": _rising(10),
    "scores rising by 25 nats": _rising(25),
    "scores rising by 28 nats": _rising(28),
    "scores rising by 50 nats": _rising(50),
    "scores rising by 100 nats": _rising(100),
    "first key 10 nats above": _one_key(10, 0),
    "middle key 10 nats above": _one_key(10, 0.5),
    "middle key 25 nats above": _one_key(25, 0.5),
    "last key 25 nats above": _one_key(25, 1),
    "a sink of 10 nats": _spread(1),
    "a sink of 30 nats": _spread(1),
}
SINKS = {"a sink of 10 nats": 10.0, "a sink of 30 nats": 30.0}


def lifetime(kernel: Any, keys: int, name: str, **options: Any) -> int:
    """Modelled clk of one workgroup, whose inputs are of a class."""
    rng = np.random.default_rng(1)
    rows, columns = kernel.tile["q"], kernel.params["head_dim"]
    q, k = rng.standard_normal((rows, columns)), rng.standard_normal((keys, columns))
    v = rng.standard_normal((keys, kernel.params["head_dim_v"]))
    CLASSES[name](q, k, rng)
    element = as_dtype(kernel.dtype).numpy()
    q, k, v = (x[None, :, None].astype(element) for x in (q, k, v))
    problem = AttentionProblem(
        1, rows, keys, 1, 1, **kernel.params,
        dtype=kernel.dtype, softcap=min(30.0, kernel.accepts["softcaps"][1]),
        round_mode=kernel.accepts["round_mode"][0], num_splits=1,
        sinks=name in SINKS, **options,
    )  # fmt: skip
    plan = planned_with(problem, amdattn.device_props(), kernel.name)
    sinks = np.full(1, SINKS[name], np.float32) if name in SINKS else None
    return lifetime_of(lambda: plan.run(q, k, v, sinks=sinks))


def lifetime_of(run: Callable[[], Any]) -> int:
    """Modelled clk of the workgroups of a call's first launch, the longest."""
    with virtual.profile() as profile:
        run()
    return int(max(time.end - time.start for time in profile.launches[0].times))
