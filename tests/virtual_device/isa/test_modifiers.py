"""Modifiers on every row that takes them: neg, abs, omod, clamp, op_sel, SDWA, DPP."""

from __future__ import annotations

import random
from collections.abc import Callable
from zlib import crc32

import numpy as np
import pytest

from tests.support.isa import float_oracle as fo
from tests.support.isa.assembly import assemble_each
from tests.support.isa.machine import ALL_LANES, DEFAULT_MODE, LANES, Machine
from tests.support.isa.modifier_oracle import (
    DPP_PATTERNS,
    EXEC_CHOICES,
    SELECTS,
    UNUSED,
    Dpp,
    Modifiers,
    check_modified,
)
from tests.support.isa.table_vop1 import VOP1_OPS
from tests.support.isa.table_vop2 import VOP2_OPS
from tests.support.isa.table_vop3 import VOP3_OPS
from tests.support.isa.table_vopc import VOPC_OPS
from tests.support.isa.vectors import (
    CARRY_IN,
    CARRY_OUT,
    DST_REG,
    FLOATS,
    FLUSH_F32_MODE,
    HOLES,
    SOURCE_REG,
    WIDTHS,
    Op,
    shared_machine,
    specials,
    vreg,
)

# IEEE=0 and f32, f16 and f64 denormal results flushed: where omod has an effect.
OMOD_MODE = 0x150
MODES = (DEFAULT_MODE, FLUSH_F32_MODE, OMOD_MODE)
ALL_OPS = {**VOP1_OPS, **VOP2_OPS, **VOPC_OPS}

# The assembler encodes it; what a select would mean for packed halves is not documented.
NO_SDWA = {"v_pk_fmac_f16"}

Case = tuple[str, str, Op, Modifiers]


def text_of(name: str, form: str, op: Op, mod: Modifiers, tail: str) -> str:
    # The short forms have VCC for masks; only SDWA compares may name an SGPR pair.
    short = form in ("_dpp", "_sdwa") and op.dst != "mask"
    operands = [] if op.dst == "mask" else [vreg(DST_REG, op.dst)]
    if op.dst == "mask" or op.carry_out:
        operands.append("vcc" if short else f"s[{CARRY_OUT}:{CARRY_OUT + 1}]")
    operands += mod.sources([vreg(SOURCE_REG[i], k) for i, k in enumerate(op.srcs)])
    if op.carry_in:
        operands.append("vcc" if short else f"s[{CARRY_IN}:{CARRY_IN + 1}]")
    return f"{name}{form} {', '.join(operands)}{mod.result()}{tail}"


def float_bits(op: Op, rng: random.Random) -> tuple[int, int]:
    """Random neg and abs of the float sources."""
    floats = sum(1 << i for i, k in enumerate(op.srcs) if k in FLOATS)
    return rng.getrandbits(3) & floats, rng.getrandbits(3) & floats


def vop3_cases() -> list[Case]:
    cases = []
    forms = {**{n: "_e64" for n in ALL_OPS}, **dict.fromkeys(VOP3_OPS, "")}
    for name, op in {**ALL_OPS, **VOP3_OPS}.items():
        rng = random.Random(name)
        for k in range(3):
            neg, absolute = float_bits(op, rng)
            result = op.dst in FLOATS
            mod = Modifiers(
                neg, absolute, rng.randrange(4) if result and k else 0, result and k != 1
            )
            if mod != Modifiers():
                cases.append((text_of(name, forms[name], op, mod, ""), name, op, mod))
    return cases


def scalar_cases() -> list[Case]:
    """Each source in turn from an SGPR, with a value that is special to some instruction."""
    cases = []
    forms = {**{n: "_e64" for n in ALL_OPS}, **dict.fromkeys(VOP3_OPS, "")}
    for name, op in {**ALL_OPS, **VOP3_OPS}.items():
        rng = random.Random(name)
        for i, kind in enumerate(op.srcs):
            values = [rng.choice(specials(kind))]
            if name == "v_perm_b32" and i == 2:
                values += [0x07060302, 0x01000504, 0x0C0C0704, 0x0D080B09, 0x03030303]
            for value in values:
                mod = Modifiers(scalar=(i, value))
                text = text_of(name, forms[name], op, mod, "")
                scalar = "s[12:13]" if WIDTHS[kind] == 64 else "s12"
                source = vreg(SOURCE_REG[i], kind)
                head, _, last = text.rpartition(source)
                text = f"{head}{scalar}{last} ; {value:#x}"
                cases.append((text, name, op, mod))
    return cases


