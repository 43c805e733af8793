"""Which registers an instruction reads and writes, told from its text.

Written apart from the virtual device's operand tables, so that what mutation calls equivalent does
not rest on what it tests. Registers are ints: SGPRs by their encoding (VCC 106, M0 124, EXEC 126,
SCC 253), VGPR n as 1000 + n, AGPR n as 2000 + n.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from benchmarks.checker_mutation.code import Instruction

VGPR, AGPR = 1000, 2000
VCC, M0, EXEC, SCC = (106, 107), 124, (126, 127), 253
Registers = frozenset[int]
NONE: Registers = frozenset()

_NAMED = {
    "vcc": VCC,
    "vcc_lo": VCC[:1],
    "vcc_hi": VCC[1:],
    "exec": EXEC,
    "exec_lo": EXEC[:1],
    "exec_hi": EXEC[1:],
    "m0": (M0,),
    "flat_scratch": (102, 103),
    "flat_scratch_lo": (102,),
    "flat_scratch_hi": (103,),
    "xnack_mask": (104, 105),
    "xnack_mask_lo": (104,),
    "xnack_mask_hi": (105,),
    "scc": (SCC,),
    "src_scc": (SCC,),
    "vccz": VCC,
    "src_vccz": VCC,
    "execz": EXEC,
    "src_execz": EXEC,
}
_REGISTER = re.compile(
    r"\b(?:(?P<file>ttmp|[vsa])(?:\[(?P<first>\d+)(?::(?P<last>\d+))?\]|(?P<only>\d+)\b)"
    r"|(?P<name>" + "|".join(sorted(_NAMED, key=len, reverse=True)) + r")\b)"
)
_BASE = {"v": VGPR, "a": AGPR, "s": 0, "ttmp": 108}

_TWO_RESULTS = re.compile(
    r"v_(add|sub|subrev)_co_u32|v_(addc|subb|subbrev)_co_u32|v_mad_[ui]64_[ui]32|v_div_scale_"
    r"|v_(permlane\d+_)?swap_b32"
)
_READS_ITS_RESULT = re.compile(
    r"v_(pk_)?f?mac_|v_dot\d+c_|v_smfmac|v_writelane|v_cvt_(pk|sr)_(fp|bf)8"
    r"|s_cmov|s_addk|s_mulk|s_bitset"
)
_NO_RESULT = re.compile(
    r"s_(cmp|bitcmp|cbranch|branch|nop|waitcnt|barrier|endpgm|setprio|sleep|setreg|setpc|trap"
    r"|sethalt|sendmsg|icache|dcache|set_gpr_idx|rfe|incperflevel|decperflevel|ttrace|wakeup"
    r"|setvskip|setkill)|buffer_(wbl2|inv)|v_nop"
)
# SALU operations that leave SCC alone.
_KEEPS_SCC = re.compile(
    r"s_(mov|movk|cmov|cselect|mul_i32|mul_hi|brev|ff0|ff1|flbit|sext|bitset|getpc|setpc|swappc"
    r"|call|bfm|pack|movrel|rfe|bitreplicate|getreg|setreg|nop|waitcnt|barrier|endpgm|branch"
    r"|cbranch|setprio|sleep|trap|sethalt|sendmsg|icache|dcache|load|buffer|store|memtime"
    r"|memrealtime|scratch|atc|cmovk|ttrace|incperflevel|decperflevel|wakeup)"
)
_READS_SCC = re.compile(r"s_(addc|subb|cselect|cmov|cbranch_scc)")


@dataclass(frozen=True, slots=True)
class Use:
    """Registers of one instruction. `data` is a part of `reads`."""

    reads: Registers
    writes: Registers
    data: Registers = NONE  # stored by a memory operation

    @property
    def touched(self) -> Registers:
        """Read or written."""
        return self.reads | self.writes


def registers(operand: str) -> Registers:
    """Registers that an operand's text names."""
    found: set[int] = set()
    for match in _REGISTER.finditer(operand):
        if match["name"]:
            found.update(_NAMED[match["name"]])
            continue
        first = int(match["only"] or match["first"])
        last = int(match["last"] or first)
        base = _BASE[match["file"]]
        found.update(range(base + first, base + last + 1))
    return frozenset(found)


def is_valu(inst: Instruction) -> bool:
    """Vector arithmetic, MFMA included."""
    return inst.mnemonic.startswith("v_")


def is_mfma(inst: Instruction) -> bool:
    """Matrix operation."""
    return inst.mnemonic.startswith(("v_mfma", "v_smfmac"))


def is_salu(inst: Instruction) -> bool:
    """Scalar arithmetic or control; not a scalar load."""
    return inst.mnemonic.startswith("s_") and not is_smem(inst)


def is_smem(inst: Instruction) -> bool:
    """Operation of the scalar memory path."""
    return inst.mnemonic.startswith(
        ("s_load", "s_buffer_", "s_store", "s_scratch_", "s_memtime", "s_memrealtime", "s_atc_")
    )


