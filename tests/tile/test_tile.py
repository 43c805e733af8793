"""Every tile primitive on the device against numpy, under three schedules of its waves."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.support import tile_references as references
from tests.support.gpu import Gpu

Array = npt.NDArray[Any]

SEEDS = (0, 1, 2)
GUARD_BYTES = 4096
POISON = 0xA5
EPSILON = 2.0**-23  # of float32
TYPES = {"kBf16": np.dtype(ml_dtypes.bfloat16), "kF16": np.dtype(np.float16)}
each_element = pytest.mark.parametrize("element", TYPES)


def guarded_launch(
    gpu: Gpu, function: Any, workgroups: int, arguments: tuple[Any, ...], outputs: list[Array]
) -> list[Array]:
    """Launch workgroups of a wave; their outputs, each of which lay poisoned between guards."""
    blocks = [np.full(x.nbytes + 2 * GUARD_BYTES, POISON, np.uint8) for x in outputs]
    addresses = [gpu.upload(block) for block in blocks]
    pointers = [ctypes.c_void_p(address + GUARD_BYTES) for address in addresses]
    gpu.launch(function, workgroups, 64, *arguments, *pointers)
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
    workgroups: int = 1,
    defines: tuple[str, ...] = (),
    symbol: str | None = None,
) -> list[Array]:
    """Outputs shaped and typed like `outputs`, the same bits under every seed."""
    function = gpu.function(name, *defines, symbol=symbol)
    by_seed = []
    for seed in SEEDS:
        gpu.option("seed", seed)
        by_seed.append(guarded_launch(gpu, function, workgroups, arguments, list(outputs)))
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
    outputs = (out, out, out, np.empty((64, 4), np.float32), np.empty(64, np.uint32))
    top, total, following, totals, holds = run(
        gpu, "lane_reduce", (pointer(gpu, values),), *outputs
    )
    expected_top, expected_total = references.lane_reduce(values)
    np.testing.assert_array_equal(top, expected_top)
    magnitude = references.lane_reduce(np.abs(values))[1]
    assert_within(total, expected_total, EPSILON * magnitude)
    np.testing.assert_array_equal(following, np.roll(values, -1))
    np.testing.assert_array_equal(totals[:, :3], np.stack([total, 2 * total, -total], 1))
    assert (totals[:, 3] == 0).all() and (holds == (infinity == np.inf)).all()


def test_lane_scan(gpu: Gpu) -> None:
    values = np.random.default_rng(4).integers(0, 1 << 20, 64, np.int32)
    out = np.empty(64, np.int32)
    sums, most = run(gpu, "lane_scan", (pointer(gpu, values),), out, out)
    np.testing.assert_array_equal(sums, np.cumsum(values))
    np.testing.assert_array_equal(most, np.maximum.accumulate(values))


@each_element
@pytest.mark.parametrize("form", ["kPlain", "kOrdered", "kFromAcc", "kIntoAcc"])
@pytest.mark.parametrize("scale", [1.0, 1e-2, 1e2])
def test_mma(gpu: Gpu, element: str, form: str, scale: float) -> None:
    """By element type, and with operands and results in accumulation registers."""
    rng = np.random.default_rng(2)
    a, b = ((rng.normal(0, 1, (16, 32)) * scale).astype(TYPES[element]) for _ in range(2))
    c = (rng.normal(0, 3, (16, 16)) * scale**2).astype(np.float32)
    arguments = tuple(pointer(gpu, x) for x in (a, b, c))
    defines = (f"ELEMENT={element}", f"FORM={form}")
    out = np.empty((16, 16), np.float32)
    (d,) = run(gpu, "mma", arguments, out, symbol="mma_test", defines=defines)
    wide = [x.astype(np.float64) for x in (a, b, c)]
    magnitude = references.mma(*map(np.abs, wide))
    assert_within(d, references.mma(*wide), 2 * EPSILON * magnitude)


@each_element
def test_float_of(gpu: Gpu, element: str) -> None:
    """Every bit pattern, denormals too; a NaN stays one."""
    defines = (f"ELEMENT={element}",)
    out = np.empty(1 << 16, np.float32)
    (found,) = run(
        gpu, "float_of", (), out, workgroups=1 << 10, defines=defines, symbol="float_of_bits"
    )
    expected = np.arange(1 << 16, dtype=np.uint16).view(TYPES[element]).astype(np.float32)
    np.testing.assert_array_equal(found, expected)


def numbers() -> npt.NDArray[np.float32]:
    """Every exponent, near and at ties, ends of a binade; denormals, infinities, kinds of NaN."""
    rng = np.random.default_rng(6)
    bits = rng.integers(0, 1 << 32, 1 << 15, np.uint32)
    around = rng.integers(-2, 3, 1 << 13)
    for n, (low, tie) in enumerate(
        ((16, 1 << 15), (13, 1 << 12))
    ):  # bits cut off, and half of them
        part = bits[n << 13 : (n + 1) << 13]
        part[:] = (part.astype(np.int64) & -(1 << low)) + tie + around
    bits[2 << 13 : (2 << 13) + 4096] &= 0x807FFFFF  # denormal
    bits[-4096:] = bits[-4096:] & 0x8FFFFFFF | 0x30000000  # of float16: small and denormal
    special = [0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800000, 0xFF800000, 0x7F7FFFFF]
    ties = [0x3F808000, 0x3F818000, 0x00008000, 0x00018000, 0x80000000, 0x7FC00000, 0x477FF000]
    bits[: len(special + ties)] = special + ties
    return bits.view(np.float32)


@pytest.mark.parametrize(
    ("element", "how"),
    [(e, h) for e in TYPES for h in references.ROUNDINGS if (e, h) != ("kF16", "kNearestAway")],
)
@pytest.mark.parametrize("function", ["round_pair", "round_numbers"])
def test_round(gpu: Gpu, element: str, how: str, function: str) -> None:
    values = numbers()
    if function == "round_numbers":  # NaNs that arithmetic makes, and no others
        values = np.where(np.isnan(values), np.float32(np.nan), values)
    defines = (f"ELEMENT={element}", f"ROUNDING={how}", f"FUNCTION={function}")
    (found,) = run(
        gpu,
        "round",
        (pointer(gpu, values),),
        np.empty(len(values) // 2, np.uint32),
        workgroups=len(values) // 128,
        defines=defines,
        symbol="round_pairs_of",
    )
    found = found.view(TYPES[element])
    expected = references.rounded(values, TYPES[element], how)
    nan = np.isnan(values)
    assert np.isnan(found[nan]).all()
    np.testing.assert_array_equal(found[~nan].view(np.uint16), expected[~nan].view(np.uint16))


@pytest.mark.parametrize("descriptor", ["raw_descriptor", "uniform_descriptor"])
@pytest.mark.parametrize("num_bytes", [0, 4, 100, 254, 256])
@pytest.mark.parametrize("offset", [0, 12, 300])
def test_buffer(gpu: Gpu, descriptor: str, num_bytes: int, offset: int) -> None:
    memory = np.arange(1, 129, dtype=np.uint32)
    base = gpu.upload(memory)
    in_vgprs = descriptor == "uniform_descriptor"
    defines = (f"DESCRIPTOR={descriptor}", f"IN_VGPRS={int(in_vgprs)}")
    for skips_odd in (0, 1):
        scalars = (num_bytes, offset, skips_odd)
        arguments = (ctypes.c_uint64(base), *map(ctypes.c_int32, scalars))
        (out,) = run(gpu, "descriptor", arguments, np.empty(64, np.uint32), defines=defines)
        at = 4 * np.arange(64) + offset
        expected = np.where(at + 4 <= num_bytes, memory[np.minimum(at // 4, 127)], 0)
        if skips_odd:
            expected[1::2] = 0
        np.testing.assert_array_equal(out, expected)
