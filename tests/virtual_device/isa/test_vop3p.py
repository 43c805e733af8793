"""VOP3P without MFMA: packed halves, packed f32, mixed-precision FMA, dot products, AGPR moves."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from tests.support.isa import float_oracle as fo
from tests.support.isa.assembly import VOP3P, assemble_each, row_names
from tests.support.isa.builders import dot2_f16, fields
from tests.support.isa.float_oracle import F16, F32, Mode
from tests.support.isa.int_oracle import clamp_s, clamp_u, low, signed
from tests.support.isa.machine import Machine
from tests.support.isa.vectors import BOTH_MODES, HOLES, Op, check_forms

H = 0xFFFF


@dataclass(frozen=True)
class Modifiers:
    """The modifier bits of one VOP3P instruction, a bit per source."""

    op_sel: int
    op_sel_hi: int
    neg_lo: int = 0
    neg_hi: int = 0
    clamp: bool = False

    def text(self, n: int, *, negate: bool) -> str:
        def bits(name: str, value: int) -> str:
            return f" {name}:[{','.join(str(value >> i & 1) for i in range(n))}]"

        out = bits("op_sel", self.op_sel) + bits("op_sel_hi", self.op_sel_hi)
        if negate:
            out += bits("neg_lo", self.neg_lo) + bits("neg_hi", self.neg_hi)
        return out + (" clamp" if self.clamp else "")


def random_modifiers(rng: random.Random, n: int, *, negate: bool, clamp: bool) -> Modifiers:
    mask = (1 << n) - 1
    return Modifiers(
        rng.getrandbits(n),
        rng.getrandbits(n),
        rng.getrandbits(n) & mask if negate else 0,
        rng.getrandbits(n) & mask if negate else 0,
        clamp and rng.random() < 0.4,
    )


# ---- packed halves ------------------------------------------------------------------------------

IntHalf = Callable[..., int]


def i16(fn: IntHalf) -> IntHalf:
    """An exact function of signed halves; saturation is the caller's."""
    return lambda *x: fn(*(signed(v, 16) for v in x))


# (number of sources, exact function of halves, saturation bounds or None)
SIGNED, UNSIGNED = clamp_s, clamp_u
PACKED_INT: dict[str, tuple[int, IntHalf, Callable[[int, int], int] | None]] = {
    "v_pk_mad_i16": (3, i16(lambda a, b, c: a * b + c), SIGNED),
    "v_pk_mul_lo_u16": (2, lambda a, b: a * b, None),
    "v_pk_add_i16": (2, i16(lambda a, b: a + b), SIGNED),
    "v_pk_sub_i16": (2, i16(lambda a, b: a - b), SIGNED),
    "v_pk_lshlrev_b16": (2, lambda a, b: b << (a & 15), None),
    "v_pk_lshrrev_b16": (2, lambda a, b: b >> (a & 15), None),
    "v_pk_ashrrev_i16": (2, lambda a, b: signed(b, 16) >> (a & 15), None),
    "v_pk_max_i16": (2, i16(max), None),
    "v_pk_min_i16": (2, i16(min), None),
    "v_pk_mad_u16": (3, lambda a, b, c: a * b + c, UNSIGNED),
    "v_pk_add_u16": (2, lambda a, b: a + b, UNSIGNED),
    "v_pk_sub_u16": (2, lambda a, b: a - b, UNSIGNED),
    "v_pk_max_u16": (2, max, None),
    "v_pk_min_u16": (2, min, None),
}
PACKED_FLOAT: dict[str, tuple[int, Callable[..., int]]] = {
    "v_pk_fma_f16": (3, fo.fma),
    "v_pk_add_f16": (2, fo.add),
    "v_pk_mul_f16": (2, fo.mul),
    "v_pk_min_f16": (2, fo.fmin),
    "v_pk_max_f16": (2, fo.fmax),
}


def halves(words: Sequence[int], select: int) -> list[int]:
    return [w >> 16 if select >> i & 1 else w & H for i, w in enumerate(words)]


