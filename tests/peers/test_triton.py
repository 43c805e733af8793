"""Kernels compiled by Triton give NumPy's results, whatever the order of waves.

They are compiled for the device that AMDATTN_DEVICE names; test_on_gfx950.py runs all of it again.
"""

import re

import ml_dtypes
import numpy as np
import pytest

from amdattn import device_props
from tests.support.peers.peer_device import SEEDS, attention, normal, seeded

pytest.importorskip("triton")

from tests.support.peers import triton_kernels
from tests.support.peers.triton_program import Program

pytestmark = pytest.mark.oracles

# The kind of each one's matrix instructions.
FP8 = {"gfx942": ml_dtypes.float8_e4m3fnuz, "gfx950": ml_dtypes.float8_e4m3fn}


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def run(program, grid, *outputs):
    """Results of the default order of waves, after checking that the other orders give them too."""
    results = []
    for seed in SEEDS:
        with seeded(seed):
            results.append(program(grid, *outputs))
    for other in results[1:]:
        for first, second in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(first.view(np.uint8), second.view(np.uint8))
    return [result.astype(np.float64) for result in results[0]]


def unwritten(*shape, dtype=np.float32):
    return np.full(shape, np.nan, dtype)


@pytest.mark.parametrize("n", [1, 1000, 5003])
def test_vector_add(rng, n):
    x, y = rng.standard_normal((2, n), np.float32)
    out = unwritten(n + 8)
    program = Program(triton_kernels.vector_add, x, y, out, n, TILE=1024)
    (result,) = run(program, (-(-n // 1024),), out)
    np.testing.assert_array_equal(result[:n], (x + y).astype(np.float64))
    assert np.isnan(result[n:]).all()  # nothing behind the end is written


def test_arguments_are_preloaded(rng):
    """The other tests would pass without preloading if the compiler stopped asking for it."""
    x = normal(rng, 1, 64)
    program = Program(triton_kernels.softmax, x, unwritten(1, 64), 64, TILE=64)
    (dwords,) = re.findall(r"kernarg_preload_length (\d+)", program.assembly)
    assert int(dwords) > 0


@pytest.mark.parametrize(("columns", "num_waves"), [(77, 1), (1000, 4), (2048, 8)])
def test_softmax(rng, columns, num_waves):
    x = 4 * rng.standard_normal((5, columns), np.float32)
    out = unwritten(*x.shape)
    tile = 1 << (columns - 1).bit_length()
    program = Program(triton_kernels.softmax, x, out, columns, num_waves=num_waves, TILE=tile)
    assert (program.dynamic_lds_bytes > 0) == (num_waves > 1)
    (result,) = run(program, (len(x),), out)
    weights = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    # exp is v_exp_f32 of a product up to about 45, rounded to 2^-19.
    np.testing.assert_allclose(result, weights / weights.sum(axis=1, keepdims=True), 4e-6, 1e-37)


@pytest.mark.parametrize(("columns", "num_waves"), [(300, 4), (1536, 8)])
def test_layer_norm(rng, columns, num_waves):
    x, weight, bias = normal(rng, 4, columns), normal(rng, columns), normal(rng, columns)
    out = unwritten(*x.shape)
    program = Program(
        triton_kernels.layer_norm,
        *(x, weight, bias, out, columns, 1e-5),
        num_waves=num_waves,
        TILE=512,
    )
    (result,) = run(program, (len(x),), out)
    x, weight, bias = (t.astype(np.float64) for t in (x, weight, bias))
    centred = x - x.mean(axis=1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5) * weight + bias
    np.testing.assert_allclose(result, expected, 2e-6, 2e-6)


@pytest.mark.parametrize(
    ("dtype", "mfma"),
    [("bf16", "_bf16"), ("fp8", "(_fp8_fp8|_f8f6f4)")],
)
@pytest.mark.parametrize(
    ("shape", "tile", "num_waves", "uses"),
    [
        ((128, 64, 96), (64, 64, 32), 4, "ds_read"),
        ((77, 53, 200), (64, 128, 64), 8, "buffer_load"),
        ((130, 90, 300), (128, 128, 128), 4, "v_accvgpr_write"),
    ],
    ids=["even", "odd", "agprs"],
)
def test_matmul(rng, dtype, mfma, shape, tile, num_waves, uses):
    types = {"bf16": ml_dtypes.bfloat16, "fp8": FP8[device_props().arch]}
    program, a, b, d = matmul(rng, types[dtype], shape, tile, num_waves)
    assert re.search(rf"v_mfma_f32_\w+{mfma}\b", program.assembly)
    assert uses in program.assembly
    check_matmul(program, tile, a, b, d)


def test_spilled_registers(rng):
    """A tile too large for the register file lives in scratch memory."""
    tile = (256, 256, 64)
    program, a, b, d = matmul(rng, ml_dtypes.bfloat16, (100, 90, 70), tile, 8)
    assert "scratch_store" in program.assembly
    check_matmul(program, tile, a, b, d)


def matmul(rng, dtype, shape, tile, num_waves):
    m, n, k = shape
    a = rng.standard_normal((m, k), np.float32).astype(dtype)
    b = rng.standard_normal((k, n), np.float32).astype(dtype)
    d = unwritten(m, n)
    constants = dict(zip(("TILE_M", "TILE_N", "TILE_K"), tile, strict=True))
    args = (a, b, d, m, n, k)
    return Program(triton_kernels.matmul, *args, num_waves=num_waves, **constants), a, b, d


def check_matmul(program, tile, a, b, d):
    (result,) = run(program, (-(-len(a) // tile[0]), -(-b.shape[1] // tile[1])), d)
    a, b = a.astype(np.float64), b.astype(np.float64)
    # Every product is exact in float32; sums round at the size of the partial sums.
    np.testing.assert_array_less(np.abs(result - a @ b), 1e-6 * (np.abs(a) @ np.abs(b)))


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize(
    ("seqlen_q", "seqlen_kv", "heads", "head_dim", "num_waves"),
    [(77, 100, (2, 1), 64, 4), (130, 200, (1, 1), 128, 4)],
)
def test_attention_forward(rng, causal, seqlen_q, seqlen_kv, heads, head_dim, num_waves):
    num_heads_q, num_heads_kv = heads
    q = normal(rng, seqlen_q, num_heads_q, head_dim)
    k, v = normal(rng, 2, seqlen_kv, num_heads_kv, head_dim)
    out, lse = unwritten(*q.shape, dtype=ml_dtypes.bfloat16), unwritten(num_heads_q, seqlen_q)
    program = Program(
        triton_kernels.attention_forward,
        *(q, k, v, out, lse, head_dim**-0.5 * np.log2(np.e)),
        *(seqlen_q, seqlen_kv, num_heads_q, num_heads_kv),
        num_waves=num_waves,
        CAUSAL=causal,
        HEAD_DIM=head_dim,
        TILE_Q=64,
        TILE_KV=32,
    )
    result, result_lse = run(program, (-(-seqlen_q // 64), num_heads_q), out, lse)
    expected, expected_lse = attention(q, k, v, causal)
    np.testing.assert_allclose(result_lse, expected_lse, 0, 4e-6)
    np.testing.assert_allclose(result, expected, 2**-7, 2**-8)
