"""gfx950's matrix instructions as code: encodings against LLVM, four dwords, registers."""

from __future__ import annotations

import ctypes
import itertools
import random

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.check.taint_machine import Bits, oracle, random_bits
from tests.support.isa.assembler import assemble
from tests.support.isa.disassembler import Disassembler
from tests.support.isa.machine import Machine

CPU = "gfx950"
# Mnemonic: registers of D, A, B; None: as the formats have it.
FP8 = [f"{a}_{b}" for a in ("bf8", "fp8") for b in ("bf8", "fp8")]
DENSE = {
    **{f"v_mfma_f32_16x16x32_{t}": (4, 4, 4) for t in ("bf16", "f16")},
    **{f"v_mfma_f32_32x32x16_{t}": (16, 4, 4) for t in ("bf16", "f16")},
    "v_mfma_i32_16x16x64_i8": (4, 4, 4),
    "v_mfma_i32_32x32x32_i8": (16, 4, 4),
}
SPARSE = {
    **{f"v_smfmac_f32_16x16x64_{t}": (4, 4, 8) for t in ("bf16", "f16")},
    **{f"v_smfmac_f32_32x32x32_{t}": (16, 4, 8) for t in ("bf16", "f16")},
    **{f"v_smfmac_f32_16x16x128_{t}": (4, 4, 8) for t in FP8},
    **{f"v_smfmac_f32_32x32x64_{t}": (16, 4, 8) for t in FP8},
    "v_smfmac_i32_16x16x128_i8": (4, 4, 8),
    "v_smfmac_i32_32x32x64_i8": (16, 4, 8),
}
F8F6F4 = {"16x16x128": 4, "32x32x64": 16}
REGISTERS = (8, 8, 6, 6, 4)  # of an operand, by its format


def span(rng: random.Random, count: int, file: str | None = None) -> str:
    file = file or rng.choice("va")
    if count == 1:
        return f"{file}{rng.randrange(256)}"
    first = rng.randrange(0, 257 - count, 2)
    return f"{file}[{first}:{first + count - 1}]"


def addend(rng: random.Random, d: str, count: int) -> str:
    constant = rng.choice(["0", "1.0", "-4.0", "64", "-16"])
    return rng.choice([d, constant, span(rng, count, d[0]) if count == 4 else d])


def texts() -> list[str]:
    rng, lines = random.Random(950), []
    for name, (d, a, b) in DENSE.items():
        for _ in range(6):
            out = span(rng, d)
            lines.append(f"{name} {out}, {span(rng, a)}, {span(rng, b)}, {addend(rng, out, d)}")
    for name, (d, a, b) in SPARSE.items():
        for control in ("", " cbsz:1", " abid:1", " cbsz:3 abid:2"):
            registers = f"{span(rng, d)}, {span(rng, a)}, {span(rng, b)}, {span(rng, 1, 'v')}"
            lines.append(f"{name} {registers}{control}")
    for size, d in F8F6F4.items():
        for a, b in itertools.product(range(5), range(5)):
            forms = (f" cbsz:{a}" if a else "") + (f" blgp:{b}" if b else "")
            for scaled in (False, True):
                out = span(rng, d)
                registers = (
                    f"{out}, {span(rng, REGISTERS[a])}, {span(rng, REGISTERS[b])}, "
                    f"{addend(rng, out, d)}"
                )
                if not scaled:
                    lines.append(f"v_mfma_f32_{size}_f8f6f4 {registers}{forms}")
                    continue
                x, y = (rng.randrange(4) for _ in range(2))
                low = f" op_sel:[{x & 1},{y & 1},0]" if (x | y) & 1 else ""
                high = f" op_sel_hi:[{x >> 1},{y >> 1},0]"
                scales = f"{span(rng, 1, 'v')}, {span(rng, 1, 'v')}"
                lines.append(
                    f"v_mfma_scale_f32_{size}_f8f6f4 {registers}, {scales}{low}{high}{forms}"
                )
    return lines


def windows(codes: list[bytes]) -> npt.NDArray[np.uint32]:
    return np.array([np.frombuffer(c.ljust(16, b"\0"), np.uint32) for c in codes])


@pytest.fixture(scope="module")
def disassembler(vdev_lib: ctypes.CDLL) -> Disassembler:
    return Disassembler(vdev_lib, CPU)