def op_sel_cases() -> list[Case]:
    """Every VOP3 row with 16-bit operands; the assembler knows which ones take op_sel."""
    cases = []
    for name, op in VOP3_OPS.items():
        if all(WIDTHS[k] != 16 for k in (*op.srcs, op.dst)):
            continue
        rng = random.Random(name)
        n = len(op.srcs)
        halves = sum(1 << i for i, k in enumerate(op.srcs) if WIDTHS[k] == 16)
        for _ in range(4):
            to_high = 8 * rng.getrandbits(1) if WIDTHS[op.dst] == 16 else 0
            neg, absolute = float_bits(op, rng)
            mod = Modifiers(neg, absolute, op_sel=rng.getrandbits(3) & halves | to_high)
            bits = [mod.op_sel >> i & 1 for i in range(n)] + [mod.op_sel >> 3]
            tail = f" op_sel:[{','.join(map(str, bits))}]"
            cases.append((text_of(name, "", op, mod, tail), name, op, mod))
    return cases


def sdwa_cases() -> list[Case]:
    cases = []
    for name, op in ALL_OPS.items():
        if name in NO_SDWA:
            continue
        rng = random.Random(name)
        n = len(op.srcs)
        for _ in range(4 if op.dst != "mask" else 2):
            sels = (rng.randrange(7), rng.randrange(7) if n > 1 else 6)
            ints = sum(1 << i for i, k in enumerate(op.srcs) if k not in FLOATS)
            neg, absolute = float_bits(op, rng)
            dst_sel, unused = (6, 0) if op.dst == "mask" else (rng.randrange(7), rng.randrange(3))
            mod = Modifiers(
                neg, absolute, src_sel=sels, sext=rng.getrandbits(2) & ints, dst_sel=dst_sel,
                dst_unused=unused, clamp=op.dst in FLOATS and rng.random() < 0.3,
            )  # fmt: skip
            tail = "" if op.dst == "mask" else f" dst_sel:{SELECTS[dst_sel]}"
            tail += "" if op.dst == "mask" else f" dst_unused:{UNUSED[unused]}"
            tail += "".join(f" src{i}_sel:{SELECTS[s]}" for i, s in enumerate(sels[:n]))
            cases.append((text_of(name, "_sdwa", op, mod, tail), name, op, mod))
    return cases


def dpp_cases() -> list[Case]:
    cases = []
    for name, op in {**VOP1_OPS, **VOP2_OPS}.items():
        rng = random.Random(name)
        for _ in range(3):
            pattern = rng.choice(list(DPP_PATTERNS))
            if "64" in name:
                pattern = f"row_newbcast:{rng.randrange(16)}"
            dpp = Dpp(
                pattern, DPP_PATTERNS[pattern], rng.choice([0xF, 0xA, rng.randrange(16)]),
                rng.choice([0xF, rng.randrange(16)]), rng.random() < 0.5,
            )  # fmt: skip
            neg, absolute = float_bits(op, rng)
            mod = Modifiers(neg, absolute, dpp=dpp)
            cases.append((text_of(name, "_dpp", op, mod, dpp.suffix()), name, op, mod))
    return cases


