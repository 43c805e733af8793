"""FlyDSL's split-K products, as `benchmarks/flydsl_hgemm.py` compiled them, match float64.

AMDATTN_FLYDSL_DIR names the folder with what was compiled for the device that AMDATTN_DEVICE names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.bench.kernels import Functions
from amdattn.device import runtime
from benchmarks.gemm_peers import Attempt, FlyDsl, Operands

FOLDER = Path(os.environ.get("AMDATTN_FLYDSL_DIR", ""))
COUNTERS = 2**16
ROUNDINGS = 5  # parts are added in bfloat16, each sum rounded once

pytestmark = [
    pytest.mark.slow,
    pytest.mark.oracles,
    pytest.mark.skipif(
        "AMDATTN_FLYDSL_DIR" not in os.environ,
        reason="AMDATTN_FLYDSL_DIR names no compiled kernels",
    ),
]


def shapes() -> Iterator[tuple[int, int]]:
    """N and K of what was compiled."""
    names = {re.match(r"n(\d+)_k(\d+)_", path.name) for path in FOLDER.glob("n*.hsaco")}
    yield from sorted({(int(found[1]), int(found[2])) for found in names if found})


@pytest.mark.parametrize("m", [1, 17, 64])
def test_products(m: int) -> None:
    rng = np.random.default_rng(m)
    ran = 0
    for n, k in shapes():
        a, b = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (n, k)))
        must = a.astype(np.float64) @ b.astype(np.float64).T
        on_device = [amdattn.asarray(x) for x in (a, b)]
        zeros = np.zeros(COUNTERS, np.int32)
        for attempt in attempts(m, n, k, *on_device, out := amdattn.asarray(zeros_of(m, n)), zeros):
            attempt.launches[0].enqueue(Functions())
            runtime.synchronize()
            error = np.abs(out.numpy().astype(np.float64) - must).max() / np.abs(must).max()
            assert error < ROUNDINGS * 2**-8, (n, k, attempt.name)
            ran += 1
    assert ran


def zeros_of(m: int, n: int) -> np.ndarray:
    return np.zeros((m, n), ml_dtypes.bfloat16)


def attempts(m, n, k, a, b, out, zeros) -> Iterator[Attempt]:  # type: ignore[no-untyped-def]
    """Every way, its counters at zero."""
    counters, bias = amdattn.asarray(zeros), amdattn.asarray(np.zeros(n, np.float32))
    at = Operands(a.address, b.address, out.address, bias.address, counters.address, 0)
    device = runtime.get()
    for attempt in FlyDsl(FOLDER, device.props)(m, n, k, at):
        device.clear(counters.address, zeros.nbytes)
        device.clear(out.address, out.numpy().nbytes)
        yield attempt
