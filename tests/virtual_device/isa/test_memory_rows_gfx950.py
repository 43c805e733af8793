"""gfx950's memory instructions beyond gfx942's: LLVM's opcodes, encodings and forms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.isa.assembler import AssemblerError, assemble
from tests.support.isa.disassembler import Disassembler

CPU = "gfx950"
FORMATS = ("SMEM", "DS", "FLAT", "SCRATCH", "GLOBAL", "MUBUF", "MTBUF")
# What LLVM 22.1.8 disassembles for gfx950 and not for gfx942, all opcodes of these formats tried;
# nothing is gone.
NEW = {
    ("DS", 0xE0): "ds_read_b64_tr_b4",
    ("DS", 0xE1): "ds_read_b96_tr_b6",
    ("DS", 0xE2): "ds_read_b64_tr_b8",
    ("DS", 0xE3): "ds_read_b64_tr_b16",
    ("MUBUF", 0x52): "buffer_atomic_pk_add_bf16",
    ("GLOBAL", 0x7D): "global_load_lds_dwordx4",
    ("GLOBAL", 0x7E): "global_load_lds_dwordx3",
}
TEXTS = (
    "ds_read_b64_tr_b16 v[2:3], v9",
    "ds_read_b64_tr_b16 a[254:255], v255 offset:65535",
    "ds_read_b64_tr_b8 v[2:3], v9 offset:8",
    "ds_read_b64_tr_b4 a[2:3], v9 offset:8",
    "ds_read_b96_tr_b6 v[3:5], v9 offset:16",
    "ds_read_b96_tr_b6 a[253:255], v9",
    "buffer_load_dwordx3 v2, s[8:11], s20 offen offset:4092 lds",
    "buffer_load_dwordx4 v[2:3], s[8:11], 0 idxen offen lds",
    "buffer_load_dwordx4 off, s[8:11], m0 sc0 nt sc1 lds",
    "buffer_load_dwordx3 a[4:6], v2, s[8:11], 0 offen",
    "global_load_lds_dwordx3 v[2:3], off offset:-4096",
    "global_load_lds_dwordx4 v2, s[4:5] offset:4095 sc0 nt sc1",
    "buffer_atomic_pk_add_bf16 v3, v2, s[8:11], 64 offen offset:8 sc0 nt",
    "buffer_atomic_pk_add_bf16 a3, off, s[8:11], 0",
)
# LLVM refuses the text, and the decoder the bytes that would be its.
REFUSED = [
    (
        "buffer_load_dwordx2 v2, s[8:11], 0 offen lds",
        [0xE0551000, 0x80020002],
        "not a load that can go to LDS",
    ),
    (
        "buffer_load_format_xyzw v2, s[8:11], 0 offen lds",
        [0xE00D1000, 0x80020002],
        "not a load that can go to LDS",
    ),
    ("scratch_load_lds_dwordx4 v2, off", [0xDDF46000, 0x007F0002], "no such opcode"),
]


def test_rows_are_llvms(vdev_lib: object) -> None:
    listing = (Path(__file__).parent / "llvm_opcodes_gfx942.txt").read_text()
    llvm = dict(NEW)
    for line in listing.splitlines():
        format_name, opcode, name, *_ = line.split()
        if format_name in FORMATS:
            llvm[format_name, int(opcode, 16)] = name
    rows = Disassembler(vdev_lib, CPU).rows()  # type: ignore[arg-type]
    ours = {(row.format, row.opcode): row.name for row in rows if row.format in FORMATS}
    assert {key: name for key, name in ours.items() if name != "ds_nop"} == llvm


def test_encodings_both_ways(vdev_lib: object) -> None:
    disassembler = Disassembler(vdev_lib, CPU)  # type: ignore[arg-type]
    encodings = assemble(TEXTS, CPU)
    words = np.stack([np.frombuffer(code, np.uint32) for code in encodings])
    decoded = disassembler.decode(words)
    assert [d.size for d in decoded] == [2] * len(TEXTS)
    assert assemble([d.text for d in decoded], CPU) == encodings
    assert {d.text.split(" ")[0] for d in decoded} >= set(NEW.values())


@pytest.mark.parametrize(("text", "words", "reason"), REFUSED)
def test_refusals(text: str, words: list[int], reason: str, vdev_lib: object) -> None:
    with pytest.raises(AssemblerError):
        assemble([text], CPU)
    disassembler = Disassembler(vdev_lib, CPU)  # type: ignore[arg-type]
    (decoded,) = disassembler.decode(np.array([words], np.uint32))
    assert decoded.size == 0 and reason in decoded.text