# Fewer accepted cases than this mean that the texts are no longer what the assembler reads.
FAMILIES: dict[str, tuple[Callable[[], list[Case]], int]] = {
    "vop3": (vop3_cases, 630),
    "scalar": (scalar_cases, 700),
    "op_sel": (op_sel_cases, 84),
    "sdwa": (sdwa_cases, 680),
    "dpp": (dpp_cases, 390),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_row_that_takes_them(family: str) -> None:
    make, least = FAMILIES[family]
    cases = make()
    code = assemble_each(text for text, *_ in cases)
    m = shared_machine()
    failures, accepted = [], 0
    for text, name, op, mod in cases:
        words = code[text]
        if words is None:
            continue
        accepted += 1
        exec_mask = EXEC_CHOICES[crc32(text.encode()) % 2]  # the same whatever rows there are
        uses_mode = any(k in FLOATS for k in (*op.srcs, op.dst))
        for mode in MODES if uses_mode else MODES[:1]:
            try:
                check_modified(text, words, op, mod, m, exec_mask, mode)
            except Exception as error:
                failures.append(f"{name}: {error}")
                break
    assert not failures, f"{len(failures)} failures:\n" + "\n".join(failures[:40])
    assert accepted >= least, accepted


@pytest.mark.parametrize("mode", [0x3F0, 0x3C0, 0x330, 0x150])
def test_products_next_below_the_least_normal_number(mode: int) -> None:
    """They are denormal, but the nearest number may be the least normal one."""
    m = Machine(seed=8, mode=mode)
    pairs = {}
    for fmt in (fo.F16, fo.F32, fo.F64):
        pairs[fmt] = fmt.one - 1, 1 << fmt.man
    for i, bits in enumerate((*pairs[fo.F16], *pairs[fo.F32])):
        m.v[i] = bits
    for i, bits in enumerate(pairs[fo.F64]):
        m.set_v64(4 + 2 * i, bits)
    m.run(
        "v_mul_f16 v8, v0, v1\nv_mul_f32 v9, v2, v3\nv_mul_f64 v[10:11], v[4:5], v[6:7]\n"
        "v_fma_f16 v12, v0, v1, 0\nv_fma_f32 v13, v2, v3, 0\n"
        "v_fma_f64 v[14:15], v[4:5], v[6:7], 0"
    )
    want = [fo.mul(fmt, fo.Mode(mode), *pair) for fmt, pair in pairs.items()]
    assert [int(m.v[8, 0]) & 0xFFFF, int(m.v[9, 0]), int(m.v64(10)[0])] == want
    assert [int(m.v[12, 0]) & 0xFFFF, int(m.v[13, 0]), int(m.v64(14)[0])] == want


@pytest.mark.parametrize("bound_ctrl", [False, True])
@pytest.mark.parametrize("exec_mask", [ALL_LANES, HOLES, 0])
def test_every_dpp_pattern(bound_ctrl: bool, exec_mask: int) -> None:
    m = shared_machine()
    masks = ((0xF, 0xF), (0xA, 0xF), (0xF, 0x5), (0x3, 0xC), (0, 0xF))
    cases = []
    for n, (pattern, source) in enumerate(DPP_PATTERNS.items()):
        for row_mask, bank_mask in (masks[0], masks[1 + n % 4]):
            dpp = Dpp(pattern, source, row_mask, bank_mask, bound_ctrl)
            cases.append((f"v_mov_b32_dpp v{DST_REG}, v0{dpp.suffix()}", dpp))
    code = assemble_each(text for text, _ in cases)
    for text, dpp in cases:
        words = code[text]
        assert words is not None, text
        op = VOP1_OPS["v_mov_b32"]
        check_modified(text, words, op, Modifiers(dpp=dpp), m, exec_mask, DEFAULT_MODE)


def test_wave_sum_by_dpp() -> None:
    """The usual reduction: row shifts, then row_bcast 15 and 31; lane 63 has the sum."""
    m = Machine(seed=1)
    m.v[0] = m.rng.integers(0, 1000, LANES, np.uint32)
    total = int(m.v[0].sum())
    steps = ["row_shr:1", "row_shr:2", "row_shr:4", "row_shr:8"]
    code = [f"v_add_u32_dpp v0, v0, v0 {s} row_mask:0xf bank_mask:0xf bound_ctrl:0" for s in steps]
    code.append("v_add_u32_dpp v0, v0, v0 row_bcast:15 row_mask:0xa bank_mask:0xf")
    code.append("v_add_u32_dpp v0, v0, v0 row_bcast:31 row_mask:0xc bank_mask:0xf")
    m.run("\n".join(code))
    assert m.v[0, 63] == total


@pytest.mark.parametrize(
    ("text", "want"),
    [
        # (0x80f0 bytes) select, extend, place.
        ("v_mov_b32_sdwa v1, v0 dst_sel:DWORD src0_sel:BYTE_1", 0x000000B2),
        ("v_mov_b32_sdwa v1, sext(v0) dst_sel:DWORD src0_sel:BYTE_1", 0xFFFFFFB2),
        ("v_mov_b32_sdwa v1, v0 dst_sel:BYTE_2 dst_unused:UNUSED_PAD src0_sel:BYTE_0", 0x00C30000),
        ("v_mov_b32_sdwa v1, v0 dst_sel:BYTE_2 dst_unused:UNUSED_SEXT src0_sel:BYTE_0", 0xFFC30000),
        ("v_mov_b32_sdwa v1, v0 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_1",
         0x80A15678),
        ("v_mov_b32_sdwa v1, s3 dst_sel:WORD_0 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_3",
         0x12340077),
    ],
)  # fmt: skip
def test_sdwa_by_hand(text: str, want: int) -> None:
    m = Machine(seed=2)
    m.v[0], m.v[1], m.s[3] = 0x80A1B2C3, 0x12345678, 0x77000000
    m.run(text)
    assert (m.v[1] == want).all(), hex(int(m.v[1, 0]))


def test_fp8_conversions_select_by_sdwa() -> None:
    m = Machine(seed=3)
    m.v[0] = 0x7F40C080  # bytes: NaN, -2, 1 (fnuz: bias 8), 240
    m.run(
        "v_cvt_f32_fp8_sdwa v1, v0 src0_sel:BYTE_1\nv_cvt_f32_fp8_sdwa v2, v0 src0_sel:BYTE_3\n"
        "v_cvt_pk_f32_fp8_sdwa v[4:5], v0 src0_sel:WORD_1\nv_cvt_f32_fp8 v3, v0"
    )
    assert [int(m.v[i, 0]) for i in (1, 2, 4, 5)] == [
        0xBF800000, 0x43700000, 0x3F800000, 0x43700000,
    ]  # fmt: skip
    assert np.isnan(m.v[3].view(np.float32)).all()


@pytest.mark.parametrize(
    ("op_sel", "lo", "hi"),
    [("[0,0,0]", 0, None), ("[0,0,1]", None, 0)],
)
def test_cvt_pk_fp8_keeps_the_other_half(op_sel: str, lo: int | None, hi: int | None) -> None:
    m = Machine(seed=4)
    m.v[0], m.v[1], m.v[2] = 0x3F800000, 0xC0000000, 0xAAAABBBB
    m.run(f"v_cvt_pk_fp8_f32 v2, v0, v1 op_sel:{op_sel}")
    assert (m.v[2] == (0xAAAAC840 if lo == 0 else 0xC840BBBB)).all(), hex(int(m.v[2, 0]))
    assert (lo is None) != (hi is None)


def test_cvt_sr_fp8_writes_one_byte() -> None:
    for byte, bits in enumerate(("[0,0,0,0]", "[0,0,1,0]", "[0,0,0,1]", "[0,0,1,1]")):
        m = Machine(seed=5)
        m.v[0], m.v[1], m.v[2] = 0x3F800000, 0, 0x11223344
        m.run(f"v_cvt_sr_fp8_f32 v2, v0, v1 op_sel:{bits}")
        want = 0x11223344 & ~(0xFF << 8 * byte) | 0x40 << 8 * byte
        assert (m.v[2] == want).all(), (byte, hex(int(m.v[2, 0])))


@pytest.mark.parametrize(
    ("mode", "want"),
    [(0x3F0, 0), (0x2F0, 0x7FC00001), (0x0C0, 0x7FC00001), (0x1C0, 0)],
)
def test_clamp_of_nan_follows_dx10_clamp(mode: int, want: int) -> None:
    m = Machine(seed=6, mode=mode)
    m.v[0] = 0x7FC00001
    m.run("v_add_f32_e64 v1, v0, v0 clamp\nv_max_f32_e64 v2, v0, v0 clamp")
    assert (m.v[1] == want).all() and (m.v[2] == want).all()


def test_one_wave_reads_all_constant_kinds() -> None:
    """Inline constants by operand type; literals of every width."""
    m = Machine(seed=7)
    m.v[0] = 0
    m.set_v64(2, 0)
    m.run(
        "v_add_f32 v10, 0.5, v0\nv_add_f16 v11, 1.0, v0\nv_add_f64 v[12:13], 2.0, v[2:3]\n"
        "v_or_b32 v14, -4.0, v0\nv_or_b32 v15, -16, v0\nv_add_u16 v16, -1, v0\n"
        "v_add_f32 v17, 0x40490fdb, v0\nv_add_f16 v18, 0x4248, v0\nv_mul_f32 v19, 0.15915494, v0\n"
        "v_lshlrev_b64 v[20:21], 0, -3\nv_ldexp_f32 v22, 1.0, 3\nv_cvt_f64_i32 v[24:25], -7"
    )
    assert [int(m.v[i, 0]) for i in (10, 11, 14, 15, 16, 17, 18, 19, 22)] == [
        0x3F000000, 0x3C00, 0xC0800000, 0xFFFFFFF0, 0xFFFF, 0x40490FDB, 0x4248, 0, 0x41000000,
    ]  # fmt: skip
    assert m.v64(12)[0] == 0x4000000000000000
    assert m.v64(20)[0] == 0xFFFFFFFFFFFFFFFD and m.v64(24)[0] == 0xC01C000000000000
