"""Test vectors for lane-wise instructions: operand values, assembly, one run, the comparison.

A table maps an instruction's name to an `Op`: the types of its operands and a Python function of
one lane's operands, given as bit patterns. `check_forms` runs every encoding of the instruction on
interesting and random values, under several EXEC masks, and compares the whole register file.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tests.support.isa.float_oracle import BF16, F16, F32, F64, Fmt, Mode
from tests.support.isa.machine import (
    ALL_LANES,
    DEFAULT_MODE,
    LANES,
    VCC,
    Machine,
    mask_lanes,
)
from tests.support.vdev_library import DEFAULT_CPU

FLOATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}
# Two of a format in a dword, or in two.
PAIRS = {"pf16": "f16", "pbf16": "bf16", "pf32": "f32"}
WIDTHS = {
    t: int(t[1:]) for t in ("f16", "f32", "f64", "u16", "i16", "u32", "i32", "u64", "i64", "b32")
} | {"b64": 64, "bf16": 16, "pf16": 32, "pbf16": 32, "pi16": 32, "pf32": 64, "mix": 32}

# MODE as hand-written kernels often set it: f32 denormals flushed, f16 and f64 kept, no IEEE.
FLUSH_F32_MODE = 0x0C0
BOTH_MODES = (DEFAULT_MODE, FLUSH_F32_MODE)

HOLES = 0x80F0_00FF_5A5A_0F01
EXECS = (ALL_LANES, ALL_LANES, HOLES, 0)


@dataclass(frozen=True)
class Op:
    """One instruction for one lane.

    Attributes
    ----------
    dst : str
        Type of the result; "mask" for compares.
    srcs : tuple of str
        Types of the sources. Values reach `fn` as unsigned bit patterns of these widths, signed
        types (i16, i32, i64) as signed numbers.
    fn : callable
        ``fn(mode, *sources[, old destination][, carry in])`` -> bits, or (bits, carry out).
    acc : bool
        The destination is read.
    carry_in, carry_out : bool
    keeps_high : bool
        A 16-bit result leaves the upper half of the destination alone; otherwise it becomes zero.
    ulp : int
        Accepted distance of float results, in units of the last place.
    """

    dst: str
    srcs: tuple[str, ...]
    fn: Callable[..., object] = field(compare=False)
    acc: bool = False
    carry_in: bool = False
    carry_out: bool = False
    keeps_high: bool = False
    ulp: int = 0


# ---- operand values -----------------------------------------------------------------------------


def float_specials(fmt: Fmt) -> list[int]:
    """Zeros, denormals, limits, halves, integers at the edges, infinities, NaNs of both kinds."""
    one, inf, top = fmt.one, fmt.inf, 1 << fmt.man
    positive = [
        0, 1, 3, top >> 1, top - 1, top, top + 1, top * 3, one - top, one - top + 1, one - 1, one,
        one + 1, one + (top >> 1), one + top, one + top + (top >> 1), one + 2 * top,
        one + fmt.man * top, one + (fmt.man - 1) * top + 1, one + (fmt.man + 1) * top + 1,
        one - (fmt.man + 1) * top, inf - top, inf - 1, inf,
        inf | 1, inf | top >> 2 | 5, inf | fmt.quiet, inf | fmt.quiet | 0x35,
    ]  # fmt: skip
    if fmt is not F16:
        positive += [one + n * top + k for n in (7, 8, 15, 16, 30, 31, 32) for k in (-1, 0)]
    return positive + [x | fmt.sign for x in positive]


def int_specials(width: int) -> list[int]:
    ones = (1 << width) - 1
    values = [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 0x7F, 0x80, 0xFF, 0x100]
    values += [1 << (width - 1), (1 << (width - 1)) - 1, (1 << (width - 1)) + 1, ones, ones - 1]
    values += [0x7FFFFF, 0x800000, 0xFFFFFF, 0x1000000, 0x55555555, 0x80008000, 0x7FFF8000]
    return [v & ones for v in values]


@functools.cache
def specials(kind: str) -> tuple[int, ...]:
    if kind in FLOATS:
        return tuple(float_specials(FLOATS[kind]))
    if kind in ("pf16", "pbf16"):
        halves = float_specials(FLOATS[PAIRS[kind]])
        rng = random.Random(5)
        return tuple(h | rng.choice(halves) << 16 for h in halves)
    if kind == "pf32":
        rng = random.Random(6)
        return tuple(w | rng.choice(specials("f32")) << 32 for w in specials("f32"))
    if kind == "mix":  # an f32, or two f16
        return specials("pf16") + specials("f32")
    return tuple(int_specials(WIDTHS[kind]))


def random_value(kind: str, rng: random.Random) -> int:
    """Uniform bits, or for floats often an exponent near 1.0, so that sums interact."""
    if kind in PAIRS or kind == "mix":
        half = PAIRS.get(kind, "f16")
        lo, hi = random_value(half, rng), random_value(half, rng)
        return lo | hi << WIDTHS[half]
    width = WIDTHS[kind]
    bits = rng.getrandbits(width)
    fmt = FLOATS.get(kind)
    if fmt is not None and rng.random() < 0.7:
        field_ = fmt.bias + rng.randint(-fmt.man // 2, fmt.man // 2)
        if rng.random() < 0.5:  # few mantissa bits: ties
            bits &= ~((1 << (fmt.man // 2)) - 1)
        bits = (bits & (fmt.sign | (1 << fmt.man) - 1)) | field_ << fmt.man
    return bits


@functools.cache
def operand_sets(kinds: tuple[str, ...], count: int, seed: int = 0) -> tuple[tuple[int, ...], ...]:
    """`count` (rounded up to whole waves) tuples of operands: specials, pairs of them, random."""
    rng = random.Random(f"{kinds}{seed}")
    pools = [specials(k) for k in kinds]
    sets: list[tuple[int, ...]] = []
    count = -(-count // LANES) * LANES
    if len(kinds) == 1:
        sets += [(x,) for x in pools[0]]
    elif len(kinds) == 2:
        pairs = list(itertools.product(*pools))
        sets += rng.sample(pairs, min(len(pairs), count * 2 // 3))
    while len(sets) < count:
        pick = rng.random()
        sets.append(
            tuple(
                rng.choice(p) if rng.random() < pick else random_value(k, rng)
                for k, p in zip(kinds, pools, strict=True)
            )
        )
    return tuple(sets[:count])


# ---- running ------------------------------------------------------------------------------------

# Register assignment: sources at v0, v4, v8, an old destination at v16.
SOURCE_REG = (0, 4, 8)  # zip stops at the last source
DST_REG = 16
CARRY_IN, CARRY_OUT = 24, 20  # s[24:25], s[20:21]


def dwords(kind: str) -> int:
    return max(1, WIDTHS.get(kind, 32) // 32)


def vreg(index: int, kind: str) -> str:
    n = dwords(kind)
    return f"v{index}" if n == 1 else f"v[{index}:{index + n - 1}]"


def text_of(name: str, op: Op, form: str) -> str:
    """Assembly of the instruction; form "" (VOP3-only), "_e32", "_e64", "_sdwa" or "_dpp"."""
    short = form in ("_e32", "_sdwa", "_dpp")
    operands = []
    if op.dst == "mask":
        operands.append("vcc" if short else f"s[{CARRY_OUT}:{CARRY_OUT + 1}]")
    else:
        operands.append(vreg(DST_REG, op.dst))
        if op.carry_out:
            operands.append("vcc" if short else f"s[{CARRY_OUT}:{CARRY_OUT + 1}]")
    operands += [vreg(SOURCE_REG[i], k) for i, k in enumerate(op.srcs)]
    if op.carry_in:
        operands.append("vcc" if short else f"s[{CARRY_IN}:{CARRY_IN + 1}]")
    return f"{name}{form} " + ", ".join(operands)


def as_argument(kind: str, bits: int) -> int:
    if kind[0] == "i" and bits >> (WIDTHS[kind] - 1):
        return bits - (1 << WIDTHS[kind])
    return bits


Bits = npt.NDArray[np.uint64]


def put_values(v: npt.NDArray[np.uint32], reg: int, kind: str, bits: Bits) -> None:
    """Write a value per lane; a 16-bit one leaves the upper half as it is."""
    if WIDTHS[kind] == 16:
        v[reg] = (v[reg] & 0xFFFF0000) | bits.astype(np.uint32)
        return
    v[reg] = bits.astype(np.uint32)
    if dwords(kind) == 2:
        v[reg + 1] = (bits >> np.uint64(32)).astype(np.uint32)


def as_bits(values: Iterable[int]) -> Bits:
    return np.fromiter(values, np.uint64)


@functools.cache
def shared_machine(cpu: str = DEFAULT_CPU) -> Machine:
    """One machine for all vectors: its random contents are the garbage around the operands."""
    return Machine(seed=2024, cpu=cpu)


def near(fmt: Fmt, got: int, want: int, ulp: int) -> bool:
    """Equal, or both finite and of one sign, at most `ulp` codes apart."""
    if got == want:
        return True
    if fmt.is_nan(want) or fmt.is_nan(got) or (got ^ want) & fmt.sign:
        return False
    return abs(got - want) <= ulp


@dataclass
class Vector:
    """One wave's worth of lanes of one instruction."""

    op: Op
    inputs: Sequence[tuple[int, ...]]
    exec: int = ALL_LANES
    mode: int = DEFAULT_MODE
    carry: int = 0x0F1E_2D3C_4B5A_6978

    def load(self, m: Machine, short: bool) -> None:
        m.exec, m.mode, m.scc = self.exec, self.mode, 0
        columns = list(zip(*self.inputs, strict=True))
        for reg, kind, column in zip(SOURCE_REG, self.op.srcs, columns, strict=False):
            put_values(m.v, reg, kind, as_bits(column))
        if self.op.acc:
            put_values(m.v, DST_REG, self.op.dst, as_bits(columns[-1]))
        if self.op.carry_in:
            m.set_pair(VCC if short else CARRY_IN, self.carry)

    def results(self) -> tuple[list[int], int]:
        """Bits of every active lane (0 of others) and the mask of carries or compares."""
        op, mode = self.op, Mode(self.mode)
        bits, mask = [0] * LANES, 0
        kinds = (*op.srcs, op.dst) if op.acc else op.srcs
        for lane, values in enumerate(self.inputs):
            if not self.exec >> lane & 1:
                continue
            args = [as_argument(k, b) for k, b in zip(kinds, values, strict=True)]
            if op.carry_in:
                args.append(self.carry >> lane & 1)
            r = op.fn(mode, *args)
            if op.dst == "mask":
                mask |= bool(r) << lane
            elif op.carry_out:
                assert isinstance(r, tuple)
                bits[lane] = r[0]
                mask |= bool(r[1]) << lane
            else:
                assert isinstance(r, int)
                bits[lane] = r
        return bits, mask