def packed_int(name: str, mod: Modifiers) -> Op:
    n, fn, saturate = PACKED_INT[name]

    def one(words: Sequence[int], select: int) -> int:
        x = fn(*halves(words, select))
        return (saturate(x, 16) if saturate and mod.clamp else x) & H

    def run(_m: Mode, *w: int) -> int:
        return one(w, mod.op_sel) | one(w, mod.op_sel_hi) << 16

    return Op("b32", ("pi16",) * n, run)


def packed_float(name: str, mod: Modifiers) -> Op:
    n, fn = PACKED_FLOAT[name]

    def one(m: Mode, words: Sequence[int], select: int, negate: int) -> int:
        x = [h ^ (negate >> i & 1) << 15 for i, h in enumerate(halves(words, select))]
        r = fn(F16, m, *x)
        return fo.clamp01(F16, m, r) if mod.clamp else r

    def run(m: Mode, *w: int) -> int:
        return one(m, w, mod.op_sel, mod.neg_lo) | one(m, w, mod.op_sel_hi, mod.neg_hi) << 16

    return Op("b32", ("pf16",) * n, run)


# ---- packed f32 ---------------------------------------------------------------------------------

PACKED_F32: dict[str, tuple[int, Callable[..., int]]] = {
    "v_pk_fma_f32": (3, fo.fma),
    "v_pk_mul_f32": (2, fo.mul),
    "v_pk_add_f32": (2, fo.add),
}


def packed_f32(name: str, mod: Modifiers) -> Op:
    n, fn = PACKED_F32[name]

    def one(m: Mode, pairs: Sequence[int], select: int, negate: int) -> int:
        x = [
            (p >> 32 if select >> i & 1 else p & 0xFFFFFFFF) ^ (negate >> i & 1) << 31
            for i, p in enumerate(pairs)
        ]
        r = fn(F32, m, *x)
        return fo.clamp01(F32, m, r) if mod.clamp else r

    def run(m: Mode, *p: int) -> int:
        return one(m, p, mod.op_sel, mod.neg_lo) | one(m, p, mod.op_sel_hi, mod.neg_hi) << 32

    return Op("b64", ("pf32",) * n, run)


def pk_mov(mod: Modifiers) -> Op:
    def run(_m: Mode, a: int, b: int) -> int:
        lo = a >> 32 if mod.op_sel & 1 else a & 0xFFFFFFFF
        return lo | (b >> 32 if mod.op_sel & 2 else b & 0xFFFFFFFF) << 32

    return Op("b64", ("b64", "b64"), run)


# ---- mixed FMA and dot products -----------------------------------------------------------------


def fma_mix(result: str, mod: Modifiers, absolute: int, negate: int) -> Op:
    """op_sel_hi: the source is f16; op_sel: its upper half; result "f32", "lo" or "hi"."""

    def run(m: Mode, *w: int) -> int:
        x = []
        for i in range(3):
            v = w[i]
            if mod.op_sel_hi >> i & 1:
                v = fo.convert(F16, F32, m, v >> 16 if mod.op_sel >> i & 1 else v & H)
            v = v & 0x7FFFFFFF if absolute >> i & 1 else v
            x.append(v ^ (negate >> i & 1) << 31)
        r = fo.fma(F32, m, *x)
        if result == "f32":
            return fo.clamp01(F32, m, r) if mod.clamp else r
        half = fo.convert(F32, F16, m, r)
        half = fo.clamp01(F16, m, half) if mod.clamp else half
        return w[3] & 0xFFFF0000 | half if result == "lo" else w[3] & H | half << 16

    return Op("f32" if result == "f32" else "b32", ("mix",) * 3, run, acc=result != "f32")


