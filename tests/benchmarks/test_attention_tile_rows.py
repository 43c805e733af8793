"""Attention forward in tiles of 32 rows, studies: right, and without findings of checked mode.

They are compiled for gfx942, and run in a process of their own on its virtual device.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

ERROR = 2**-7  # of the greatest output: probabilities and outputs are rounded to bfloat16
RUN = """
import tempfile
from pathlib import Path

import numpy as np
from amdattn import virtual
from amdattn.ops.attention.problem import AttentionProblem
from benchmarks.attention_tile_rows import DESIGNS, kernels, planned
from tests.support.peers.peer_device import attention, normal

rng = np.random.default_rng(3)
with tempfile.TemporaryDirectory() as folder:
    (kernel,) = kernels(Path(folder), {{"{name}": DESIGNS["{name}"]}}).values()
    # Rows that fill no tile, one block of keys, an odd number of them, keys that fill none; scores
    # that outgrow their reference; sums that overflow and are done again.
    # In parts, too.
    for batch, rows, keys, heads, heads_kv, scale, of_v, causal, parts in (
        (1, 77, 192, 1, 1, 1, 1, False, 1), (2, 401, 437, 2, 1, 1, 1, True, 1),
        (1, 256, 32, 1, 1, 1, 1, False, 1), (1, 384, 1000, 1, 1, 8, 1, False, 3),
        (1, 100, 333, 2, 2, 100, 1, False, 1), (1, 5, 1, 1, 1, 1, 1, False, 1),
        (1, 130, 300, 1, 1, 30, 2.0**100, False, 2),
    ):
        q = normal(rng, batch, rows, heads, 128)
        q = (q.astype(np.float32) * scale).astype(q.dtype)
        k, v = (normal(rng, batch, keys, heads_kv, 128) for _ in "kv")
        v = (v.astype(np.float32) * of_v).astype(v.dtype)
        problem = AttentionProblem(
            batch, rows, keys, heads, heads_kv, 128, 128, dtype="bfloat16", num_splits=parts,
            causal=causal, return_lse=True,
        )
        outs = []
        for seed in range({schedules}):
            virtual.set_option("seed", seed)
            with virtual.check() as found:
                outs.append(planned(kernel, problem).run(q, k, v))
        assert not found.errors
        for out, lse in outs:
            assert (out.view(np.uint16) == outs[0][0].view(np.uint16)).all()
            assert (lse == outs[0][1]).all()
        for i in range(batch):
            expected, sums = attention(q[i], k[i], v[i], causal)
            error = np.abs(outs[0][0][i].astype(np.float64) - expected).max()
            assert error < {error} * np.abs(expected).max(), (rows, keys, scale, error)
            np.testing.assert_allclose(outs[0][1][i], sums, rtol=1e-5, atol=1e-4)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wide384", "wide256"])
def test_right_under_sixteen_schedules(name: str) -> None:
    code = RUN.format(name=name, schedules=16, error=ERROR)
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"AMDATTN_DEVICE": "virtual:gfx942"},
        check=True,
    )
