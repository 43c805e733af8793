"""Required wait states, and which pairs of instructions of a kernel lack them.

A table and an analysis of its own, apart from the virtual device's. Sources: CDNA3 and CDNA4 ISA
references, section 4.5 (manually inserted wait states) and section 7 (dependency resolution of
matrix instructions), and what LLVM keeps beyond them behind matrix instructions of CDNA4; a wait
state is an instruction between the two, and s_nop N counts N + 1.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.checker_mutation import registers as regs
from benchmarks.checker_mutation.code import Instruction
from benchmarks.checker_mutation.dataflow import ForwardAnalysis
from benchmarks.checker_mutation.kernel import KernelCode


@dataclass(frozen=True, slots=True)
class _Rules:
    """What differs between architectures.

    `horizon` is the most that any pair needs. `behind_xdl` are states that one of 4 passes and more
    needs beyond those of CDNA3, `behind_f64` those of a 16x16 product before (a matrix instruction
    or a VALU, its accumulator in other registers).
    """

    horizon: int
    behind_xdl: int
    behind_f64: tuple[int, int]
    swaps: bool  # has v_permlane*_swap


_RULES = {
    "gfx942": _Rules(horizon=19, behind_xdl=0, behind_f64=(11, 9), swaps=False),
    "gfx950": _Rules(horizon=20, behind_xdl=1, behind_f64=(19, 17), swaps=True),
}
# The manual asks for no state of a carry and has no row for a lane mask; LLVM keeps two for both.
_AS_MASK = "VALU writes SGPR or VCC -> VALU reads it as carry-in or lane mask"
# The manual's row is taken to mean the source that lanes exchange; LLVM means all of them.
_AS_OTHER = "VALU writes VGPR -> DPP reads it as a source other than the one lanes exchange"
LLVM_ONLY = (_AS_MASK, _AS_OTHER)

_TRANS = re.compile(r"v_(exp|log|rcp|rcp_iflag|rsq|sqrt|sin|cos)_(f16|f32|f64)")
_READLANE = ("v_readlane", "v_readfirstlane")
_SWAPS = ("v_permlane16_swap", "v_permlane32_swap")
_WIDE_STORE = re.compile(r"_store_(dwordx[34]|format_xyzw?|lds_dwordx[34])")
_SHAPE = re.compile(r"v_s?mfmac?_(?:scale_)?\w+?_(\d+)x\d+x\d+_?(?:(\d+)b_)?(\w+)")
_NARROW = re.compile(r"(cbsz|blgp):[234]")  # operands of 6 and of 4 bits
_SGPRS = frozenset(range(108))
_VCC, _EXEC = frozenset(regs.VCC), frozenset(regs.EXEC)


@dataclass(frozen=True, slots=True, order=True)
class Missing:
    """A pair of instructions with too few wait states between them on some path."""

    consumer: int
    producer: int
    required: int
    states: int
    rule: str


def wait_states(inst: Instruction) -> int:
    """States that an instruction puts between its neighbours."""
    return (inst.word & 0xFFFF) + 1 if inst.mnemonic == "s_nop" else 1


@dataclass(frozen=True, slots=True)
class _Matrix:
    passes: int
    kind: str  # "xdl", "sgemm" (float32 operands) or "dgemm"


def _matrix(inst: Instruction) -> _Matrix | None:
    matrix = _by_name(inst.mnemonic)
    if matrix is not None and "f8f6f4" in inst.mnemonic:
        narrow = sum(bool(_NARROW.fullmatch(modifier)) for modifier in inst.modifiers) == 2
        return matrix if narrow else _Matrix(2 * matrix.passes, matrix.kind)
    return matrix


@functools.lru_cache(maxsize=1024)
def _by_name(mnemonic: str) -> _Matrix | None:
    match = _SHAPE.fullmatch(mnemonic.removesuffix("_e64"))
    if match is None:
        return None
    rows, blocks, types = int(match[1]), match[2], match[3]
    if types == "f64":
        return _Matrix(8 if rows == 16 else 4, "dgemm")
    kind = "sgemm" if types == "f32" else "xdl"
    if rows == 4:
        return _Matrix(2, kind)
    passes = {16: 4, 32: 8}[rows]
    return _Matrix(passes * (2 if kind == "sgemm" or blocks else 1), kind)


def _is_dpp(inst: Instruction) -> bool:
    return inst.mnemonic.endswith("_dpp")


def _moves_its_result(inst: Instruction) -> bool:
    """The result lands elsewhere in the register than in its low bits (SDWA, op_sel)."""
    for modifier in inst.modifiers:
        if modifier.startswith("dst_sel:") and modifier != "dst_sel:DWORD":
            return True
        if modifier.startswith("op_sel:[") and not inst.mnemonic.startswith(("v_pk_", "v_dot")):
            return modifier.endswith("1]")
    return False


def _requirements(
    rules: _Rules, first: Instruction, second: Instruction, live: regs.Registers
) -> Iterator[tuple[int, str]]:
    """(states, rule) between two instructions; `live`: results of the first not replaced since."""
    a, b = regs.use(first), regs.use(second)
    if regs.is_mfma(first):
        yield from _after_matrix(rules, first, second, live)
    elif regs.is_valu(first):
        if rules.swaps and second.mnemonic.startswith(_SWAPS):
            if live & _EXEC:
                yield 4, "v_cmpx -> v_permlane_swap"
            if any(r >= regs.VGPR for r in live & b.reads):
                yield 2, "VALU writes VGPR -> v_permlane_swap reads it"
        yield from _after_valu(first, second, live & b.reads, live)
    if _WIDE_STORE.search(first.mnemonic) and regs.is_vmem(first) and regs.is_valu(second):
        buffered = first.mnemonic.startswith(("buffer_", "tbuffer_"))
        held_back = buffered and regs.registers(first.operands[3]) if buffered else frozenset()
        if not held_back and a.data & b.writes:
            yield 2, "store of more than 64 bits -> VALU writes its data"
    # Of vector instructions it selects a lane, for which waves are held back.
    if regs.is_salu(first) and regs.M0 in live & b.reads and not regs.is_valu(second):
        yield 1, "SALU writes M0 -> LDS-DMA, s_sendmsg, s_movrel"
    if (
        first.mnemonic.startswith("s_setreg")
        and second.mnemonic.startswith(("s_setreg", "s_getreg"))
        and _hardware_register(first) == _hardware_register(second)
    ):
        yield 2, "s_setreg -> s_getreg, s_setreg of the same register"


def _hardware_register(inst: Instruction) -> int:
    return inst.word & 0x3F


def _after_valu(
    first: Instruction, second: Instruction, read: regs.Registers, live: regs.Registers
) -> Iterator[tuple[int, str]]:
    vector = frozenset(r for r in read if r >= regs.VGPR)
    scalar = read & _SGPRS
    if regs.is_vmem(second) and scalar:
        yield 5, "VALU writes SGPR -> VMEM reads it"
    if first.mnemonic.startswith("v_dot"):
        yield from _after_dot(first, second, live)
    if not regs.is_valu(second):
        return
    if scalar:
        as_mask = _carry_in(second)
        if scalar & as_mask:
            yield 2, _AS_MASK
        if scalar - as_mask:
            yield 2, "VALU writes SGPR or VCC -> VALU reads it as a constant"
        if second.mnemonic.startswith(("v_readlane", "v_writelane")) and scalar & regs.registers(
            second.operands[2]
        ):
            yield 4, "VALU writes SGPR -> lane select"
        if second.mnemonic.startswith("v_div_fmas") and scalar & _VCC:
            yield 4, "VALU writes VCC -> v_div_fmas"
    if live & _EXEC:
        if _is_dpp(second):
            yield 5, "VALU writes EXEC -> DPP"
        if second.mnemonic.startswith((*_READLANE, "v_writelane")):
            yield 4, "VALU writes EXEC -> readlane, writelane"
        if regs.is_mfma(second):
            yield 4, "v_cmpx -> MFMA"
    if not vector:
        return
    if _is_dpp(second):
        exchanged = regs.registers(second.operands[2 if "_co_" in second.mnemonic else 1])
        yield 2, "VALU writes VGPR -> DPP reads it" if vector & exchanged else _AS_OTHER
    if second.mnemonic.startswith(_READLANE):
        yield 1, "VALU writes VGPR -> readlane reads it"
    if regs.is_mfma(second):
        yield 2, "VALU writes VGPR -> MFMA reads it"
    if _TRANS.match(first.mnemonic) and not _TRANS.match(second.mnemonic):
        yield 1, "transcendental -> VALU reads its result"
    if _moves_its_result(first):
        yield 1, "SDWA or op_sel places the result -> VALU reads it"


def _after_dot(
    first: Instruction, second: Instruction, live: regs.Registers
) -> Iterator[tuple[int, str]]:
    result, use = live & regs.use(first).writes, regs.use(second)
    vector = (regs.is_valu, regs.is_mfma, regs.is_vmem, regs.is_ds)
    if not any(of(second) for of in vector):
        return
    if first.mnemonic != second.mnemonic:
        if result & (use.reads | use.writes):
            yield 3, "v_dot -> another instruction reads or writes its result"
    elif result & (regs.registers(second.operands[1]) | regs.registers(second.operands[2])):
        yield 3, "v_dot -> the same reads its result as A or B"


def _carry_in(inst: Instruction) -> regs.Registers:
    """The lane mask or carry that an instruction takes, if it does."""
    if inst.mnemonic.startswith("v_div_fmas"):
        return _VCC
    if inst.mnemonic.startswith(("v_cndmask_b32", "v_addc_co", "v_subb_co", "v_subbrev_co")):
        return regs.registers(inst.operands[-1])
    return regs.NONE


def _after_matrix(
    rules: _Rules, first: Instruction, second: Instruction, live: regs.Registers
) -> Iterator[tuple[int, str]]:
    matrix = _matrix(first)
    if matrix is None:
        return
    a, b = regs.use(first), regs.use(second)
    passes, xdl = matrix.passes, matrix.kind == "xdl"
    if matrix.kind == "dgemm":
        read, overlap = rules.behind_f64 if passes == 8 else (6, 4)
        to_matrix, to_valu, to_memory = read, read, 18 if passes == 8 else 9
        accumulate = overlap
    else:
        more = rules.behind_xdl if xdl else 0
        to_matrix = to_valu = to_memory = passes + (3 if xdl else 2) + (more if passes > 2 else 0)
        accumulate, overlap = 2 if passes == 2 else 0, passes + (1 if xdl else 0) + more
    result = live & a.writes
    if regs.is_mfma(second):
        sources = [regs.registers(operand) for operand in second.operands[1:]]
        if result & (sources[0] | sources[1]):
            yield to_matrix, "MFMA -> MFMA reads its result as A or B"
        addend = regs.registers(second.operands[0]) if "smfmac" in second.mnemonic else sources[2]
        if result & addend:
            same = addend == regs.registers(first.operands[0])
            yield (accumulate if same else overlap), "MFMA -> MFMA reads its result as C"
        return
    if result & b.reads:
        if regs.is_valu(second):
            yield to_valu, "MFMA -> VALU reads its result"
        elif regs.is_vmem(second) or regs.is_ds(second):
            yield to_memory, "MFMA -> memory operation reads its result"
    if regs.is_valu(second):
        if result & b.writes:
            yield to_valu, "MFMA -> VALU overwrites its result"
        addend = regs.registers(first.operands[3]) if len(first.operands) > 3 else regs.NONE
        if addend & b.writes and matrix.kind != "dgemm":
            yield passes - 1, "MFMA reads C -> VALU overwrites it"


_Entry = tuple[int, regs.Registers]  # of the first of a pair: states since, live results
_State = dict[int, _Entry]  # by address of the first


class HazardAnalysis(ForwardAnalysis[int, _Entry, Missing]):
    """Pairs of instructions of a kernel that lack wait states, whatever path is taken."""

    def __init__(self, code: KernelCode) -> None:
        self._rules = _RULES[code.arch]
        super().__init__(code)

    def missing(self) -> frozenset[Missing]:
        """Every pair with fewer states than it needs."""
        return frozenset(pair for pair in self.pairs() if pair.states < pair.required)

    def tight(self) -> frozenset[Missing]:
        """Every pair with exactly as many states as it needs, which are not none."""
        return frozenset(pair for pair in self.pairs() if pair.states == pair.required > 0)

    def pairs(self) -> frozenset[Missing]:
        """Every pair to which a rule applies, with the least states on any path."""
        return self._found()

    def missing_after(self, code: KernelCode, at: int, size: int) -> frozenset[Missing]:
        """Every such pair that the code has for the change of `size` bytes at `at`, and others."""
        changed, blocks = self._changed(code, at, size)
        return frozenset(pair for pair in changed._found(blocks) if pair.states < pair.required)

    @staticmethod
    def _join(old: _Entry | None, new: _Entry) -> _Entry:
        return new if old is None else (min(old[0], new[0]), old[1] | new[1])

    @staticmethod
    def _about(key: int) -> int:
        return key

    def _check(self, inst: Instruction, state: _State) -> Iterator[Missing]:
        if inst.mnemonic in ("s_nop", "s_waitcnt"):
            return
        for pc, (since, live) in state.items():
            for required, rule in _requirements(self._rules, self.code.at(pc), inst, live):
                yield Missing(inst.pc, pc, required, since, rule)

    def _step(self, inst: Instruction, state: _State) -> None:
        writes = regs.use(inst).writes
        states = wait_states(inst)
        for pc, (since, live) in list(state.items()):
            if since + states >= self._rules.horizon:
                del state[pc]
            else:
                state[pc] = (since + states, live - writes if writes else live)
        if (
            regs.is_valu(inst)
            or regs.is_vmem(inst)
            or inst.mnemonic.startswith("s_setreg")
            or regs.M0 in writes
        ):
            state[inst.pc] = (0, writes)
