"""Operand and result modifiers of vector instructions: neg, abs, op_sel, DPP, SDWA, omod, clamp."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from tests.support.isa import float_oracle as fo
from tests.support.isa.float_oracle import Mode
from tests.support.isa.machine import ALL_LANES, LANES, VCC, Machine
from tests.support.isa.vectors import (
    CARRY_IN,
    CARRY_OUT,
    DST_REG,
    FLOATS,
    SOURCE_REG,
    WIDTHS,
    Op,
    Outcome,
    Vector,
    as_argument,
    as_bits,
    compare,
    dwords,
    put_values,
    random_value,
    specials,
)

SELECTS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")
DWORD = 6
SCALAR_REG = 12


@dataclass(frozen=True)
class Dpp:
    """A cross-lane pattern: its text, and the lane that each lane reads (None: there is none)."""

    text: str
    source: tuple[int | None, ...]
    row_mask: int = 0xF
    bank_mask: int = 0xF
    bound_ctrl: bool = False

    def suffix(self) -> str:
        bound = " bound_ctrl:0" if self.bound_ctrl else ""
        return f" {self.text} row_mask:{self.row_mask:#x} bank_mask:{self.bank_mask:#x}{bound}"

    def writes(self, lane: int) -> bool:
        """Whether the masks let the lane be written."""
        return bool(self.row_mask >> lane // 16 & self.bank_mask >> lane // 4 % 4 & 1)


def _in_row(shift: int) -> tuple[int | None, ...]:
    return tuple(
        i + shift if (i + shift) // 16 == i // 16 and i + shift >= 0 else None for i in range(LANES)
    )


def _table() -> dict[str, tuple[int | None, ...]]:
    lanes = range(LANES)
    table: dict[str, tuple[int | None, ...]] = {}
    for perm in ([0, 1, 2, 3], [3, 2, 1, 0], [1, 1, 3, 0], [2, 2, 2, 2], [0, 0, 1, 1]):
        text = "quad_perm:[" + ",".join(map(str, perm)) + "]"
        table[text] = tuple(i - i % 4 + perm[i % 4] for i in lanes)
    for n in range(1, 16):
        table[f"row_shl:{n}"] = _in_row(n)
        table[f"row_shr:{n}"] = _in_row(-n)
        table[f"row_ror:{n}"] = tuple(i - i % 16 + (i % 16 - n) % 16 for i in lanes)
    table["wave_shl:1"] = tuple(i + 1 if i < 63 else None for i in lanes)
    table["wave_rol:1"] = tuple((i + 1) % 64 for i in lanes)
    table["wave_shr:1"] = tuple(i - 1 if i else None for i in lanes)
    table["wave_ror:1"] = tuple((i - 1) % 64 for i in lanes)
    table["row_mirror"] = tuple(i - i % 16 + 15 - i % 16 for i in lanes)
    table["row_half_mirror"] = tuple(i - i % 8 + 7 - i % 8 for i in lanes)
    # Lane 15 of every row goes to the whole next row; lane 31 to rows 2 and 3.
    table["row_bcast:15"] = tuple(i - i % 16 - 1 if i >= 16 else None for i in lanes)
    table["row_bcast:31"] = tuple(31 if i >= 32 else None for i in lanes)
    for n in range(16):
        table[f"row_newbcast:{n}"] = tuple(i - i % 16 + n for i in lanes)
    return table


DPP_PATTERNS = _table()


@dataclass(frozen=True)
class Modifiers:
    """Everything that can be said of one instruction beyond its operands; bit i: source i."""

    neg: int = 0
    abs: int = 0
    omod: int = 0
    clamp: bool = False
    op_sel: int = 0
    src_sel: tuple[int, int] = (DWORD, DWORD)
    sext: int = 0
    dst_sel: int = DWORD
    dst_unused: int = 0
    dpp: Dpp | None = None
    scalar: tuple[int, int] | None = None  # (source, its value in s[12:13])

    def sources(self, names: list[str]) -> list[str]:
        out = []
        for i, name in enumerate(names):
            bars = f"|{name}|" if self.abs >> i & 1 else name
            text = f"-{bars}" if self.neg >> i & 1 else bars
            out.append(f"sext({text})" if self.sext >> i & 1 else text)
        return out

    def result(self) -> str:
        return (" clamp" if self.clamp else "") + ("", " mul:2", " mul:4", " div:2")[self.omod]


def select(word: int, sel: int, sext: bool) -> int:
    """An SDWA source: a byte, a half or all of a dword."""
    width = 8 if sel < 4 else 16 if sel < DWORD else 32
    shift = 8 * sel if sel < 4 else 16 * (sel - 4) if sel < DWORD else 0
    x = word >> shift & ((1 << width) - 1)
    return (x - (1 << width) & 0xFFFFFFFF) if sext and x >> (width - 1) else x


def deposit(old: int, value: int, sel: int, unused: int) -> int:
    """The dword that an SDWA result makes of the old destination."""
    if sel == DWORD:
        return value & 0xFFFFFFFF
    width = 8 if sel < 4 else 16
    shift = 8 * sel if sel < 4 else 16 * (sel - 4)
    field = ((1 << width) - 1) << shift
    placed = value << shift & field
    if UNUSED[unused] == "UNUSED_PRESERVE":
        return old & ~field | placed
    if UNUSED[unused] == "UNUSED_SEXT" and value >> (width - 1) & 1:
        return placed | -1 << (shift + width) & 0xFFFFFFFF
    return placed


def source_bits(op: Op, i: int, raw: int, mod: Modifiers) -> int:
    """What the operation sees of a source's registers."""
    kind = op.srcs[i]
    if i < 2 and (mod.src_sel[i] != DWORD or mod.sext >> i & 1):
        raw = select(raw, mod.src_sel[i], bool(mod.sext >> i & 1))
    elif WIDTHS[kind] == 16 and mod.op_sel >> i & 1:
        raw >>= 16
    raw &= (1 << WIDTHS[kind]) - 1
    fmt = FLOATS.get(kind)
    if fmt is not None:
        raw = raw & ~fmt.sign if mod.abs >> i & 1 else raw
        raw = raw ^ fmt.sign if mod.neg >> i & 1 else raw
    return raw