@dataclass
class Outcome:
    """Registers as they must be after a run."""

    v: npt.NDArray[np.uint32]
    s: npt.NDArray[np.uint32]


def expect(vector: Vector, m: Machine, bits: Sequence[int], mask: int, mask_reg: int) -> Outcome:
    """The registers of `m`, loaded but not run, with the results put in place."""
    op, want = vector.op, Outcome(m.v.copy(), m.s.copy())
    if op.dst != "mask":
        width = WIDTHS[op.dst]
        active = mask_lanes(vector.exec)
        put_values(want.v, DST_REG, op.dst, as_bits(x & ((1 << width) - 1) for x in bits))
        if width == 16 and not op.keeps_high:
            want.v[DST_REG] &= 0xFFFF
        for reg in range(DST_REG, DST_REG + dwords(op.dst)):
            want.v[reg] = np.where(active, want.v[reg], m.v[reg])
    if op.dst == "mask" or op.carry_out:
        want.s[mask_reg], want.s[mask_reg + 1] = mask & 0xFFFFFFFF, mask >> 32
    return want


def destination(v: npt.NDArray[np.uint32], kind: str, lane: int) -> int:
    bits = sum(int(v[DST_REG + d, lane]) << 32 * d for d in range(dwords(kind)))
    return bits & ((1 << WIDTHS[kind]) - 1)