def test_encodings_are_llvms(disassembler: Disassembler) -> None:
    """LLVM's bytes decode to the text that it was given, of as many dwords."""
    lines = texts()
    codes = assemble(lines, CPU)
    decoded = disassembler.decode(windows(codes))
    for line, code, found in zip(lines, codes, decoded, strict=True):
        assert (found.text, found.size) == (line, len(code) // 4)


def test_the_table_has_all(disassembler: Disassembler) -> None:
    names = {row.name for row in disassembler.rows() if "mfma" in row.name or "smfmac" in row.name}
    formats = {f"v_mfma_{s}f32_{size}_f8f6f4" for s in ("", "scale_") for size in F8F6F4}
    assert names >= {*DENSE, *SPARSE, *formats}
    assert not [name for name in names if "xf32" in name]


def test_what_other_architectures_have(vdev_lib: ctypes.CDLL, disassembler: Disassembler) -> None:
    """xf32 is not an instruction here, what is new is none of gfx942."""
    (xf32,) = assemble(["v_mfma_f32_16x16x8_xf32 v[0:3], v[4:5], v[6:7], 0"], "gfx942")
    (found,) = disassembler.decode(windows([xf32]))
    assert (found.size, found.text) == (0, "no such opcode")
    older = Disassembler(vdev_lib, "gfx942").decode(windows(assemble(texts(), CPU)))
    assert {decoded.size for decoded in older} == {0}


def test_half_a_pair_is_refused(disassembler: Disassembler) -> None:
    """Scales without their matrix instruction, and the bit that says that there are scales."""
    text = "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], 0, v20, v21"
    plain = "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], 0"
    other = "v_mfma_f32_16x16x32_bf16 v[0:3], v[4:7], v[12:15], 0"
    (whole,), (half,), (third,) = (assemble([t], CPU) for t in (text, plain, other))
    scales = whole[:8]
    with_abid = whole[8:]
    cases = {
        scales + half: "abid",  # without the bit
        with_abid: "abid",  # with it, and no scales
        scales + third: "no matrix instruction behind its scales",
        scales + b"\0" * 8: "no matrix instruction behind its scales",
        bytes([half[0], half[1] | 5, *half[2:]]): "no such format",
        scales[:4] + bytes([0x1E, scales[5] & 0xFE, *scales[6:]]) + with_abid: "VGPR",
    }
    for code, reason in cases.items():
        (found,) = disassembler.decode(windows([code]))
        assert found.size == 0 and reason in found.text, found
    (short,) = disassembler.decode(windows([whole])[:, :3])
    assert "ends inside" in short.text
    # AMD's kernels set two more bits, of a source that does not exist.
    (found,) = disassembler.decode(windows([bytes([whole[0], whole[1] | 0x60]) + whole[2:]]))
    assert found.size == 4


def test_registers_and_scales() -> None:
    """Ones of fp4 and fp6, scales in any byte: D is the count of k times them. EXEC is ignored."""
    for size, d in F8F6F4.items():
        m_rows, k = (16, 128) if d == 4 else (32, 64)
        m = Machine(seed=5, cpu=CPU)
        m.v[8:12] = 0x22222222  # 1.0 in every fp4
        six = sum(0x08 << 6 * n for n in range(32))  # 1.0 in fp6
        for register in range(6):
            m.v[16 + register] = six >> 32 * register & 0xFFFFFFFF
        rows = np.arange(64) % m_rows
        m.v[30] = (120 + rows % 8).astype(np.uint32) << np.uint32(16)
        m.v[31] = (125 + rows % 4).astype(np.uint32) << np.uint32(8)
        m.exec = 1
        untouched = m.v.copy()
        out = f"v[64:{63 + d}]"
        m.run(
            f"v_mfma_scale_f32_{size}_f8f6f4 {out}, v[8:11], v[16:21], 0, v30, v31 "
            "op_sel:[0,1,0] op_sel_hi:[1,0,0] cbsz:4 blgp:2"
        )
        found = m.v[64 : 64 + d].view(np.float32)
        for register, lane in itertools.product(range(d), range(64)):
            i = register % 4 + 8 * (register // 4) + 4 * (lane // 32) if d == 16 else (
                register + 4 * (lane // 16))  # fmt: skip
            expected = k * 2.0 ** (i % 8 - 7) * 2.0 ** (lane % m_rows % 4 - 2)
            assert found[register, lane] == expected
        untouched[64 : 64 + d] = m.v[64 : 64 + d]
        assert (m.v == untouched).all()
        use = m.inspect(
            f"v_mfma_scale_f32_{size}_f8f6f4 {out}, v[8:11], v[16:21], {out}, v30, v31 "
            "op_sel_hi:[0,0,0] cbsz:4 blgp:2"
        )
        reads = {8, 9, 10, 11, *range(16, 22), 30, 31, *range(64, 64 + d)}
        assert {i for file, i in use.reads if file == "v"} == reads
        assert {i for file, i in use.writes if file == "v"} == set(range(64, 64 + d))


@pytest.mark.parametrize("size", F8F6F4)
@pytest.mark.parametrize("forms", [(0, 4), (3, 2), (1, 0)])
def test_uninitialised_bits(size: str, forms: tuple[int, int]) -> None:
    """What differs with other contents of uninitialised bits is marked, also by scales."""
    a, b = (REGISTERS[form] for form in forms)
    d = F8F6F4[size]
    code = (
        f"v_mfma_scale_f32_{size}_f8f6f4 v[64:{63 + d}], v[8:{7 + a}], v[16:{15 + b}], 0, v30, "
        f"v31 op_sel:[1,0,0] op_sel_hi:[0,1,0] cbsz:{forms[0]} blgp:{forms[1]}"
    )
    (words,) = (np.frombuffer(c, np.uint32) for c in assemble([code], CPU))
    rng, marked = np.random.default_rng(7), 0
    for case in range(6):
        m = Machine(seed=case, cpu=CPU)
        m.v[:32] = m.random_u32((32, 64))
        m.v[8:24] &= np.uint32(0x37373737)
        m.v[30:32] = 0x7F7F7F7F
        bits = Bits()
        bits.v[8:24, ::7] = random_bits(rng, bits.v[8:24, ::7].shape)
        bits.v[30 + case % 2, 3] = [0, 0xFF00, 0xFF, 0xFF0000, 0xFF000000, 0xFFFFFFFF][case]
        outcome = oracle(m, bits, words, 4, case)
        assert outcome is not None and not outcome.missed, outcome
        marked += outcome.marked
    assert 0 < marked < 6 * d * 64 * 32
