"""Instructions that hazards involve, as LLVM's machine IR.

A template has slots for registers: `{name:v4}` is a tuple of four VGPRs, `a` of AGPRs, `s` of
SGPRs; `{name}` repeats one. A slot's value is its first register. Slots whose name begins with `x`
take M0 and EXEC as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

VCC, M0, EXEC = 106, 124, 126
_SLOT = re.compile(r"\{(\w+)(?::([vas])(\d+))?\}")
_FILES = {"v": "vgpr", "a": "agpr", "s": "sgpr"}
_NAMED = {(VCC, 2): "$vcc", (VCC, 1): "$vcc_lo", (M0, 1): "$m0", (EXEC, 2): "$exec"}


@dataclass(frozen=True, slots=True)
class Slot:
    """Registers of an operand: file ("v", "a" or "s") and how many."""

    file: str
    width: int

    @property
    def alignment(self) -> int:
        """Of the first register: tuples of VGPRs begin at even ones."""
        return min(self.width, 4) if self.file == "s" else min(self.width, 2)


def registers(slot: Slot, first: int) -> str:
    """A tuple of registers, as machine IR names it."""
    if slot.file == "s" and (first, slot.width) in _NAMED:
        return _NAMED[first, slot.width]
    return "$" + "_".join(f"{_FILES[slot.file]}{first + i}" for i in range(slot.width))


@dataclass(frozen=True)
class Template:
    """An instruction whose registers are open."""

    mir: str

    @cached_property
    def slots(self) -> dict[str, Slot]:
        """By name, in order of first appearance."""
        return {m[1]: Slot(m[2], int(m[3])) for m in _SLOT.finditer(self.mir) if m[2]}

    def render(self, chosen: Mapping[str, int]) -> str:
        """Machine IR with the registers put in."""
        return _SLOT.sub(lambda m: registers(self.slots[m[1]], chosen[m[1]]), self.mir)


_EXEC = "implicit $exec"
_MODE = f"implicit $mode, {_EXEC}"


def _mfma(name: str, d: int, a: int, b: int, file: str = "v") -> str:
    # f64 has one modifier of sources, the others have cbsz, abid and blgp.
    suffix = "_vgprcd_e64" if file == "v" else "_e64"
    return (
        f"{{d:{file}{d}}} = V_MFMA_{name}{suffix} {{a:v{a}}}, {{b:v{b}}}, {{c:{file}{d}}}, "
        f"0, 0, 0, {_MODE}"
    )


def _smfmac(name: str, d: int, a: int, b: int) -> str:
    operands = f"{{a:v{a}}}, {{b:v{b}}}, {{i:v1}}, 0, 0, {{d}}"
    return f"{{d:v{d}}} = V_SMFMAC_{name}_e64 {operands}, {_MODE}"


def _f8f6f4(size: str, forms: tuple[str, str], scaled: bool = False) -> str:
    # MIR names have the widths of A and B, and operands their formats besides.
    a, b = forms
    d = {"16X16X128": 4, "32X32X64": 16}[size]
    selects = {"f8": 0, "f6": 2, "f4": 4}
    operands = f"{{a:v{a[1]}}}, {{b:v{b[1]}}}, {{c:v{d}}}, {selects[a]}, {selects[b]}"
    scales = ", {x:v1}, {y:v1}, 12, 8" if scaled else ""
    name = f"V_MFMA_{'SCALE_' if scaled else ''}F32_{size}_F8F6F4_{a}_{b}_vgprcd_e64"
    return f"{{d:v{d}}} = {name} {operands}{scales}, {_MODE}"


# Every matrix instruction: name, registers of D (and C), A, B.
DENSE = (
    *(("F32_" + n, *r) for n, r in {
        "32X32X1F32": (32, 1, 1), "16X16X1F32": (16, 1, 1), "4X4X1F32": (4, 1, 1),
        "32X32X2F32": (16, 1, 1), "16X16X4F32": (4, 1, 1),
        "32X32X4F16": (32, 2, 2), "16X16X4F16": (16, 2, 2), "4X4X4F16": (4, 2, 2),
        "32X32X8F16": (16, 2, 2), "16X16X16F16": (4, 2, 2),
        "32X32X4BF16_1K": (32, 2, 2), "16X16X4BF16_1K": (16, 2, 2), "4X4X4BF16_1K": (4, 2, 2),
        "32X32X8BF16_1K": (16, 2, 2), "16X16X16BF16_1K": (4, 2, 2),
        "16X16X8XF32": (4, 2, 2), "32X32X4XF32": (16, 2, 2),
        **{f"{s}_{a}_{b}": (d, 2, 2) for s, d in (("16X16X32", 4), ("32X32X16", 16))
           for a in ("BF8", "FP8") for b in ("BF8", "FP8")},
    }.items()),
    *(("I32_" + n, *r) for n, r in {
        "32X32X4I8": (32, 1, 1), "16X16X4I8": (16, 1, 1), "4X4X4I8": (4, 1, 1),
        "32X32X16I8": (16, 2, 2), "16X16X32I8": (4, 2, 2),
    }.items()),
    ("F64_16X16X4F64", 8, 2, 2),
    ("F64_4X4X4F64", 2, 2, 2),
)  # fmt: skip
SPARSE = (
    *((f"F32_{s}_{t}", d, 2, 4) for s, d in (("16X16X32", 4), ("32X32X16", 16))
      for t in ("F16", "BF16")),
    *((f"F32_{s}_{a}_{b}", d, 2, 4) for s, d in (("16X16X64", 4), ("32X32X32", 16))
      for a in ("BF8", "FP8") for b in ("BF8", "FP8")),
    ("I32_16X16X64_I8", 4, 2, 4),
    ("I32_32X32X32_I8", 16, 2, 4),
)  # fmt: skip
DENSE_950 = (
    *((f"F32_{s}_{t}", d, 4, 4) for s, d in (("16X16X32", 4), ("32X32X16", 16))
      for t in ("F16", "BF16")),
    ("I32_16X16X64_I8", 4, 4, 4),
    ("I32_32X32X32_I8", 16, 4, 4),
)  # fmt: skip
SPARSE_950 = (
    *((f"F32_{s}_{t}", d, 4, 8) for s, d in (("16X16X64", 4), ("32X32X32", 16))
      for t in ("F16", "BF16")),
    *((f"F32_{s}_{a}_{b}", d, 4, 8) for s, d in (("16X16X128", 4), ("32X32X64", 16))
      for a in ("BF8", "FP8") for b in ("BF8", "FP8")),
    ("I32_16X16X128_I8", 4, 4, 8),
    ("I32_32X32X64_I8", 16, 4, 8),
)  # fmt: skip
_WIDTHS = ("f8", "f6", "f4")
F8F6F4 = tuple(
    _f8f6f4(size, (a, b), scaled)
    for size in ("16X16X128", "32X32X64")
    for a in _WIDTHS
    for b in _WIDTHS
    for scaled in (False, True)
)


def all_matrix(cpu: str) -> tuple[str, ...]:
    """Every matrix instruction of a processor."""
    if cpu == "gfx950":
        dense, sparse = (*(m for m in DENSE if "XF32" not in m[0]), *DENSE_950), SPARSE + SPARSE_950
        return (*(_mfma(*m) for m in dense), *(_smfmac(*m) for m in sparse), *F8F6F4)
    return (*(_mfma(*m) for m in DENSE), *(_smfmac(*m) for m in SPARSE))


# One of each kind and number of passes, some in AGPRs.
_CHOSEN = {
    "F32_4X4X4F16", "F32_16X16X16BF16_1K", "F32_32X32X8F16", "F32_32X32X4BF16_1K",
    "F32_16X16X4F16", "I32_16X16X32I8", "F32_32X32X4XF32", "F32_16X16X32_FP8_BF8",
    "F32_4X4X1F32", "F32_16X16X4F32", "F32_16X16X1F32", "F32_32X32X2F32",
    "F64_16X16X4F64", "F64_4X4X4F64",
}  # fmt: skip
MATRIX = (
    *(_mfma(*m) for m in DENSE if m[0] in _CHOSEN),
    *(_mfma(*m, "a") for m in DENSE if m[0] in ("F32_32X32X8F16", "F32_4X4X1F32")),
    _smfmac("F32_16X16X32_F16", 4, 2, 4),
    _smfmac("I32_32X32X32_I8", 16, 2, 4),
)
MATRIX_950 = (
    *(m for m in MATRIX if "XF32" not in m),
    _mfma("F32_16X16X32_BF16", 4, 4, 4),
    _mfma("F32_32X32X16_F16", 16, 4, 4),
    _mfma("F32_32X32X16_BF16", 16, 4, 4, "a"),
    _smfmac("F32_16X16X64_BF16", 4, 4, 8),
    _smfmac("F32_32X32X64_FP8_FP8", 16, 4, 8),
    _f8f6f4("16X16X128", ("f8", "f4")),
    _f8f6f4("16X16X128", ("f4", "f6")),
    _f8f6f4("32X32X64", ("f8", "f8")),
    _f8f6f4("16X16X128", ("f4", "f4"), scaled=True),
    _f8f6f4("32X32X64", ("f6", "f8"), scaled=True),
)

_DPP = "273, 15, 15, 0"  # row_shr:1, all rows and banks
VALU = (
    f"{{d:v1}} = V_MOV_B32_e32 {{a:v1}}, {_EXEC}",
    f"{{d:v1}} = V_MOV_B32_e32 {{x:s1}}, {_EXEC}",
    f"{{d:v1}} = V_ADD_F32_e32 {{a:v1}}, {{b:v1}}, {_MODE}",
    f"{{d:v1}} = V_FMA_F32_e64 0, {{a:v1}}, 0, {{b:v1}}, 0, {{c:v1}}, 0, 0, {_MODE}",
    f"{{d:v1}} = V_FMAC_F32_e32 {{a:v1}}, {{b:v1}}, {{d}}, {_MODE}",
    f"{{d:v2}} = V_PK_MUL_F32 8, {{a:v2}}, 8, {{b:v2}}, 0, 0, 0, 0, 0, {_MODE}",
    f"{{d:v2}} = V_LSHLREV_B64_e64 {{a:v1}}, {{b:v2}}, {_EXEC}",
    f"{{d:v2}} = V_FMA_F64_e64 0, {{a:v2}}, 0, {{b:v2}}, 0, {{c:v2}}, 0, 0, {_MODE}",
    f"{{d:v2}} = V_FMAC_F64_e32 {{a:v2}}, {{b:v2}}, {{d}}, {_MODE}",
    f"{{d:v2}} = V_ADD_F64_e64 0, {{a:v2}}, 0, {{b:v2}}, 0, 0, {_MODE}",
    f"{{d:v1}} = V_ACCVGPR_READ_B32_e64 {{a:a1}}, {_EXEC}",
    f"{{d:a1}} = V_ACCVGPR_WRITE_B32_e64 {{a:v1}}, {_EXEC}",
    # Transcendental
    f"{{d:v1}} = V_EXP_F32_e32 {{a:v1}}, {_MODE}",
    f"{{d:v1}} = V_RCP_F16_e32 {{a:v1}}, {_MODE}",
    f"{{d:v2}} = V_RSQ_F64_e32 {{a:v2}}, {_MODE}",
    f"{{d:v1}} = V_SQRT_F32_e32 {{a:v1}}, {_MODE}",
    # Dot products
    f"{{d:v1}} = V_DOT2_F32_F16 8, {{a:v1}}, 8, {{b:v1}}, 8, {{c:v1}}, 0, 0, 0, 0, 0, {_MODE}",
    f"{{d:v1}} = V_DOT4_I32_I8 0, {{a:v1}}, 0, {{b:v1}}, 0, {{c:v1}}, 0, 0, 0, {_EXEC}",
    f"{{d:v1}} = V_DOT2C_F32_F16_e32 {{a:v1}}, {{b:v1}}, {{d}}, {_MODE}",
    # A part of the destination: SDWA (selects, then what becomes of the rest), op_sel, fp8
    f"{{d:v1}} = V_ADD_F16_sdwa 0, {{a:v1}}, 0, {{b:v1}}, 0, 0, 5, 0, 6, 6, {_MODE}",
    f"{{d:v1}} = V_ADD_F16_sdwa 0, {{a:v1}}, 0, {{b:v1}}, 0, 0, 6, 0, 5, 4, {_MODE}",
    f"{{d:v1}} = V_ADD_F16_sdwa 0, {{a:v1}}, 0, {{b:v1}}, 0, 0, 5, 2, 6, 6, {_MODE}, "
    "implicit {d}(tied-def 0)",
    f"{{d:v1}} = V_MAD_U16_gfx9_e64 8, {{a:v1}}, 0, {{b:v1}}, 0, {{c:v1}}, 0, 0, {_EXEC}",
    f"{{d:v1}} = V_MAD_U16_gfx9_e64 4, {{a:v1}}, 0, {{b:v1}}, 0, {{c:v1}}, 0, 0, {_EXEC}",
    f"{{d:v1}} = V_CVT_PK_FP8_F32_e64 8, {{a:v1}}, 0, {{b:v1}}, {{d}}, 0, {_MODE}",
    f"{{d:v1}} = V_CVT_PK_FP8_F32_e64 0, {{a:v1}}, 0, {{b:v1}}, {{d}}, 0, {_MODE}",
    f"{{d:v1}} = V_CVT_SR_BF8_F32_e64 8, {{a:v1}}, 0, {{b:v1}}, 4, {{d}}, 0, {_MODE}",
    f"{{d:v1}} = V_CVT_SR_BF8_F32_e64 0, {{a:v1}}, 0, {{b:v1}}, 4, {{d}}, 0, {_MODE}",
    f"{{d:v1}} = V_CVT_SR_BF8_F32_e64 0, {{a:v1}}, 0, {{b:v1}}, 0, {{d}}, 0, {_MODE}",
    f"{{d:v1}} = V_FMA_MIXHI_F16 0, {{a:v1}}, 0, {{b:v1}}, 0, {{c:v1}}, 0, {{d}}, 0, 0, {_MODE}",
    # DPP
    f"{{d:v1}} = V_MOV_B32_dpp {{d}}, {{a:v1}}, {_DPP}, {_EXEC}",
    f"{{d:v1}} = V_ADD_F32_dpp {{d}}, 0, {{a:v1}}, 0, {{b:v1}}, {_DPP}, {_MODE}",
    # Scalar results and sources
    f"V_CMP_EQ_U32_e32 {{a:v1}}, {{b:v1}}, implicit-def $vcc, {_EXEC}",
    f"{{d:s2}} = V_CMP_LT_F32_e64 0, {{a:v1}}, 0, {{b:v1}}, 0, {_MODE}",
    f"V_CMPX_EQ_U32_e32 {{a:v1}}, {{b:v1}}, implicit-def $exec, implicit-def $vcc, {_EXEC}",
    f"{{d:s2}} = V_CMPX_EQ_U32_e64 {{a:v1}}, {{b:v1}}, implicit-def $exec, {_EXEC}",
    f"{{d:v1}}, {{e:s2}} = V_ADD_CO_U32_e64 {{a:v1}}, {{b:v1}}, 0, {_EXEC}",
    f"{{d:v1}} = V_ADDC_U32_e32 {{a:v1}}, {{b:v1}}, implicit-def $vcc, implicit $vcc, {_EXEC}",
    f"{{d:v1}} = V_CNDMASK_B32_e64 0, {{a:v1}}, 0, {{b:v1}}, {{c:s2}}, {_EXEC}",
    f"{{d:v1}} = V_CNDMASK_B32_e32 {{a:v1}}, {{b:v1}}, implicit $vcc, {_EXEC}",
    f"{{d:v1}}, {{e:s2}} = V_DIV_SCALE_F32_e64 0, {{a:v1}}, 0, {{b:v1}}, 0, {{a}}, 0, 0, {_MODE}",
    f"{{d:v1}} = V_DIV_FMAS_F32_e64 0, {{a:v1}}, 0, {{b:v1}}, 0, {{c:v1}}, 0, 0, implicit $vcc, "
    f"{_MODE}",
    f"{{d:v1}} = V_ADD_U32_e64 {{x:s1}}, {{b:v1}}, 0, {_EXEC}",
    f"{{d:v2}} = V_LSHLREV_B64_e64 {{a:v1}}, {{x:s2}}, {_EXEC}",
    f"{{d:s1}} = V_READFIRSTLANE_B32 {{a:v1}}, {_EXEC}",
    "{d:s1} = V_READLANE_B32 {a:v1}, {x:s1}",
    "{d:s1} = V_READLANE_B32 {a:v1}, 5",
    "{d:v1} = V_WRITELANE_B32 {a:s1}, 5, {d}",
    "{d:v1} = V_WRITELANE_B32 17, {x:s1}, {d}",
    f"{{d:v1}}, {{a:v1}} = V_SWAP_B32 {{a}}, {{d}}, {_EXEC}",
)
_FLAT = "implicit $exec, implicit $flat_scr"
MEMORY = (
    f"{{d:v1}} = GLOBAL_LOAD_DWORD {{a:v2}}, 0, 0, {_EXEC}",
    f"{{d:v4}} = GLOBAL_LOAD_DWORDX4_SADDR {{s:s2}}, {{a:v1}}, 0, 0, {_EXEC}",
    f"GLOBAL_STORE_DWORD {{a:v2}}, {{b:v1}}, 0, 0, {_EXEC}",
    f"GLOBAL_STORE_DWORDX2 {{a:v2}}, {{b:v2}}, 0, 0, {_EXEC}",
    f"GLOBAL_STORE_DWORDX3 {{a:v2}}, {{b:v3}}, 0, 0, {_EXEC}",
    f"GLOBAL_STORE_DWORDX4_SADDR {{a:v1}}, {{b:v4}}, {{s:s2}}, 0, 0, {_EXEC}",
    f"GLOBAL_ATOMIC_CMPSWAP_X2 {{a:v2}}, {{b:v4}}, 0, 0, {_EXEC}",
    f"{{d:v1}} = GLOBAL_ATOMIC_ADD_RTN {{a:v2}}, {{b:v1}}, 0, 1, {_EXEC}",
    f"FLAT_STORE_DWORDX4 {{a:v2}}, {{b:v4}}, 0, 0, {_FLAT}",
    f"{{d:v2}} = FLAT_LOAD_DWORDX2 {{a:v2}}, 0, 0, {_FLAT}",
    f"SCRATCH_STORE_DWORDX4_SADDR {{b:v4}}, {{s:s1}}, 0, 0, {_FLAT}",
    f"{{d:v1}} = BUFFER_LOAD_DWORD_OFFEN {{a:v1}}, {{r:s4}}, {{s:s1}}, 0, 0, 0, {_EXEC}",
    f"BUFFER_STORE_DWORDX4_OFFEN_exact {{b:v4}}, {{a:v1}}, {{r:s4}}, 0, 0, 0, 0, {_EXEC}",
    f"BUFFER_STORE_DWORDX4_OFFEN_exact {{b:v4}}, {{a:v1}}, {{r:s4}}, {{s:s1}}, 0, 0, 0, {_EXEC}",
    f"BUFFER_STORE_DWORD_OFFSET_exact {{b:v1}}, {{r:s4}}, 0, 0, 0, 0, {_EXEC}",
    f"BUFFER_STORE_FORMAT_XYZ_OFFEN_exact {{b:v3}}, {{a:v1}}, {{r:s4}}, 0, 0, 0, 0, {_EXEC}",
    f"BUFFER_LOAD_DWORD_LDS_OFFEN {{a:v1}}, {{r:s4}}, 0, 0, 0, 0, 0, {_EXEC}, implicit $m0",
    f"GLOBAL_LOAD_LDS_DWORD {{a:v2}}, 0, 0, 0, implicit $m0, {_EXEC}",
    f"{{d:v1}} = DS_READ_B32_gfx9 {{a:v1}}, 0, 0, {_EXEC}",
    f"{{d:v4}} = DS_READ_B128_gfx9 {{a:v1}}, 0, 0, {_EXEC}",
    f"DS_WRITE_B32_gfx9 {{a:v1}}, {{b:v1}}, 0, 0, {_EXEC}",
    f"DS_WRITE_B128_gfx9 {{a:v1}}, {{b:v4}}, 0, 0, {_EXEC}",
    f"DS_WRITE_B32_gfx9 {{a:v1}}, {{b:a1}}, 0, 0, {_EXEC}",
    f"{{d:v1}} = DS_BPERMUTE_B32 {{a:v1}}, {{b:v1}}, 0, {_EXEC}",
    f"{{d:v1}} = DS_READ_ADDTID_B32 0, 0, implicit $m0, {_EXEC}",
    f"DS_WRITE_ADDTID_B32 {{b:v1}}, 0, 0, implicit $m0, {_EXEC}",
    "{d:s4} = S_LOAD_DWORDX4_IMM {a:s2}, 0, 0",
)
# HWREG: register | first bit << 6 | (bits - 1) << 11, as a signed 16-bit number
_MODE_LOW, _MODE_VSKIP, _TRAPSTS = 1 | 3 << 11, 1 | 28 << 6, 3 | 15 << 11
SCALAR = (
    "{d:s1} = S_MOV_B32 {a:s1}",
    "{d:s2} = S_MOV_B64 {a:s2}",
    "$m0 = S_MOV_B32 {a:s1}",
    "$exec = S_MOV_B64 {a:s2}",
    "{d:s1} = S_ADD_U32 {a:s1}, {b:s1}, implicit-def $scc",
    "{d:s2} = S_AND_SAVEEXEC_B64 {a:s2}, implicit-def $exec, implicit-def $scc, implicit $exec",
    f"S_SETREG_B32 {{a:s1}}, {_MODE_LOW}, implicit-def $mode, implicit $mode",
    f"S_SETREG_IMM32_B32 1, {_MODE_VSKIP}, implicit-def $mode, implicit $mode",
    f"S_SETREG_IMM32_B32 1, {_TRAPSTS}, implicit-def $mode, implicit $mode",
    f"{{d:s1}} = S_GETREG_B32 {_MODE_LOW}, implicit $mode",
    f"{{d:s1}} = S_GETREG_B32 {_TRAPSTS}, implicit $mode",
    "S_SENDMSG 3, implicit $exec, implicit $m0",
    "{d:s1} = S_MOVRELS_B32 {a:s1}, implicit $m0",
    "S_SETVSKIP {a:s1}, {b:s1}, implicit-def $scc",
)
# Of gfx950 only.
VALU_950 = (
    f"{{d:v1}}, {{a:v1}} = V_PERMLANE16_SWAP_B32_e32 {{d}}, {{a}}, {_EXEC}",
    f"{{d:v1}}, {{a:v1}} = V_PERMLANE32_SWAP_B32_e64 {{d}}, {{a}}, 0, 0, {_EXEC}",
    f"{{d:v1}} = V_CVT_PK_BF16_F32_e64 0, {{a:v1}}, 0, {{b:v1}}, 0, 0, {_MODE}",
    f"{{d:v1}} = V_CVT_SCALEF32_PK_FP8_F32_e64 0, {{a:v1}}, 0, {{b:v1}}, 0, {{c:v1}}, {{d}}, 0, "
    f"{_MODE}",
    f"{{d:v1}} = V_CVT_SCALEF32_PK_FP8_F32_e64 8, {{a:v1}}, 0, {{b:v1}}, 0, {{c:v1}}, {{d}}, 0, "
    f"{_MODE}",
    f"{{d:v1}} = V_CVT_SCALEF32_SR_FP8_F32_e64 0, {{a:v1}}, 0, {{b:v1}}, 4, {{c:v1}}, {{d}}, 0, "
    f"{_MODE}",
    f"{{d:v1}} = V_CVT_SCALEF32_SR_FP8_F32_e64 0, {{a:v1}}, 0, {{b:v1}}, 0, {{c:v1}}, {{d}}, 0, "
    f"{_MODE}",
    f"{{d:v1}} = V_CVT_SCALEF32_PK_FP4_F32_e64 0, {{a:v1}}, 0, {{b:v1}}, 4, {{c:v1}}, {{d}}, 0, "
    f"{_MODE}",
    f"{{d:v1}} = V_CVT_SCALEF32_PK_FP4_F32_e64 0, {{a:v1}}, 0, {{b:v1}}, 0, {{c:v1}}, {{d}}, 0, "
    f"{_MODE}",
    f"{{d:v1}} = V_CVT_SCALEF32_SR_PK_FP4_F32_e64 0, {{a:v2}}, 0, {{b:v1}}, 0, {{c:v1}}, {{d}}, 0, "
    f"{_MODE}",
    f"{{d:v1}} = V_CVT_SCALEF32_F16_FP8_e64 8, {{a:v1}}, 0, {{b:v1}}, {{d}}, 0, {_MODE}",
    f"{{d:v2}} = V_CVT_SCALEF32_PK_F32_FP4_e64 0, {{a:v1}}, 0, {{b:v1}}, 0, {_MODE}",
    f"{{d:v1}} = V_BITOP3_B32_e64 {{a:v1}}, {{b:v1}}, {{c:v1}}, 22, {_EXEC}",
    f"{{d:v1}} = V_BITOP3_B16_e64 8, {{a:v1}}, 0, {{b:v1}}, 0, {{c:v1}}, 22, 8, {_EXEC}",
    f"{{d:v1}} = V_PRNG_B32_e32 {{a:v1}}, {_EXEC}",
    f"{{d:v1}} = V_ASHR_PK_U8_I32_e64 0, {{a:v1}}, 0, {{b:v1}}, 0, {{c:v1}}, 0, {_EXEC}",
    f"{{d:v1}} = V_ASHR_PK_U8_I32_e64 8, {{a:v1}}, 0, {{b:v1}}, 0, {{c:v1}}, 0, {_EXEC}",
    f"{{d:v1}} = V_MINIMUM3_F32_e64 0, {{a:v1}}, 0, {{b:v1}}, 0, {{c:v1}}, 0, 0, {_MODE}",
    f"{{d:v1}} = V_DOT2_F32_BF16 8, {{a:v1}}, 8, {{b:v1}}, 8, {{c:v1}}, 0, 0, 0, 0, 0, {_MODE}",
    f"{{d:v1}} = V_DOT2C_F32_BF16_e32 {{a:v1}}, {{b:v1}}, {{d}}, {_MODE}",
)
MEMORY_950 = (
    f"{{d:v2}} = DS_READ_B64_TR_B16 {{a:v1}}, 0, 0, {_EXEC}",
    f"{{d:v3}} = DS_READ_B96_TR_B6 {{a:v1}}, 0, 0, {_EXEC}",
    f"BUFFER_LOAD_DWORDX4_LDS_OFFEN {{a:v1}}, {{r:s4}}, 0, 0, 0, 0, 0, {_EXEC}, implicit $m0",
    f"GLOBAL_LOAD_LDS_DWORDX4 {{a:v2}}, 0, 0, 0, implicit $m0, {_EXEC}",
)


def templates(cpu: str) -> tuple[Template, ...]:
    """Of a processor, one of each kind of instruction."""
    if cpu == "gfx950":
        texts = (*MATRIX_950, *VALU, *VALU_950, *MEMORY, *MEMORY_950, *SCALAR)
        return tuple(map(Template, texts))
    return tuple(map(Template, (*MATRIX, *VALU, *MEMORY, *SCALAR)))
