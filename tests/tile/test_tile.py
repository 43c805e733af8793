"""Every tile primitive on the device against numpy, under three schedules of its waves."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import references
from gpu import Gpu

Array = npt.NDArray[Any]

SEEDS = (0, 1, 2)
GUARD_BYTES = 4096
POISON = 0xA5
EPSILON = 2.0**-23  # of float32
TINY = 2.0**-126  # v_exp_f32 flushes what is smaller


def guarded_launch(
    gpu: Gpu, function: Any, lanes: int, arguments: tuple[Any, ...], outputs: list[Array]
) -> list[Array]:
    """Launch one workgroup; its outputs, each of which lay poisoned between two guards."""
    blocks = [np.full(x.nbytes + 2 * GUARD_BYTES, POISON, np.uint8) for x in outputs]
    addresses = [gpu.upload(block) for block in blocks]
    pointers = [ctypes.c_void_p(address + GUARD_BYTES) for address in addresses]
    gpu.launch(function, 1, lanes, *arguments, *pointers)
    assert gpu.finish() == 0, gpu.report
    results = []
    for output, block, address in zip(outputs, blocks, addresses, strict=True):
        after = gpu.download(address, block)
        gpu.call("hipFree", address)
        for guard in (after[:GUARD_BYTES], after[-GUARD_BYTES:]):
            assert (guard == POISON).all()
        results.append(after[GUARD_BYTES:-GUARD_BYTES].view(output.dtype).reshape(output.shape))
    return results


def run(
    gpu: Gpu,
    name: str,
    arguments: tuple[Any, ...],
    *outputs: Array,
    lanes: int = 64,
    symbol: str | None = None,
) -> list[Array]:
    """Outputs shaped and typed like `outputs`, the same bits under every seed."""
    function = gpu.function(name, symbol=symbol)
    by_seed = []
    for seed in SEEDS:
        gpu.option("seed", seed)
        by_seed.append(guarded_launch(gpu, function, lanes, arguments, list(outputs)))
    for other in by_seed[1:]:
        for ours, theirs in zip(by_seed[0], other, strict=True):
            assert ours.tobytes() == theirs.tobytes()
    return by_seed[0]


def pointer(gpu: Gpu, array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(gpu.upload(array))


def assert_within(actual: Array, expected: Array, tolerance: Array | float) -> None:
    """NaN and infinities at the same places, every other element within its tolerance."""
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    infinite = np.isinf(expected)
    np.testing.assert_array_equal(actual[infinite], expected[infinite])
    finite = np.isfinite(expected)
    with np.errstate(invalid="ignore"):
        error = np.abs(actual.astype(np.float64) - expected)
    excess = (error - tolerance)[finite]
    assert (excess <= 0).all(), f"{np.count_nonzero(excess > 0)} elements, by {excess.max():.3g}"


@pytest.mark.parametrize("infinity", [None, np.inf, -np.inf])
def test_lane_reduce(gpu: Gpu, infinity: float | None) -> None:
    values = np.random.default_rng(1).normal(0, 10, 64).astype(np.float32)
    if infinity is not None:
        values[[3, 21, 40, 56]] = infinity
    out = np.empty(64, np.float32)
    top, total = run(gpu, "lane_reduce", (pointer(gpu, values),), out, out)
    expected_top, expected_total = references.lane_reduce(values)
    np.testing.assert_array_equal(top, expected_top)
    magnitude = references.lane_reduce(np.abs(values))[1]
    assert_within(total, expected_total, EPSILON * magnitude)


@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
def test_mma(gpu: Gpu, scale: float) -> None:
    rng = np.random.default_rng(2)
    a, b = ((rng.normal(0, 1, (16, 32)) * scale).astype(ml_dtypes.bfloat16) for _ in range(2))
    c = (rng.normal(0, 3, (16, 16)) * scale**2).astype(np.float32)
    arguments = tuple(pointer(gpu, x) for x in (a, b, c))
    (d,) = run(gpu, "mma", arguments, np.empty((16, 16), np.float32), symbol="mma_test")
    wide = [x.astype(np.float64) for x in (a, b, c)]
    magnitude = references.mma(*map(np.abs, wide))
    assert_within(d, references.mma(*wide), 2 * EPSILON * magnitude)


@pytest.mark.parametrize("num_rows", [1, 63, 64, 65, 127, 130, 192])
@pytest.mark.parametrize("stride", [128, 136, -144])
@pytest.mark.parametrize("name", ["row_stage", "transpose_stage"])
def test_stage(gpu: Gpu, name: str, num_rows: int, stride: int) -> None:
    """The source ends with its last row: a load of a row past it would be a fault."""
    memory = np.random.default_rng(num_rows).integers(
        0, 1 << 16, (num_rows - 1) * abs(stride) + 128, np.uint16
    )
    first = 0 if stride > 0 else len(memory) - 128
    rows = np.stack([memory[first + i * stride :][:128] for i in range(num_rows)])
    expected = references.staged(rows, 64, name == "transpose_stage")
    base = gpu.upload(memory)
    arguments = (
        ctypes.c_uint64(base + 2 * first),
        ctypes.c_int64(stride),
        ctypes.c_int32(num_rows),
    )
    (out,) = run(gpu, name, arguments, np.empty(expected.shape, np.uint16), lanes=256)
    np.testing.assert_array_equal(out, expected)


def scores_of(kind: str) -> npt.NDArray[np.float32]:
    """Scores (7, 64, 4), of which row r is [:, r % 16 :: 16]."""
    rng = np.random.default_rng(4)
    spread = {"wide": 60.0, "equal": 0.0}.get(kind, 4.0)
    scores = rng.normal(-3, spread, (7, 64, 4)).astype(np.float32)
    if kind == "masked":
        scores[:, 5::16] = -np.inf  # a whole row
        scores[:3, 6::16] = -np.inf  # the first tiles of a row
        scores[4:, 7::16] = -np.inf  # its last ones
        scores[:, 8, 1:] = -np.inf  # one lane's elements but one
    elif kind == "poisoned":
        scores[2, 3, 1] = np.nan
        scores[0, 20, 0] = scores[6, 37, 3] = np.nan
        scores[:, 6::16] = np.nan
        scores[3, 8, 2] = np.inf
        scores[6, 25, 0] = np.inf
        scores[:4, 10::16] = -np.inf
        scores[4, 26, 1] = np.nan  # after tiles of -inf
    elif kind == "growing":
        scores += np.arange(7, dtype=np.float32)[:, None, None] * 50  # every tile rescales
    elif kind == "rising":
        scores += np.arange(7, dtype=np.float32)[:, None, None] * 3  # only some do
    return scores


@pytest.mark.parametrize(
    "kind", ["normal", "wide", "equal", "growing", "rising", "masked", "poisoned"]
)
def test_softmax_state(gpu: Gpu, kind: str) -> None:
    scores = scores_of(kind)
    row = np.empty(64, np.float32)
    arguments = (pointer(gpu, scores), ctypes.c_int32(len(scores)))
    outputs = (np.empty_like(scores), np.empty(scores.shape[:2], np.float32), row, row)
    probabilities, rescale, inv_sum, lse = run(gpu, "softmax_state", arguments, *outputs)
    expected = references.softmax_state(scores)
    for actual, wanted in ((probabilities, expected[0]), (rescale, expected[1])):
        # The rounding of the exponent x counts x ln 2 times in 2^x.
        with np.errstate(all="ignore"):
            exponent = np.where(wanted > 0, np.abs(np.log2(wanted)), 0.0)
            assert_within(actual, wanted, wanted * EPSILON * (2 + exponent / 2) + TINY)
    # Sums: one rounding an element, and the exponents' as above.
    assert_within(inv_sum, expected[2], 32 * EPSILON * np.nan_to_num(expected[2]))
    largest = np.abs(scores[np.isfinite(scores)]).max()
    assert_within(lse, expected[3], EPSILON * (32 + 2 * largest))


def test_round_normals(gpu: Gpu) -> None:
    """As ml_dtypes rounds: near and at ties, at ends of a binade, over all exponents allowed."""
    rng = np.random.default_rng(6)
    mantissas = rng.integers(0, 1 << 23, 4096)
    mantissas[:1024] = mantissas[:1024] & ~0xFFFF | rng.integers(0x7FFE, 0x8003, 1024)
    mantissas[1024:1536] = 0x7FFFFF - rng.integers(0, 1 << 9, 512)
    mantissas[1536:2048] = rng.integers(0, 1 << 9, 512)
    bits = rng.integers(0, 2, 4096) << 31 | rng.integers(1, 238, 4096) << 23 | mantissas
    values = bits.astype(np.uint32).view(np.float32)
    values[:4] = 0.0, 1.0, np.nan, 2.0**8
    outputs = [
        run(gpu, "round_normals", (pointer(gpu, part),), np.empty(128, np.uint32))[0]
        for part in values.reshape(-1, 128)
    ]
    out = np.concatenate(outputs)
    expected = values.astype(ml_dtypes.bfloat16).view(np.uint16)
    assert np.isnan(out.view(np.float32)[2])
    np.testing.assert_array_equal(np.delete(out, 2), np.delete(expected.astype(np.uint32) << 16, 2))


@pytest.mark.parametrize("factor", [1.0, 0.3, -7.5, 0.0, 1e-30, np.inf, np.nan])
@pytest.mark.parametrize("source", ["normal", "bits"])
def test_round_octet(gpu: Gpu, source: str, factor: float) -> None:
    """`bits` holds every kind of float32: denormals, ties, NaN whose payload is cut off, inf."""
    rng = np.random.default_rng(5)
    values = rng.normal(0, 1, 512).astype(np.float32)
    if source == "bits":
        values = rng.integers(0, 1 << 32, 512, np.uint32).view(np.float32)
        special = [0x7F800001, 0xFF800001, 0x7FFFFFFF, 0x7F800000, 0xFF800000, 0x7F7FFFFF]
        ties = [0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001, 0x00008000, 0x00018000, 0x80000000]
        edge = np.array(special + ties, np.uint32)
        values.view(np.uint32)[: len(edge)] = edge
    arguments = (pointer(gpu, values), ctypes.c_float(factor))
    (out,) = run(gpu, "round_octet", arguments, np.empty(512, np.uint16), symbol="round_octet_of")
    expected = references.round_octet(values, factor)
    nan = np.isnan(expected.view(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(np.isnan(out.view(ml_dtypes.bfloat16)), nan)
    np.testing.assert_array_equal(out[~nan], expected[~nan])
