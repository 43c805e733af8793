"""Values of inline constants and literals, as seen by operands of every type."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.isa.assembler import assemble
from tests.support.isa.disassembler import Disassembler

INTEGERS = [0, 1, 64, -1, -16]
FLOATS = [0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0]
ONE_OVER_2PI = "0.15915494"


def bits(value: float, dtype: type[np.floating]) -> int:
    array = np.array([value], dtype)
    return int(array.view(f"u{array.itemsize}")[0])


# Instruction with the constant's place, index of that source, width of an integer's expansion,
# and what a float becomes.
F16 = {"v_add_f16 v0, {}, v1": 0, "v_pk_add_f16 v0, v1, {} op_sel_hi:[1,0]": 1}
F32 = {
    "v_add_f32 v0, {}, v1": 0,
    "v_fma_f32 v0, v1, v2, {}": 2,
    "s_mov_b32 s0, {}": 0,
    "v_and_b32 v0, {}, v1": 0,
    "v_pk_add_u16 v0, {}, v1 op_sel_hi:[0,1]": 0,
    "v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], {}": 2,
    "v_mfma_i32_16x16x32_i8 v[0:3], v[4:5], v[6:7], {}": 2,
    "v_pk_mul_f32 v[0:1], v[2:3], {} op_sel_hi:[1,0]": 1,
}
F64 = {
    "v_add_f64 v[0:1], v[2:3], {}": 1,
    "s_mov_b64 s[0:1], {}": 0,
    "v_cmp_eq_u64 vcc, {}, v[0:1]": 0,
    "v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], {}": 2,
}
INTEGER16 = {"v_add_u16 v0, {}, v1": 0, "v_lshlrev_b16 v0, {}, v1": 0}


def expand(
    disassembler: Disassembler, pattern: str, source: int, constants: list[str]
) -> list[int]:
    values = []
    for encoding in assemble([pattern.format(c) for c in constants]):
        value = disassembler.constant(encoding, source)
        assert value is not None
        values.append(value)
    return values


@pytest.mark.parametrize("pattern", [*F16, *F32, *INTEGER16, *F64])
def test_integers_are_sign_extended(disassembler: Disassembler, pattern: str) -> None:
    source = (F16 | F32 | INTEGER16 | F64)[pattern]
    mask = (1 << (64 if pattern in F64 else 32)) - 1
    found = expand(disassembler, pattern, source, [str(i) for i in INTEGERS])
    assert found == [i & mask for i in INTEGERS]


@pytest.mark.parametrize(
    ("patterns", "dtype"), [(F16, np.float16), (F32, np.float32), (F64, np.float64)]
)
def test_floats(
    disassembler: Disassembler, patterns: dict[str, int], dtype: type[np.floating]
) -> None:
    for pattern, source in patterns.items():
        found = expand(disassembler, pattern, source, [*map(str, FLOATS)])
        assert found == [bits(x, dtype) for x in FLOATS], pattern


@pytest.mark.parametrize(
    ("pattern", "text", "value"),
    [
        ("v_add_f16 v0, {}, v1", ONE_OVER_2PI, 0x3118),
        ("v_add_f32 v0, {}, v1", ONE_OVER_2PI, 0x3E22F983),
        ("v_mov_b64 v[0:1], {}", "0.15915494309189532", 0x3FC45F306DC9C882),
        # Literals: the high dword of an f64, zero-extended as bits, sign-extended as an integer.
        ("v_ceil_f64 v[0:1], {}", "0x40c81c80", 0x40C81C8000000000),
        ("s_mov_b64 s[0:1], {}", "0x89abcdef", 0x89ABCDEF),
        ("v_cmp_eq_i64 vcc, {}, v[0:1]", "0x89abcdef", 0xFFFFFFFF89ABCDEF),
        ("v_cmp_eq_u64 vcc, {}, v[0:1]", "0x89abcdef", 0x89ABCDEF),
        ("v_add_f32 v0, {}, v1", "0x12345678", 0x12345678),
        ("v_add_f16 v0, {}, v1", "0x5678", 0x5678),
    ],
)
def test_values(disassembler: Disassembler, pattern: str, text: str, value: int) -> None:
    assert expand(disassembler, pattern, 0, [text]) == [value]


@pytest.mark.parametrize(
    ("literal", "valid"),
    [
        *((0, True), (0xFFFF, True), (0x10000, False), (0xFFFF7FFF, False)),
        *((0xFFFF8000, True), (0xFFFFFFEF, True), (0xFFFFFFF0, False), (0xFFFFFFFF, False)),
    ],
)
def test_literals_of_16_bits(disassembler: Disassembler, literal: int, valid: bool) -> None:
    """As they are, or sign-extended as compilers do, who have -16..-1 as inline constants."""
    words = np.array([[0x3E0002FF, literal, 0]], np.uint32)  # v_add_f16 v0, literal, v1
    (decoded,) = disassembler.decode(words)
    assert bool(decoded.size) is valid