def result_bits(op: Op, m: Mode, bits: int, mod: Modifiers) -> int:
    fmt = FLOATS.get(op.dst)
    if fmt is not None:
        bits = fo.omod(fmt, m, bits, mod.omod)
        bits = fo.clamp01(fmt, m, bits) if mod.clamp else bits
    return bits & ((1 << WIDTHS[op.dst]) - 1)


def raw_values(op: Op, rng: random.Random) -> list[list[int]]:
    """Register contents per lane and source (and old destination): all 32 bits of a half matter."""

    def one(kind: str) -> int:
        if rng.random() < 0.5:
            return rng.choice(specials(kind))
        return random_value(kind, rng)

    def raw(kind: str) -> int:
        return one(kind) | one(kind) << 16 if WIDTHS[kind] == 16 else one(kind)

    return [
        [raw(k) for k in (*op.srcs, op.dst if op.dst != "mask" else "b32")] for _ in range(LANES)
    ]


def check_modified(
    text: str, words: tuple[int, ...], op: Op, mod: Modifiers, m: Machine, exec_mask: int, mode: int
) -> None:
    """Run one instruction on random and special values of all lanes, and compare."""
    rng = random.Random(text)
    raws = raw_values(op, rng)
    short = any(f in text for f in ("_sdwa", "_dpp", "_e32"))
    vector = Vector(op, [tuple(r) for r in raws], exec_mask, mode)
    m.exec, m.mode, m.scc = exec_mask, mode, 0
    if mod.scalar is not None:
        i, value = mod.scalar
        m.set_pair(SCALAR_REG, value)
        for row in raws:
            row[i] = value
    for i, kind in enumerate(op.srcs):
        wide = "b64" if dwords(kind) == 2 else "b32"
        put_values(m.v, SOURCE_REG[i], wide, as_bits(r[i] for r in raws))
    if op.dst != "mask":
        wide = "b64" if dwords(op.dst) == 2 else "b32"
        put_values(m.v, DST_REG, wide, as_bits(r[-1] for r in raws))
    if op.carry_in:
        m.set_pair(VCC if short else CARRY_IN, vector.carry)
    want = Outcome(m.v.copy(), m.s.copy())
    mask = 0
    for lane in range(LANES):
        if not exec_mask >> lane & 1:
            continue
        inputs = list(raws[lane])
        if mod.dpp is not None:
            if not mod.dpp.writes(lane):
                continue
            source = mod.dpp.source[lane]
            if source is None or not exec_mask >> source & 1:
                if not mod.dpp.bound_ctrl:
                    continue
                inputs[0] = 0
            else:
                inputs[0] = raws[source][0]
        args = [as_argument(k, source_bits(op, i, inputs[i], mod)) for i, k in enumerate(op.srcs)]
        old = inputs[-1]
        if op.acc:
            args.append(as_argument(op.dst, old & ((1 << WIDTHS[op.dst]) - 1)))
        if op.carry_in:
            args.append(vector.carry >> lane & 1)
        r = op.fn(Mode(mode), *args)
        if op.dst == "mask":
            mask |= bool(r) << lane
            continue
        if op.carry_out:
            assert isinstance(r, tuple)
            mask |= bool(r[1]) << lane
            r = r[0]
        assert isinstance(r, int)
        write_result(want.v, lane, op, result_bits(op, Mode(mode), r, mod), old, mod)
    if op.dst == "mask" or op.carry_out:
        pair = CARRY_OUT if f"s[{CARRY_OUT}:" in text else VCC
        want.s[pair : pair + 2] = mask & 0xFFFFFFFF, mask >> 32
        if text.startswith("v_cmpx"):
            want.s[126:128] = want.s[pair : pair + 2]
    m.run(words)
    compare(text, vector, m, want)


def write_result(v: np.ndarray, lane: int, op: Op, bits: int, old: int, mod: Modifiers) -> None:
    if dwords(op.dst) == 2:
        v[DST_REG, lane], v[DST_REG + 1, lane] = bits & 0xFFFFFFFF, bits >> 32
        return
    if WIDTHS[op.dst] == 16 and mod.dst_sel == DWORD and mod.op_sel & 8:
        bits = old & 0xFFFF | bits << 16
    elif WIDTHS[op.dst] == 16 and mod.dst_sel == DWORD and op.keeps_high:
        bits = old & 0xFFFF0000 | bits
    v[DST_REG, lane] = deposit(old, bits, mod.dst_sel, mod.dst_unused)


EXEC_CHOICES = (ALL_LANES, 0x80F0_00FF_5A5A_0F01)
