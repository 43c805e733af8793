"""Attention kernels of studies, in a process of the virtual device that they were compiled for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from amdattn import virtual
from tests.support import fake_rocm
from tests.support.peers.peer_device import attention, normal

ERROR = 2**-7  # of the greatest output: probabilities and outputs are rounded to bfloat16
DIM = 128


@dataclass(frozen=True)
class Shape:
    """Sizes of one call, and what its queries and values are multiplied by."""

    batch: int
    rows: int
    keys: int
    heads: int = 1
    heads_kv: int = 1
    of_q: float = 1
    of_v: float = 1
    causal: bool = False
    parts: int = 1


def hold(
    call: Callable[[Any, Any, Any, Shape], Sequence[Any]],
    shapes: Iterable[Shape],
    schedules: int = 16,
) -> None:
    """Right, without findings of checked mode, and the same bits under schedules of the waves.

    Parameters
    ----------
    call : callable
        Of q, k, v and the shape; returns the output, and the log-sum-exp if the kernel has it.
    """
    rng = np.random.default_rng(3)
    for shape in shapes:
        q = normal(rng, shape.batch, shape.rows, shape.heads, DIM)
        q = (q.astype(np.float32) * shape.of_q).astype(q.dtype)
        k, v = (normal(rng, shape.batch, shape.keys, shape.heads_kv, DIM) for _ in "kv")
        v = (v.astype(np.float32) * shape.of_v).astype(v.dtype)
        found = []
        for seed in range(schedules):
            virtual.set_option("seed", seed)
            with virtual.check() as checked:
                found.append(call(q, k, v, shape))
            assert not checked.errors, (shape, seed, checked.errors)
        for results in found:
            for x, first in zip(results, found[0], strict=True):
                assert x.tobytes() == first.tobytes(), shape
        out, *lse = found[0]
        for i in range(shape.batch):
            expected, sums = attention(q[i], k[i], v[i], causal=shape.causal)
            error = np.abs(out[i].astype(np.float64) - expected).max()
            assert error < ERROR * np.abs(expected).max(), (shape, error)
            for x in lse:
                np.testing.assert_allclose(x[i], sums, rtol=1e-5, atol=1e-4)


def run(code: str, arch: str) -> None:
    """Run what calls `hold` in a process of its own."""
    status, _, errors = fake_rocm.run(code, AMDATTN_DEVICE=f"virtual:{arch}")
    assert status == 0, errors
