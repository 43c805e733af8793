"""The attention kernels of ROCm/aiter for MI355X, as it ships them, match float64.

AMDATTN_AITER_DIR names a checkout of https://github.com/ROCm/aiter; nothing of it is copied here.
The device must be an MI355X (AMDATTN_DEVICE=virtual:gfx950): test_on_gfx950.py runs this module.
"""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from amdattn import device_props, virtual
from amdattn.bench.kernels import Functions
from amdattn.bench.shapes import Shape
from benchmarks.peers.aiter import FP8, Aiter
from benchmarks.peers.sampling import Sampler
from tests.support.peers.aiter_fmha import Forward, Variant
from tests.support.peers.peer_device import SEEDS, attention, normal, seeded

DIRECTORY = os.environ.get("AMDATTN_AITER_DIR")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DIRECTORY, reason="AMDATTN_AITER_DIR names no aiter checkout"),
]

# Type and columns of Q and K, columns of V.
KINDS = {"bf16-128": ("bf16", 128, 128), "bf16-192": ("bf16", 192, 128)}
KINDS |= {"fp8-128": (FP8, 128, 128), "fp8-256": (FP8, 256, 256)}
# (batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv)
SHAPES = [(1, 1, 1, 1, 1), (1, 100, 77, 1, 1), (2, 300, 300, 2, 1), (1, 77, 333, 4, 2)]
# Those of bf16-192 are right only while waves advance together (docs/studies/found.md).
RACY = "bf16-192"
RUNS = [(kind, seed) for kind in KINDS for seed in SEEDS if kind != RACY or seed == 0]
# Mask, packing, and the first load to LDS that overwrites what another wave may still read.
RACES = [
    (False, False, 0x4114),
    (False, True, 0x418C),
    (True, False, 0x46E0),
    (True, True, 0x4760),
]
# Probabilities and result are rounded to bfloat16, to nearest, by v_cvt_pk_bf16_f32.
# 8-bit probabilities have 3 bits behind the first.
OUT_RMS = {"bf16": 2.5e-3, FP8: 3e-2}
LSE_MAX = {"bf16": 2e-6, FP8: 2e-2}


@pytest.fixture(scope="module", autouse=True)
def on_gfx950():
    if device_props().arch != "gfx950":
        pytest.skip("the device is no MI355X")


@pytest.fixture(scope="module")
def forward():
    """Kernels by head_dim, mask and packing, each loaded once."""
    loaded = {}

    def get(dtype, head_dim, causal, varlen):
        key = Variant("rtne", causal, varlen, head_dim, dtype)
        if key not in loaded:
            loaded[key] = Forward(Path(DIRECTORY), key)
        return loaded[key]

    return get


def make(kind, shape):
    dtype, head_dim, head_dim_v = KINDS[kind]
    batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv = shape
    rng = np.random.default_rng(seqlen_q)
    arrays = (
        normal(rng, batch, seqlen_q, num_heads_q, head_dim),
        normal(rng, batch, seqlen_kv, num_heads_kv, head_dim),
        normal(rng, batch, seqlen_kv, num_heads_kv, head_dim_v),
    )
    return [x.astype(ml_dtypes.float8_e4m3fn) for x in arrays] if dtype == FP8 else arrays


def check(dtype, out, lse, q, k, v, causal):
    expected, expected_lse = attention(q, k, v, causal)
    seen = np.isfinite(expected_lse)
    np.testing.assert_array_equal(lse[~seen], -np.inf)
    assert np.sqrt(((out - expected) ** 2).mean() / (expected**2).mean()) < OUT_RMS[dtype]
    assert np.abs(lse[seen] - expected_lse[seen]).max() < LSE_MAX[dtype]


