"""Kernels of Gluon's tutorials, FlyDSL and HipKittens for MI355X match float64.

AMDATTN_GFX950_DIR names their code objects, as benchmarks/peers/compiled_gfx950.py says. The
device must be an MI355X (AMDATTN_DEVICE=virtual:gfx950): test_on_gfx950.py runs this module.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from amdattn import device_props
from tests.support.peers.gfx950_attention import Compiled, Forward, compiled
from tests.support.peers.peer_device import SEEDS, attention, normal, seeded
from tests.support.peers.removed_barriers import KERNELS, removals

DIRECTORY = os.environ.get("AMDATTN_GFX950_DIR")
OBJECTS = compiled(Path(DIRECTORY)) if DIRECTORY else []
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DIRECTORY, reason="AMDATTN_GFX950_DIR names no code objects"),
]
# Of FlyDSL's kernels, whose lengths are arguments; the others are compiled for one.
LENGTHS = ((1, 1), (100, 100), (300, 300), (333, 333))
CROSS_LENGTHS = ((77, 300), (300, 77), (257, 449))
# Probabilities and result are rounded to bfloat16, Gluon's Q too.
OUT_RMS = {"gluon": 5e-3, "flydsl": 5e-3, "hipkittens": 6e-3}


@pytest.fixture(scope="module", autouse=True)
def on_gfx950():
    if device_props().arch != "gfx950":
        pytest.skip("the device is no MI355X")


def cases():
    for what in OBJECTS:
        if what.n:
            lengths = ((what.n, what.n),)
        else:
            lengths = CROSS_LENGTHS + LENGTHS if what.cross else LENGTHS
        for q_rows, kv_rows in lengths:
            yield pytest.param(what, q_rows, kv_rows, id=f"{what.name}-{q_rows}-{kv_rows}")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("what", "q_rows", "kv_rows"), list(cases()))
def test_forward(what: Compiled, q_rows: int, kv_rows: int, seed: int) -> None:
    rng = np.random.default_rng(q_rows)
    q = normal(rng, q_rows, what.hq, what.d)
    k, v = normal(rng, 2, kv_rows, what.hk, what.d)
    with seeded(seed):
        out, _ = Forward(what)(q, k, v)
    expected, lse = attention(q, k, v, what.causal)
    seen = np.isfinite(lse).all(0)
    error = np.square(out.astype(np.float64) - expected)[seen].mean()
    assert np.sqrt(error / np.square(expected).mean()) < OUT_RMS[what.kind]


def gemm() -> Path | None:
    """HipKittens' GEMM, the version that takes its sizes."""
    named = KERNELS[0] + b"\0"
    files = sorted(Path(DIRECTORY).glob("*.hsaco")) if DIRECTORY else []
    return next((file for file in files if named in file.read_bytes()), None)


@pytest.mark.skipif(gemm() is None, reason="the directory has no GEMM of HipKittens")
def test_removed_barriers() -> None:
    """Of docs/studies/found.md, under the device's own schedule."""
    path = gemm()
    assert path is not None
    original, fixed, *others = removals(path, 1)
    assert original.reported and original.wrong
    assert not fixed.reported and not fixed.wrong
    assert not any(removal.missed for removal in others)
    assert (len(others), sum(removal.reported for removal in others)) == (32, 18)