def integer_dot(bits: int, *, is_signed: bool, clamp: bool) -> Callable[..., int]:
    def run(_m: Mode, a: int, b: int, c: int) -> int:
        mask = (1 << bits) - 1
        x, y = fields(a, bits), fields(b, bits)
        if not is_signed:
            x, y = [v & mask for v in x], [v & mask for v in y]
        total = sum(p * q for p, q in zip(x, y, strict=True))
        total += signed(c, 32) if is_signed else c
        if clamp:
            total = clamp_s(total, 32) if is_signed else clamp_u(total, 32)
        return low(total)

    return run


DOTS = {
    "v_dot2_i32_i16": (16, True),
    "v_dot2_u32_u16": (16, False),
    "v_dot4_i32_i8": (8, True),
    "v_dot4_u32_u8": (8, False),
    "v_dot8_i32_i4": (4, True),
    "v_dot8_u32_u4": (4, False),
}
MIXES = {"v_fma_mix_f32": "f32", "v_fma_mixlo_f16": "lo", "v_fma_mixhi_f16": "hi"}
OTHER_ROWS = {"v_pk_mov_b32", "v_dot2_f32_f16", "v_accvgpr_read_b32", "v_accvgpr_write_b32"}


def test_every_row_has_a_vector() -> None:
    tested = {*PACKED_INT, *PACKED_FLOAT, *PACKED_F32, *DOTS, *MIXES, *OTHER_ROWS}
    names = {n for n in row_names(VOP3P) if "mfma" not in n and "smfmac" not in n}
    assert names == tested


def variants(name: str, n: int, *, negate: bool, clamp: bool, count: int = 6) -> list[Modifiers]:
    rng = random.Random(name)
    full = (1 << n) - 1
    plain = Modifiers(0, full)
    return [plain, *(random_modifiers(rng, n, negate=negate, clamp=clamp) for _ in range(count))]


def operands(n: int, pairs: bool = False) -> str:
    regs = ("v[0:1]", "v[4:5]", "v[8:9]") if pairs else ("v0", "v4", "v8")
    return ", ".join(("v[16:17]" if pairs else "v16", *regs[:n]))


def check(text: str, op: Op, modes: Sequence[int] = BOTH_MODES[:1], count: int = 128) -> None:
    words = assemble_each([text])[text]
    assert words is not None, text
    check_forms(text, op, [(text, words)], modes, count)


@pytest.mark.parametrize("name", PACKED_INT)
def test_packed_integers(name: str) -> None:
    n, _, saturate = PACKED_INT[name]
    for mod in variants(name, n, negate=False, clamp=saturate is not None):
        check(f"{name} {operands(n)}{mod.text(n, negate=False)}", packed_int(name, mod))


@pytest.mark.parametrize("name", PACKED_FLOAT)
def test_packed_f16(name: str) -> None:
    n = PACKED_FLOAT[name][0]
    for mod in variants(name, n, negate=True, clamp=True):
        text = f"{name} {operands(n)}{mod.text(n, negate=True)}"
        check(text, packed_float(name, mod), BOTH_MODES)


@pytest.mark.parametrize("name", PACKED_F32)
def test_packed_f32(name: str) -> None:
    n = PACKED_F32[name][0]
    for mod in variants(name, n, negate=True, clamp=True):
        text = f"{name} {operands(n, True)}{mod.text(n, negate=True)}"
        check(text, packed_f32(name, mod), BOTH_MODES)


def test_packed_f32_in_place_with_crossed_halves() -> None:
    """Both halves are read before either is written."""
    m = Machine(seed=1)
    a, b = m.v[0].copy(), m.v[1].copy()
    m.run("v_pk_add_f32 v[0:1], v[0:1], 0 op_sel:[1,0] op_sel_hi:[0,0]")
    mode = Mode(m.mode)
    assert m.v[0].tolist() == [fo.add(F32, mode, int(x), 0) for x in b]
    assert m.v[1].tolist() == [fo.add(F32, mode, int(x), 0) for x in a]


def test_pk_mov() -> None:
    for op_sel in range(4):
        text = f"v_pk_mov_b32 v[16:17], v[0:1], v[4:5] op_sel:[{op_sel & 1},{op_sel >> 1}]"
        check(text, pk_mov(Modifiers(op_sel, 0)))