@pytest.mark.parametrize(("kind", "seed"), RUNS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_batch(forward, kind, causal, shape, seed):
    q, k, v = make(kind, shape)
    with seeded(seed):
        out, lse = forward(*KINDS[kind][:2], causal, False)(q, k, v)
    for b in range(len(q)):
        check(KINDS[kind][0], out[b], lse[b], q[b], k[b], v[b], causal)


@pytest.mark.parametrize(("kind", "seed"), RUNS)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_varlen(forward, kind, causal, seed):
    q, k, v = (x[0] for x in make(kind, (1, 1 + 77 + 300, 1 + 100 + 300, 2, 1)))
    cu_q, cu_kv = (np.array(cu, np.int32) for cu in ([0, 1, 78, 378], [0, 1, 101, 401]))
    with seeded(seed):
        out, lse = forward(*KINDS[kind][:2], causal, True)(q, k, v, cu_q, cu_kv)
    for q_range, kv_range in zip(pairwise(cu_q), pairwise(cu_kv), strict=True):
        rows, keys = slice(*q_range), slice(*kv_range)
        check(KINDS[kind][0], out[rows], lse[:, rows], q[rows], k[keys], v[keys], causal)


@pytest.mark.parametrize(("causal", "varlen", "pc"), RACES)
def test_races(forward, causal, varlen, pc):
    """Checked mode says why: in the device's own order the result is right, and it reports them."""
    rows = 333
    q, k, v = make(RACY, (1, rows, rows, 2, 1))
    expected, _ = attention(q[0], k[0], v[0], causal)
    arrays = [x[0] for x in (q, k, v)] if varlen else (q, k, v)
    arrays = (*arrays, *[np.array([0, rows], np.int32)] * (2 * varlen))
    kernel = forward(*KINDS[RACY][:2], causal, varlen)

    def error():
        out = kernel(*arrays)[0].reshape(expected.shape)
        return np.sqrt(((out - expected) ** 2).mean() / (expected**2).mean())

    with virtual.check(raise_on=None) as found:
        assert error() < OUT_RMS["bf16"]
    races = {f.pc: f for f in found.errors if f.kind == "lds_race"}
    assert races[pc].text.startswith("buffer_load_dwordx4")
    assert races[pc].producer_text.startswith("ds_read_b128")
    wrong = 0
    for seed in range(1, 24):
        with seeded(seed):
            wrong += error() >= OUT_RMS["bf16"]
    assert wrong > 0


def findings(forward, kind, causal, varlen, late_loads=True):
    """(kind, address) of the errors of a run, and whether its result is right."""
    rows = 333
    q, k, v = make(kind, (1, rows, rows, 2, 1))
    arrays = [x[0] for x in (q, k, v)] if varlen else (q, k, v)
    arrays = (*arrays, *[np.array([0, rows], np.int32)] * (2 * varlen))
    with virtual.check(raise_on=None, late_loads=late_loads) as found:
        out, _ = forward(*KINDS[kind][:2], causal, varlen)(*arrays)
    expected, _ = attention(q[0], k[0], v[0], causal)
    error = np.square(out.reshape(expected.shape) - expected).mean() / np.square(expected).mean()
    right = np.sqrt(error) < OUT_RMS[KINDS[kind][0]]
    return {(f.kind, f.pc) for f in found.errors}, right


@pytest.mark.parametrize("varlen", [False, True], ids=["dense", "varlen"])
def test_without_mask_128_is_sound(forward, varlen):
    found, right = findings(forward, "bf16-128", False, varlen)
    assert right
    assert {kind for kind, _ in found} <= {"hazard", "ambiguous_range"}


@pytest.mark.parametrize(("varlen", "pc"), [(False, 0x383C), (True, 0x38BC)])
def test_second_tile_races(forward, varlen, pc):
    """Its first loads to LDS, behind no barrier, overwrite what was read last of the first tile."""
    found, right = findings(forward, "bf16-128", True, varlen)
    assert right
    assert ("lds_race", pc) in found


@pytest.mark.parametrize(
    ("kind", "causal", "varlen", "pc"),
    [
        ("fp8-128", False, False, 0x4A48),
        ("fp8-128", False, True, 0x4C0C),
        ("fp8-128", True, False, 0x4BB4),
        ("fp8-128", True, True, 0x4C84),
        ("fp8-256", False, False, 0x4CA4),
        ("fp8-256", False, True, 0x4D68),
        ("fp8-256", True, False, 0x4CF4),
        ("fp8-256", True, True, 0x4DC4),
    ],
)
def test_8_bit_kernels_wait_too_little(forward, kind, causal, varlen, pc):
    for late in (True, False):
        found, right = findings(forward, kind, causal, varlen, late)
        assert right == (not late)
        assert ("use_before_wait", pc) in found


@pytest.mark.parametrize(
    "shape",
    [Shape(1, 8, 2, 2048, 2048, 128, True), Shape(1, 8, 8, 2048, 1024, 192, head_dim_v=128)],
    ids=["128-causal", "192"],
)
def test_as_a_peer_of_benchmarks(shape):
    """The model of a sample of its workgroups is that of all."""
    peer = Aiter(Path(DIRECTORY), "rtne")
    assert peer.refusal(shape) == ""
    functions = Functions()
    sampled, full = (
        Sampler(peer, shape, functions, method=method).model() for method in ("sampled", "full")
    )
    assert sampled.cycles == pytest.approx(full.cycles, rel=0.02)
    assert sampled.clk["mfma"] == pytest.approx(full.clk["mfma"], rel=1e-3)
