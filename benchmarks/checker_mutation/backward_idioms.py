"""Code of attention's gradients of which some mutants show nothing, recognised by what it does."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.checker_mutation import registers as regs
from benchmarks.checker_mutation.code import Instruction
from benchmarks.checker_mutation.generate import Mutant
from benchmarks.checker_mutation.kernel import KernelCode
from benchmarks.checker_mutation.makers import sources
from benchmarks.checker_mutation.masks import maker

_NO_COLUMNS = (
    "the disabled lanes have no column in this step, and so none in any later one: what follows "
    "are stores whose offsets put such lanes outside the buffer, and the end"
)
_ADDS = ("v_or_b32", "v_add_u32")


class _Column(NamedTuple):
    """A column that a mask asks for: below which limit, and how far behind which other one."""

    limit: frozenset[int]
    base: frozenset[int]
    distance: int


def argument(code: KernelCode, mutant: Mutant) -> str:
    """Why nothing can be seen of a mutant; "" if nothing of this file says so."""
    inst = code.at(mutant.pc)
    if mutant.kind == "EXEC" and inst.text.startswith("s_or_b64 exec, exec,"):
        return _NO_COLUMNS if _no_columns_follow(code, inst) else ""
    return ""


def _no_columns_follow(code: KernelCode, restore: Instruction) -> bool:
    """Whether up to the end each store is of columns that are not before those masked here."""
    first = _masked(code, code.index[restore.pc])
    if first is None:
        return False
    for i in range(code.index[restore.pc] + 1, len(code.instructions)):
        inst = code.instructions[i]
        if inst.mnemonic == "s_endpgm":
            return True
        if regs.is_vmem(inst):
            column = _of_store(code, inst)
            if column is None or column[:2] != first[:2] or column.distance < first.distance:
                return False
        elif inst.is_branch or regs.is_ds(inst) or inst.mnemonic.startswith("v_read"):
            return False
    return False


def _of_store(code: KernelCode, inst: Instruction) -> _Column | None:
    """The columns of a store that others than lanes with them do outside of its buffer."""
    if not (inst.mnemonic.startswith("buffer_store") and "offen" in inst.modifiers):
        return None
    (offset,) = regs.registers(inst.operands[1])
    makers = sources(code, inst.pc, offset)
    if len(makers) != 1:
        return None
    column = _masked(code, code.index[min(makers)] + 1)
    enters = code.instructions[code.index[min(makers)] - 1]
    return column if column and _is_outside(code, enters.pc, offset) else None


def _masked(code: KernelCode, at: int) -> _Column | None:
    """Of `mask and save; one instruction; restore`, whose last one is the instruction `at`."""
    enters, _, restores = code.instructions[at - 2 : at + 1]
    if not (
        enters.mnemonic == "s_and_saveexec_b64"
        and restores.text == f"s_or_b64 exec, exec, {enters.operands[0]}"
    ):
        return None
    compare = maker(code, enters.pc, enters.operands[1])
    if compare is None or not compare.mnemonic.startswith("v_cmp_gt_i32"):
        return None
    limit, column = (regs.registers(operand) for operand in compare.operands[1:])
    if len(limit) != 1 or len(column) != 1:
        return None
    base, distance = _value(code, compare.pc, min(column)), 0
    if (
        len(base) == 1
        and min(base) >= 0
        and (adds := code.at(min(base))).mnemonic.startswith(_ADDS)
    ):
        constant, other = adds.operands[1:]
        if constant.isdecimal() or constant.startswith("0x"):
            distance = int(constant, 0)
            base = _value(code, adds.pc, min(regs.registers(other)))
    return _Column(_value(code, compare.pc, min(limit)), base, distance)


def _value(code: KernelCode, pc: int, register: int) -> frozenset[int]:
    """What tells a value from others: its makers, or the register that has it from the start."""
    return frozenset(sources(code, pc, register)) or frozenset({-1 - register})


def _is_outside(code: KernelCode, pc: int, register: int) -> bool:
    """Whether a register holds an offset behind every buffer: 0x80000000, or a copy of it."""
    makers = [code.at(at) for at in sources(code, pc, register)]
    return bool(makers) and all(_makes_outside(code, made) for made in makers)


def _makes_outside(code: KernelCode, inst: Instruction) -> bool:
    if inst.mnemonic.startswith("v_bfrev_b32"):
        return inst.operands[1] == "1"
    copied = regs.registers(inst.operands[1]) if inst.mnemonic.startswith("v_mov_b32") else ()
    return len(copied) == 1 and _is_outside(code, inst.pc, min(copied))
