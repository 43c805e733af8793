"""Encodings that mean what another encoding means: the assembler writes one of them.

The decoder accepts them because the hardware does not look at the bits, or has two ways to say a
thing. Everything else that it accepts, the assembler writes bit by bit.
"""

from __future__ import annotations

import re

_VOP3P_TWO_SOURCES = re.compile(r"v_pk_(?!mad|fma_)\w+ ")
_BYTE_DOT = re.compile(r"v_dot[48]_\w+ ")
_LITERAL16 = re.compile(r" (0x[89a-f][0-9a-f]{3})\b")
_OP_SEL_HI = 1 << 14 | 3 << 59


def canonical(encoding: bytes, text: str) -> bytes:
    """The encoding with the bits that do not matter for `text` as the assembler sets them."""
    code = int.from_bytes(encoding, "little")
    name = text.split(" ", 1)[0]
    if len(encoding) == 8:
        literal = _LITERAL16.search(text)
        if literal and not code >> 31 & 1 and code >> 32 == 0xFFFF0000 | int(literal[1], 16):
            code &= ~(0xFFFF << 48)  # of a 16-bit literal, the low half is read
        if _VOP3P_TWO_SOURCES.match(text) and "_e64" not in name:
            code |= 1 << 14  # op_sel_hi of the third source
        elif _BYTE_DOT.match(text) or (name.startswith("v_accvgpr_") and name[-3:] == "b32"):
            if name != "v_accvgpr_mov_b32":
                code |= _OP_SEL_HI  # no operand has halves
        elif name.startswith("v_cmp") and name.endswith("_sdwa") and " vcc," in text:
            code &= ~(0xFF << 40)  # VCC by default, or by name
        elif re.match(r"s_(buffer_|scratch_)?(load|store|atomic)|s_atc|s_dcache_discard", name):
            if not code >> 17 & 1 and code >> 14 & 1:  # an SGPR offset alone, in SOFFSET
                code = code & ~(1 << 14) & ((1 << 57) - 1) | (code >> 57 & 0x7F) << 32
    elif name == "s_waitcnt":
        code &= ~0x3080  # between the counters
    elif name.startswith("s_sendmsg") and "sendmsg(MSG" in text:
        code &= ~0xFC80  # beside message, operation and stream
    return code.to_bytes(len(encoding), "little")


def has_no_text(text: str) -> bool:
    """True where the assembler refuses, or reads otherwise, what LLVM's disassembler prints too.

    - returning global_atomic_add_f32 and _pk_add_f16 on AGPRs: the assembler lacks these forms;
    - ds_swizzle_b32 patterns that several (AND, OR, XOR) masks describe: the text names the effect.
    """
    if re.match(r"global_atomic_(add_f32|pk_add_f16) a\d+, v\[?\d+(:\d+\])?, a", text):
        return True
    return "BITMASK_PERM" in text
