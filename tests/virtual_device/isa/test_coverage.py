"""No instruction of gfx942 is missing: the lists beside this file against the table."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.support.isa.disassembler import Disassembler
from tests.support.isa.random_words import WordGenerator

HERE = Path(__file__).parent

# LLVM disassembles them, and there is no row.
ABSENT = {
    "s_cbranch_g_fork": "gfx8's fork and join, which no compiler emits",
    "s_rfe_restore_b64": "returns from a trap handler",
}
# LLVM disassembles these forms, and the decoder refuses them.
ABSENT_FORMS = {
    "v_pk_fmac_f16_sdwa": "what a select means for two packed halves is written nowhere",
}
# Rows of which LLVM's disassembler knows nothing, though its assembler does.
ASSEMBLED_ONLY = {"ds_nop"}


def lines(name: str) -> list[str]:
    return [x for x in (HERE / name).read_text().splitlines() if x and not x.startswith("#")]


def test_every_opcode_of_llvm_has_a_row(disassembler: Disassembler) -> None:
    table = {(row.format, row.opcode): row.name for row in disassembler.rows()}
    llvm = {}
    for line in lines("llvm_opcodes_gfx942.txt"):
        format_name, opcode, name, *_ = line.split()
        llvm[format_name, int(opcode, 16)] = name
    missing = {k: name for k, name in llvm.items() if k not in table and name not in ABSENT}
    assert not missing
    surplus = {k: name for k, name in table.items() if k not in llvm and name not in ASSEMBLED_ONLY}
    assert not surplus
    renamed = {k: (table[k], llvm[k]) for k in table.keys() & llvm.keys() if table[k] != llvm[k]}
    assert not renamed


def test_every_form_decodes(disassembler: Disassembler) -> None:
    generator = WordGenerator(seed=99)
    rows = {row.name: row for row in disassembler.rows()}
    missing = []
    for line in lines("llvm_opcodes_gfx942.txt"):
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


def test_every_mnemonic_in_the_wild_has_a_row(disassembler: Disassembler) -> None:
    names = {row.name for row in disassembler.rows()}
    seen = {re.sub(r"_(e32|e64|dpp|sdwa)$", "", x) for x in lines("opcodes_seen_gfx942.txt")}
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
