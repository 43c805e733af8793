"""The eight-wave kernels of benchmarks/eight_waves: right, and without findings of checked mode.

They are compiled for gfx950, and run in a process of their own on its virtual device.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

ERROR = 2**-7  # of the greatest output: probabilities and outputs are rounded to bfloat16
RUN = """
import numpy as np
from amdattn import virtual
from benchmarks.attention_eight_waves import DESIGNS, Attention
from tests.support.peers.peer_device import attention, normal

rng = np.random.default_rng(3)
run = Attention(DESIGNS["{name}"])
# Rows that fill no tile, one block, an odd number of them; scores that outgrow their reference.
for batch, rows, keys, heads, heads_kv, scale in (
    (1, 77, 192, 1, 1, 1), (2, 301, 448, 2, 1, 1), (1, 256, 64, 1, 1, 1), (1, 256, 512, 1, 1, 8),
    (1, 100, 256, 2, 2, 100),  # sums overflow before they are renewed
):
    q = normal(rng, batch, rows, heads, 128)
    q = (q.astype(np.float32) * scale).astype(q.dtype)
    k, v = (normal(rng, batch, keys, heads_kv, 128) for _ in "kv")
    outs = []
    for seed in range({schedules}):
        virtual.set_option("seed", seed)
        with virtual.check() as found:
            outs.append(run(q, k, v))
    assert not found.errors
    for out in outs:
        assert (out.view(np.uint16) == outs[0].view(np.uint16)).all()
    for i in range(batch):
        expected, _ = attention(q[i], k[i], v[i], causal=False)
        error = np.abs(outs[0][i].astype(np.float64) - expected).max()
        assert error < {error} * np.abs(expected).max(), (rows, keys, scale, error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clusters", "split", "follow", "two"])
def test_right_under_sixteen_schedules(name: str) -> None:
    code = RUN.format(name=name, schedules=16, error=ERROR)
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"AMDATTN_DEVICE": "virtual:gfx950"},
        check=True,
    )
