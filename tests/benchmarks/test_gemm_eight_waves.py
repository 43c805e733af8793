"""The product by eight waves of benchmarks/eight_waves: the shipped kernel's bits, no findings."""

from __future__ import annotations

import pytest

from benchmarks.gemm_eight_waves import ELEMENTS, LOOPS, lines
from tests.support import fake_rocm

RUN = """
import ml_dtypes, numpy as np
from amdattn import virtual
from amdattn.device import runtime
from benchmarks.gemm_eight_waves import Arrays, eight_waves, four_waves

rng = np.random.default_rng(5)
def fill(array, values):
    values = np.ascontiguousarray(values)
    runtime.get().upload(array.address, values.ctypes.data, values.nbytes)
    runtime.synchronize()
# No whole tile, an end of k within a step, one step; one tile and several steps.
for m, n, k in ((300, 520, 208), (1, 8, 64), (256, 256, 1024)):
    x = Arrays(m, n, k, "{dtype}")
    operands = [rng.standard_normal((rows, k)).astype(np.float32) for rows in (m, n)]
    a, b = (one.astype(getattr(ml_dtypes, "{dtype}", np.float16)) for one in operands)
    fill(x.a, a), fill(x.b, b)
    four_waves(x)
    wanted = x.out.numpy().copy()
    expected = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.abs(wanted.astype(np.float64) - expected).max() < 2**-8 * np.abs(expected).max()
    for seed in range(16):
        fill(x.out, np.full(m * n, 0x7FFF, np.uint16))
        virtual.set_option("seed", seed)
        with virtual.check() as found:
            eight_waves(x)
        assert not found.errors, (m, n, k, seed, found.errors)
        assert x.out.numpy().tobytes() == wanted.tobytes(), (m, n, k, seed)
"""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ELEMENTS)
def test_the_bits_of_four_waves_under_sixteen_schedules(dtype: str) -> None:
    status, _, errors = fake_rocm.run(RUN.format(dtype=dtype), AMDATTN_DEVICE="virtual:gfx950")
    assert status == 0, errors


def test_the_loops_that_are_counted_are_there() -> None:
    assert all(lines(way) > 20 for way in LOOPS)
