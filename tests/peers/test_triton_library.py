"""What Triton's library compiles to gives NumPy's results: functions, casts, orders, atomics."""

import math

import ml_dtypes
import numpy as np
import pytest

from tests.support.peers.peer_device import SEEDS, seeded

pytest.importorskip("triton")

from tests.support.peers import triton_library
from tests.support.peers.triton_program import Program

pytestmark = pytest.mark.oracles

FP8 = (
    ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2fnuz,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
)


@pytest.fixture
def rng():
    return np.random.default_rng(17)


def elementwise(x, dtype, function=""):
    out = np.zeros(x.shape, dtype)
    args = (x, out, x.size)
    program = Program(triton_library.elementwise, *args, FUNCTION=function, TILE=256)
    return program((-(-x.size // 256),), out)[0]


@pytest.mark.parametrize(
    ("function", "dtype", "tolerance"),
    [
        ("erf", np.float32, 5e-7),
        ("exp", np.float64, 4e-16),
        ("sin", np.float32, 2e-7),
        ("pow", np.float32, 2e-6),
        ("divide", np.float32, 0),
    ],
)
def test_functions(rng, function, dtype, tolerance):
    x = (rng.random(777) * 4 + 0.05).astype(dtype)
    result = elementwise(x, dtype, function)
    wide = x.astype(np.float64)
    expected = {
        "erf": np.vectorize(math.erf)(wide),
        "exp": np.exp(wide),
        "sin": np.sin(wide),
        "pow": wide**wide,
        "divide": x / (x + dtype(0.7)),
    }[function]
    # sin has zeros, where its error is relative to 1.
    np.testing.assert_allclose(result, expected, tolerance, tolerance if function == "sin" else 0)


def test_sin_of_great_arguments(rng):
    """Range reduction with a table of 2/pi: integer multiplication and table look-up."""
    x = (rng.standard_normal(777) * 3e4).astype(np.float32)
    result = elementwise(x, np.float32, "sin")
    np.testing.assert_allclose(result, np.sin(x.astype(np.float64)), 0, 2e-7)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        *((np.float32, fp8) for fp8 in FP8),
        *((fp8, np.float32) for fp8 in FP8),
        (np.float32, ml_dtypes.bfloat16),
        (np.float64, np.float32),
        (np.float16, ml_dtypes.bfloat16),
    ],
)
def test_casts(rng, source, target):
    x = rng.standard_normal(777) * np.exp(3 * rng.standard_normal(777))
    x = x.clip(-200, 200).astype(source)
    np.testing.assert_array_equal(elementwise(x, target), x.astype(target))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integer_division(rng, dtype):
    limits = np.iinfo(dtype)
    a, b = rng.integers(limits.min, limits.max, (2, 500), dtype, endpoint=True)
    b[::3] = rng.integers(1, 100, b[::3].shape)
    quotient, remainder = np.zeros_like(a), np.zeros_like(a)
    args = (a, b, quotient, remainder, a.size)
    program = Program(triton_library.divide_integers, *args, TILE=512)
    found = program((1,), quotient, remainder)
    exact = [divmod(abs(x), abs(y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    signs = np.sign(a) * np.sign(b)
    np.testing.assert_array_equal(found[0], np.array([q for q, _ in exact], dtype) * signs)
    np.testing.assert_array_equal(found[1], np.array([r for _, r in exact], dtype) * np.sign(a))


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_order(rng, dtype):
    x = rng.permutation(128).astype(dtype) - 50
    ordered, sums, where = np.zeros_like(x), np.zeros_like(x), np.zeros(1, np.int32)
    args = (x, ordered, sums, where)
    program = Program(triton_library.order, *args, num_waves=2, TILE=x.size)
    found = program((1,), ordered, sums, where)
    np.testing.assert_array_equal(found[0], np.sort(x))
    np.testing.assert_array_equal(found[1], np.cumsum(x))  # exact in float32 as well
    assert found[2][0] == x.argmax()


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.int64])
def test_transpose(rng, dtype):
    x = rng.integers(-100, 100, (64, 128)).astype(dtype)
    out = np.zeros((128, 64), dtype)
    program = Program(triton_library.transpose, x, out, ROWS=64, COLUMNS=128)
    np.testing.assert_array_equal(program((1,), out)[0], x.T)


@pytest.mark.parametrize(
    "dtype", [np.int32, np.int64, np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
)
def test_scatter_add(rng, dtype):
    """Sums of small integers are exact in every type, so the order of the atomics is free."""
    x = rng.integers(0, 3, 777).astype(dtype)
    index = rng.integers(0, 37, x.size).astype(np.int32)
    total = np.zeros(64, dtype)
    program = Program(triton_library.scatter_add, x, index, total, x.size, TILE=256)
    expected = np.bincount(index, x.astype(np.float64), total.size)
    np.testing.assert_array_equal(program((4,), total)[0].astype(np.float64), expected)


def test_lock_between_workgroups():
    lock, counter = np.zeros(1, np.int32), np.zeros(1, np.int32)
    program = Program(triton_library.locked_increment, lock, counter, 10, num_waves=1)
    for seed in SEEDS:
        with seeded(seed):
            assert program((12,), counter)[0] == 120
