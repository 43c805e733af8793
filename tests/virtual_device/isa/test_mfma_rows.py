"""Matrix instructions as instructions: operands, register files, constants, EXEC.

numerics/test_mfma.py tests their arithmetic; here small integers make every sum exact.
Element places are written out from the manual's formulas, independently of the device's tables.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.support.isa.machine import Machine, MachineFault

F64 = npt.NDArray[np.float64]
U32 = npt.NDArray[np.uint32]

# mnemonic -> (m = n, k, elements of A or B per lane, their type)
SHAPES = {
    "v_mfma_f32_16x16x16_bf16": (16, 16, 4, ml_dtypes.bfloat16),
    "v_mfma_f32_16x16x16_f16": (16, 16, 4, np.float16),
    "v_mfma_f32_32x32x8_bf16": (32, 8, 4, ml_dtypes.bfloat16),
    "v_mfma_f32_32x32x8_f16": (32, 8, 4, np.float16),
    "v_mfma_f32_16x16x32_fp8_fp8": (16, 32, 8, ml_dtypes.float8_e4m3fnuz),
    "v_mfma_f32_32x32x16_bf8_fp8": (32, 16, 8, ml_dtypes.float8_e4m3fnuz),
    "v_mfma_f32_16x16x4_f32": (16, 4, 1, np.float32),
    "v_mfma_i32_16x16x32_i8": (16, 32, 8, np.int8),
    "v_mfma_i32_32x32x16_i8": (32, 16, 8, np.int8),
}


def types(name: str) -> tuple[type, type]:
    dtype = SHAPES[name][3]
    return (ml_dtypes.float8_e5m2fnuz if "bf8_" in name else dtype), dtype


def operand(matrix: F64, per_lane: int, dtype: type) -> U32:
    """Registers (n, 64) of A (rows, k) or of B transposed: lane row + rows * (k / per_lane)."""
    rows, k = matrix.shape
    lanes = np.empty((64, per_lane))
    for lane in range(64):
        first = lane // rows * per_lane
        lanes[lane] = matrix[lane % rows, first : first + per_lane]
    assert k == 64 // rows * per_lane
    return np.ascontiguousarray(lanes.astype(dtype)).view(np.uint32).reshape(64, -1).T


def result_place(name: str, row: int, column: int) -> tuple[int, int]:
    """(register, lane) of D[row, column]; the 32x32 layout goes in blocks of four rows."""
    if SHAPES[name][0] == 16:
        return row % 4, column + 16 * (row // 4)
    return row % 4 + 4 * (row // 8), column + 32 * (row // 4 % 2)


def matrices(name: str, seed: int) -> tuple[F64, F64, F64]:
    m, k, _, _ = SHAPES[name]
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-8, 9, (m, k)).astype(float) for _ in range(2))
    return a, b, rng.integers(-100, 101, (m, m)).astype(float)


def load(m: Machine, name: str, a: F64, b: F64, first_a: int, first_b: int) -> None:
    per_lane = SHAPES[name][2]
    for matrix, dtype, first in zip((a, b), types(name), (first_a, first_b), strict=True):
        registers = operand(matrix, per_lane, dtype)
        m.v[first : first + len(registers)] = registers


def load_c(m: Machine, name: str, c: F64, first: int) -> None:
    kind = np.int32 if "_i32_" in name else np.float32
    for row in range(len(c)):
        for column in range(len(c)):
            register, lane = result_place(name, row, column)
            m.v[first + register, lane] = np.array(c[row, column], kind).view(np.uint32)


def read(m: Machine, name: str, first: int) -> F64:
    size = SHAPES[name][0]
    kind = np.int32 if "_i32_" in name else np.float32
    d = np.empty((size, size))
    for row in range(size):
        for column in range(size):
            register, lane = result_place(name, row, column)
            d[row, column] = m.v[first + register, lane : lane + 1].view(kind)[0]
    return d


def span(prefix: str, first: int, count: int) -> str:
    return f"{prefix}[{first}:{first + count - 1}]" if count > 1 else f"{prefix}{first}"


def widths(name: str) -> tuple[int, int]:
    """Registers of A (and B), and of D."""
    m, _, per_lane, dtype = SHAPES[name]
    return per_lane * np.dtype(dtype).itemsize // 4, m * m // 64


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("exec_mask", [(1 << 64) - 1, 0x5, 0])
@pytest.mark.parametrize("acc", [False, True])
def test_product(name: str, exec_mask: int, acc: bool) -> None:
    # All 64 lanes take part whatever EXEC says.
    n, d = widths(name)
    a, b, c = matrices(name, 1)
    m = Machine(seed=2)
    m.exec = exec_mask
    load(m, name, a, b, 8, 16)
    base, file = (256, "a") if acc else (0, "v")
    load_c(m, name, c, base + 64)
    untouched = m.v.copy()
    m.run(f"{name} {span(file, 32, d)}, {span('v', 8, n)}, {span('v', 16, n)}, {span(file, 64, d)}")
    assert (read(m, name, base + 32) == a @ b.T + c).all()
    untouched[base + 32 : base + 32 + d] = m.v[base + 32 : base + 32 + d]
    assert (m.v == untouched).all()


@pytest.mark.parametrize("name", SHAPES)
def test_constant_c_and_operands_from_agprs(name: str) -> None:
    n, d = widths(name)
    a, b, _ = matrices(name, 3)
    m = Machine(seed=4)
    load(m, name, a, b, 256 + 8, 16)
    constant, value = ("5", 5.0) if "_i32_" in name else ("2.0", 2.0)
    m.run(f"{name} {span('v', 32, d)}, {span('a', 8, n)}, {span('v', 16, n)}, {constant}")
    assert (read(m, name, 32) == a @ b.T + value).all()


@pytest.mark.parametrize("name", SHAPES)
def test_accumulates_in_place(name: str) -> None:
    n, d = widths(name)
    a, b, c = matrices(name, 5)
    m = Machine(seed=6)
    load(m, name, a, b, 8, 16)
    load_c(m, name, c, 32)
    text = f"{name} {span('v', 32, d)}, {span('v', 8, n)}, {span('v', 16, n)}, {span('v', 32, d)}"
    m.run("\n".join([text] * 3))
    assert (read(m, name, 32) == 3 * (a @ b.T) + c).all()


def test_f64() -> None:
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((2, 16, 4))
    m = Machine(seed=8)
    for lane in range(64):
        for matrix, first in ((a, 8), (b, 10)):
            bits = np.array(matrix[lane % 16, lane // 16]).view(np.uint64)
            m.v[first, lane], m.v[first + 1, lane] = int(bits) & 0xFFFFFFFF, int(bits) >> 32
    m.run("v_mfma_f64_16x16x4_f64 v[32:39], v[8:9], v[10:11], 0 neg:[1,0,0]")
    d = np.empty((16, 16))
    for row in range(16):
        for column in range(16):
            register, lane = 2 * (row // 4), column + 16 * (row % 4)
            d[row, column] = m.v64(32 + register)[lane : lane + 1].view(np.float64)[0]
    assert np.allclose(d, -(a @ b.T), rtol=1e-14, atol=1e-14)


def test_meaningless_control_bits_are_refused() -> None:
    m = Machine(seed=9)
    with pytest.raises(MachineFault):
        m.run("v_mfma_f32_16x16x16_bf16 v[32:35], v[8:9], v[10:11], 0 cbsz:3")