@pytest.mark.parametrize("name", MIXES)
def test_fma_mix(name: str) -> None:
    rng = random.Random(name)
    for _ in range(8):
        mod = random_modifiers(rng, 3, negate=False, clamp=True)
        absolute, negate = rng.getrandbits(3), rng.getrandbits(3)
        source = []
        for i, reg in enumerate(("v0", "v4", "v8")):
            bars = f"|{reg}|" if absolute >> i & 1 else reg
            source.append(f"-{bars}" if negate >> i & 1 else bars)
        text = f"{name} v16, {', '.join(source)}{mod.text(3, negate=False)}"
        check(text, fma_mix(MIXES[name], mod, absolute, negate), BOTH_MODES)


def test_dot2_f32_f16() -> None:
    for neg_lo, neg_hi, clamp in ((0, 0, 0), (0, 0, 1), (5, 2, 0), (2, 1, 1), (7, 3, 0)):

        def run(m: Mode, a: int, b: int, c: int, flip: tuple[int, int, int]) -> int:
            lo, hi, clamp = flip
            a ^= (lo & 1) << 15 | (hi & 1) << 31
            b ^= (lo >> 1 & 1) << 15 | (hi >> 1 & 1) << 31
            r = dot2_f16(m, a, b, c ^ (lo >> 2) << 31)
            return fo.clamp01(F32, m, r) if clamp else r

        mod = Modifiers(0, 7, neg_lo, neg_hi, bool(clamp))
        text = f"v_dot2_f32_f16 {operands(3)}{mod.text(3, negate=True)}"
        text = text.replace(" op_sel:[0,0,0] op_sel_hi:[1,1,1]", "")
        fn = functools.partial(run, flip=(neg_lo, neg_hi, clamp))
        check(text, Op("f32", ("pf16", "pf16", "f32"), fn), BOTH_MODES)


@pytest.mark.parametrize("clamp", [False, True])
@pytest.mark.parametrize("name", DOTS)
def test_integer_dots(name: str, clamp: bool) -> None:
    bits, is_signed = DOTS[name]
    op = Op("u32", ("u32",) * 3, integer_dot(bits, is_signed=is_signed, clamp=clamp))
    check(f"{name} {operands(3)}{' clamp' if clamp else ''}", op, count=256)


def test_constants_of_packed_operands() -> None:
    """f16: the constant is in the low half; integers are 32 bits wide; packed i16 sees f32 bits."""
    m = Machine(seed=2)
    m.v[0] = 0
    m.run(
        "v_pk_add_f16 v1, v0, 1.0\nv_pk_add_f16 v2, v0, 1.0 op_sel_hi:[1,0]\n"
        "v_pk_add_u16 v3, v0, -2\nv_pk_add_u16 v4, v0, 5\nv_pk_add_u16 v5, v0, 5 op_sel_hi:[1,0]"
    )
    want = (0x00003C00, 0x3C003C00, 0xFFFFFFFE, 0x00000005, 0x00050005)
    assert tuple(int(m.v[i, 9]) for i in range(1, 6)) == want


def test_accvgpr_moves_honour_exec() -> None:
    m = Machine(seed=3)
    m.exec = HOLES
    v, a = m.v[:16].copy(), m.a[:16].copy()
    m.s[4] = 0x12345678
    m.run(
        "v_accvgpr_read_b32 v3, a5\nv_accvgpr_write_b32 a6, v7\nv_accvgpr_write_b32 a8, s4\n"
        "v_accvgpr_write_b32 a9, -1"
    )
    for got, want, old in (
        (m.v[3], a[5], v[3]),
        (m.a[6], v[7], a[6]),
        (m.a[8], 0x12345678, a[8]),
        (m.a[9], 0xFFFFFFFF, a[9]),
    ):
        assert (got == np.where(m.lanes, want, old)).all()
