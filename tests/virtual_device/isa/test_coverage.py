"""No instruction of an architecture is missing: the lists beside this file against the table."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest

from tests.support.isa.disassembler import Disassembler
from tests.support.isa.random_words import WordGenerator
from tests.support.vdev_library import CPUS

HERE = Path(__file__).parent

# LLVM disassembles them, and there is no row.
ABSENT = {
    "s_cbranch_g_fork": "gfx8's fork and join, which no compiler emits",
    "s_rfe_restore_b64": "returns from a trap handler",
    "v_mfma_ld_scale_b32": "the first half of v_mfma_scale_*, which are rows",
}
# LLVM disassembles these forms, and the decoder refuses them.
ABSENT_FORMS = {
    "v_pk_fmac_f16_sdwa": "what a select means for two packed halves is written nowhere",
}
# Rows of which LLVM's disassembler knows nothing, though its assembler does.
ASSEMBLED_ONLY = {"ds_nop"}
# Rows of two opcodes in a row.
OF_TWO_HALVES = {"v_mfma_scale_f32_16x16x128_f8f6f4", "v_mfma_scale_f32_32x32x64_f8f6f4"}


def lines(name: str) -> list[str]:
    return [x for x in (HERE / name).read_text().splitlines() if x and not x.startswith("#")]


@pytest.mark.parametrize("cpu", CPUS)
def test_every_opcode_of_llvm_has_a_row(vdev_lib: ctypes.CDLL, cpu: str) -> None:
    disassembler = Disassembler(vdev_lib, cpu)
    table = {(row.format, row.opcode): row.name for row in disassembler.rows()}
    llvm = {}
    for line in lines(f"llvm_opcodes_{cpu}.txt"):
        format_name, opcode, name, *_ = line.split()
        llvm[format_name, int(opcode, 16)] = name
    missing = {k: name for k, name in llvm.items() if k not in table and name not in ABSENT}
    assert not missing
    others = ASSEMBLED_ONLY | OF_TWO_HALVES
    surplus = {k: name for k, name in table.items() if k not in llvm and name not in others}
    assert not surplus
    renamed = {k: (table[k], llvm[k]) for k in table.keys() & llvm.keys() if table[k] != llvm[k]}
    assert not renamed


@pytest.mark.parametrize("cpu", CPUS)
def test_every_form_decodes(vdev_lib: ctypes.CDLL, cpu: str) -> None:
    disassembler = Disassembler(vdev_lib, cpu)
    generator = WordGenerator(seed=99)
    rows = {row.name: row for row in disassembler.rows()}
    missing = []
    for line in lines(f"llvm_opcodes_{cpu}.txt"):
        _, _, name, *forms = line.split()
        if name not in rows:
            continue
        for form in forms:
            expected = name if name in ("v_nop", "v_clrexcp") else f"{name}_{form}"
            if not any(
                d.size and d.text.split(" ")[0] == expected
                for _ in range(20)
                for d in disassembler.decode(generator.windows(rows[name], form, 300))
            ):
                missing.append(expected)
    assert sorted(missing) == sorted(ABSENT_FORMS)


@pytest.mark.parametrize("cpu", CPUS)
def test_every_mnemonic_in_the_wild_has_a_row(vdev_lib: ctypes.CDLL, cpu: str) -> None:
    names = {row.name for row in Disassembler(vdev_lib, cpu).rows()}
    seen = {re.sub(r"_(e32|e64|dpp|sdwa)$", "", x) for x in lines(f"opcodes_seen_{cpu}.txt")}
    assert len(seen) > 250
    assert not seen - names


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([0x00000000], "more than one SGPR"),  # v_cndmask_b32 v0, s0, v0, vcc: zeros in the code
        ([0x7E000280, 0], ""),
        ([0xFFFFFFFF, 0xFFFFFFFF], "unknown encoding"),
        ([0xD1000000], "ends inside"),
        ([0x800000FF], "ends inside"),
        ([0xDC508000, 0x007F0001], "odd register"),  # global_load_dword v0, v[1:2], off
        ([0x7E0002FE], "unknown source code"),  # src_lds_direct
        ([0xBF8A0001], "reserved bits"),  # s_barrier with an operand
        ([0xD86D0000, 0x00000000], "no GDS"),
        ([0xBE8001FF, 0x12345678], ""),
        ([0xBE8101FF, 0x12345678], "not aligned"),  # s_mov_b64 s[1:2]
    ],
)
def test_refusals(disassembler: Disassembler, words: list[int], reason: str) -> None:
    (decoded,) = disassembler.decode(np.array([words], np.uint32))
    assert (decoded.size == 0) == bool(reason), decoded
    assert reason in decoded.text
