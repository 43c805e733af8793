"""Encodings that mean what another encoding means: the assembler writes one of them.

The decoder accepts them because the hardware does not look at the bits, or has two ways to say a
thing. Everything else that it accepts, the assembler writes bit by bit.
"""

from __future__ import annotations

import re

_THREE_SOURCES = re.compile(r"v_(pk_mad|pk_fma|pk_m(in|ax)imum3|dot|fma_mix|mfma|smfmac)")
_BYTE_DOT = re.compile(r"v_dot[48]_\w+ ")
_LITERAL16 = re.compile(r" (0x[89a-f][0-9a-f]{3})\b")
_SMEM_DATA = re.compile(r"s_(buffer_|scratch_)?(load|store|atomic)|s_atc|s_dcache_discard")
_OP_SEL_HI = 1 << 14 | 3 << 59


def canonical(encoding: bytes, text: str) -> bytes:
    """The encoding with the bits that do not matter for `text` as the assembler sets them."""
    code = int.from_bytes(encoding, "little")
    name = text.split(" ", 1)[0]
    if len(encoding) == 8:
        literal = _LITERAL16.search(text)
        if literal and not code >> 31 & 1 and code >> 32 == 0xFFFF0000 | int(literal[1], 16):
            code &= ~(0xFFFF << 48)  # of a 16-bit literal, the low half is read
        if code >> 23 & 0x1FF == 0x1A7:  # VOP3P
            if _BYTE_DOT.match(text) or name.startswith("v_accvgpr_"):
                code |= _OP_SEL_HI  # no operand has halves
            elif not _THREE_SOURCES.match(text):
                code |= 1 << 14  # op_sel_hi of the third source
        elif name.startswith("v_cmp") and name.endswith("_sdwa") and " vcc," in text:
            code &= ~(0xFF << 40)  # VCC by default, or by name
        elif _SMEM_DATA.match(name) and not code >> 17 & 1 and code >> 14 & 1:
            # An SGPR offset alone, in SOFFSET instead of OFFSET.
            code = code & ~(1 << 14) & ((1 << 57) - 1) | (code >> 57 & 0x7F) << 32
    elif name.startswith("v_mfma_scale_"):
        code &= ~(3 << 13)  # op_sel and op_sel_hi of a third scale
    elif name == "s_waitcnt":
        code &= ~0x3080  # between the counters
    elif name.startswith("s_sendmsg") and "sendmsg(MSG" in text:
        code &= ~0xFC80  # beside message, operation and stream
    return code.to_bytes(len(encoding), "little")


def has_no_text(text: str, dwords: int) -> bool:
    """True where the assembler refuses, or reads otherwise, what LLVM's disassembler prints too.

    - v_nop and v_clrexcp as VOP3: nothing in the text asks for it;
    - returning global_atomic_add_f32 and _pk_add_f16 on AGPRs: the assembler lacks these forms;
    - returning f64 atomics on AGPRs: the assembler loses sc1;
    - ds_swizzle_b32 patterns of which the text names the effect, not all bits.
    """
    if text in ("v_nop", "v_clrexcp"):
        return dwords == 2
    if re.match(r"global_atomic_(add_f32|pk_add_f16) a\d+, v\S+, a", text):
        return True
    if re.match(r"(flat|global)_atomic_(add|min|max)_f64 a\S+, v\S+, a.* sc1", text):
        return True
    return re.search(r"swizzle\((BITMASK_PERM|ROTATE|FFT)", text) is not None