def within_tolerance(op: Op, got: npt.NDArray[np.uint32], want: Outcome, lane: int) -> bool:
    fmt = FLOATS.get(op.dst)
    if fmt is None or op.ulp == 0:
        return False
    same_rest = fmt is not F16 or got[DST_REG, lane] >> 16 == want.v[DST_REG, lane] >> 16
    x, y = destination(got, op.dst, lane), destination(want.v, op.dst, lane)
    return bool(same_rest) and near(fmt, x, y, op.ulp)


def compare(what: str, vector: Vector, m: Machine, want: Outcome) -> None:
    """Assert that the registers of `m` are as expected, results within their tolerance."""
    place = f"{what}; mode {vector.mode:#x} exec {vector.exec:#x}"
    if not np.array_equal(m.v, want.v):
        for reg, lane in np.argwhere(m.v != want.v):
            result = DST_REG <= reg < DST_REG + dwords(vector.op.dst)
            if result and within_tolerance(vector.op, m.v, want, lane):
                continue
            inputs = ", ".join(f"{x:#x}" for x in vector.inputs[lane])
            raise AssertionError(
                f"{place}: lane {lane} v{reg}: got {m.v[reg, lane]:#x}, want "
                f"{want.v[reg, lane]:#x} of ({inputs})"
            )
    if not np.array_equal(m.s, want.s):
        (reg,) = np.argwhere(m.s != want.s)[0]
        raise AssertionError(f"{place}: s{reg}: got {m.s[reg]:#x}, want {want.s[reg]:#x}")
    assert m.mode == vector.mode, f"{place}: MODE changed"


def check_forms(
    name: str,
    op: Op,
    codes: Sequence[tuple[str, tuple[int, ...]]],
    modes: Sequence[int] = (DEFAULT_MODE,),
    count: int = 256,
    cpu: str = DEFAULT_CPU,
) -> None:
    """Run all encodings (text, dwords) of an instruction on `count` operand sets per mode."""
    kinds = (*op.srcs, op.dst) if op.acc else op.srcs
    m = shared_machine(cpu)
    for mode in modes:
        sets = operand_sets(kinds, count, mode)
        for n, start in enumerate(range(0, len(sets), LANES)):
            vector = Vector(op, sets[start : start + LANES], EXECS[n % len(EXECS)], mode)
            bits, mask = vector.results()
            for text, words in codes:
                short = "_e32" in text
                vector.load(m, short)
                want = expect(vector, m, bits, mask, VCC if short else CARRY_OUT)
                m.run(words)
                compare(text, vector, m, want)