def is_ds(inst: Instruction) -> bool:
    """LDS operation."""
    return inst.mnemonic.startswith("ds_")


def is_flat(inst: Instruction) -> bool:
    """Operation that may go to LDS or to memory."""
    return inst.mnemonic.startswith("flat_")


def is_vmem(inst: Instruction) -> bool:
    """Vector memory operation, FLAT and cache control included."""
    return is_flat(inst) or inst.mnemonic.startswith(("global_", "buffer_", "tbuffer_", "scratch_"))


def is_lds_dma(inst: Instruction) -> bool:
    """A load of memory straight into LDS."""
    return is_vmem(inst) and ("lds" in inst.modifiers or "_load_lds_" in inst.mnemonic)


def is_atomic(inst: Instruction) -> bool:
    """Read-modify-write of memory or LDS."""
    name = inst.mnemonic
    if is_ds(inst):
        return not name.startswith(
            (
                *("ds_read", "ds_write", "ds_load", "ds_store", "ds_bpermute", "ds_permute"),
                *("ds_swizzle", "ds_nop", "ds_append", "ds_consume", "ds_gws"),
            )
        )
    return "_atomic_" in name


def is_store(inst: Instruction) -> bool:
    """Store to memory or LDS that is no atomic."""
    return "_store" in inst.mnemonic or inst.mnemonic.startswith(("ds_write", "s_store"))


def is_cache_control(inst: Instruction) -> bool:
    """Write-back or invalidation of a cache."""
    return inst.mnemonic.startswith(("buffer_wbl2", "buffer_inv"))


def returns_data(inst: Instruction) -> bool:
    """Memory operation whose first operand is a result."""
    if is_lds_dma(inst) or is_store(inst) or is_cache_control(inst):
        return False
    if is_atomic(inst):
        return "_rtn" in inst.mnemonic if is_ds(inst) else "sc0" in inst.modifiers
    return True


@functools.lru_cache(maxsize=1 << 16)
def use(inst: Instruction) -> Use:
    """Registers that `inst` reads and writes."""
    if is_vmem(inst) or is_ds(inst):
        return _memory_use(inst)
    name = inst.mnemonic
    fields = [registers(operand) for operand in inst.operands]
    results = 0 if _NO_RESULT.match(name) else 2 if _TWO_RESULTS.match(name) else 1
    writes = frozenset().union(*fields[:results])
    reads = frozenset().union(*fields[results:])
    if _READS_ITS_RESULT.search(name) or "dst_unused:UNUSED_PRESERVE" in inst.modifiers:
        reads |= fields[0] if fields else NONE
    if "swap_b32" in name:
        reads |= writes
    if is_valu(inst):
        reads |= frozenset(EXEC)
        if name.startswith("v_cmpx"):
            writes |= frozenset(EXEC)
        if name.startswith("v_div_fmas"):
            reads |= frozenset(VCC)
        if any(m.startswith(("row_", "quad_perm", "wave_")) for m in inst.modifiers):
            reads |= fields[0]  # lanes without a source keep their value
    elif is_salu(inst):
        reads, writes = _salu_use(inst, reads, writes)
    return Use(reads, writes)


def _salu_use(
    inst: Instruction, reads: Registers, writes: Registers
) -> tuple[Registers, Registers]:
    name = inst.mnemonic
    if not _KEEPS_SCC.match(name):
        writes |= {SCC}
    if _READS_SCC.match(name):
        reads |= {SCC}
    if "saveexec" in name or "wrexec" in name:
        reads, writes = reads | frozenset(EXEC), writes | frozenset(EXEC)
    if name.startswith("s_cbranch_vcc"):
        reads |= frozenset(VCC)
    if name.startswith("s_cbranch_exec"):
        reads |= frozenset(EXEC)
    if name.startswith(("s_sendmsg", "s_movrel")):
        reads |= {M0}
    return reads, writes


def _memory_use(inst: Instruction) -> Use:
    fields = [registers(operand) for operand in inst.operands]
    if is_cache_control(inst) or not fields:
        return Use(NONE, NONE)
    reads, writes, data = frozenset(EXEC), NONE, NONE
    if is_lds_dma(inst):
        reads |= {M0}
    if returns_data(inst):
        writes = fields[0]
        # A buffer atomic's result replaces its operand; 16-bit loads keep the other half.
        if is_atomic(inst) and inst.mnemonic.startswith("buffer_"):
            data = fields[0]
        elif "_d16" in inst.mnemonic:
            reads |= fields[0]
        rest = fields[1:]
        if is_atomic(inst) and not inst.mnemonic.startswith("buffer_"):
            data = frozenset().union(*rest[1:2]) if is_vmem(inst) else frozenset().union(*rest[1:])
        return Use(reads.union(data, *rest), writes, data)
    if is_store(inst) or is_atomic(inst):
        buffered = inst.mnemonic.startswith(("buffer_", "tbuffer_"))
        data = fields[0] if buffered else frozenset().union(*fields[1:2])
        if is_ds(inst):
            data = frozenset().union(*fields[1:])
    return Use(reads.union(*fields), NONE, data)
