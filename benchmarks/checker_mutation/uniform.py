"""Branches on one condition, which go the same way on every path of a wave."""

from __future__ import annotations

import re
from collections.abc import Mapping

from benchmarks.checker_mutation import registers as regs
from benchmarks.checker_mutation.code import Instruction
from benchmarks.checker_mutation.kernel import KernelCode
from benchmarks.checker_mutation.makers import sources

_BRANCHES = {"s_cbranch_vccnz": True, "s_cbranch_vccz": False}
_KERNARG, _OFFSET = "s[0:1]", re.compile(r"0x[0-9a-f]+")
Taken = Mapping[int, bool]  # by address of a branch


def decisions(code: KernelCode) -> list[tuple[Taken, Taken]]:
    """The branches that are taken if a condition holds, and if it does not, for each condition.

    Of those that several branches depend on: all lanes or none (s_cselect of -1 and 0, and what two
    of these have in common), made once in the life of a wave, or of kernel arguments. The compiler
    negates them lane by lane; lanes are active at each step.
    """
    found: dict[int, dict[int, bool]] = {}
    for inst in code.instructions:
        if inst.pc in code.reachable and inst.mnemonic in _BRANCHES:
            condition = _condition(code, inst.pc, min(regs.VCC))
            if condition is not None:
                maker, holds = condition
                taken = holds == _BRANCHES[inst.mnemonic]
                found.setdefault(maker, {})[inst.pc] = taken
    return [
        (branches, {pc: not taken for pc, taken in branches.items()})
        for branches in found.values()
        if len(branches) > 1
    ]


def _condition(code: KernelCode, pc: int, register: int) -> tuple[int, bool] | None:
    """Which instruction made what decides whether a mask is full or empty at `pc`, and how."""
    makers = sources(code, pc, register)
    if len(makers) != 1:
        return None
    (maker,) = makers
    inst = code.at(maker)
    operands = inst.operands[1:]
    if _selects_all_or_none(inst):
        return (maker, operands[0] == "-1") if _made_once(code, maker) else None
    if inst.mnemonic == "s_xor_b64" and operands[1] == "-1":
        return _masked(code, maker, operands[0], True)
    if inst.mnemonic in ("s_and_b64", "s_or_b64") and all(
        _all_or_none(code, maker, operand) for operand in operands
    ):
        return (maker, True) if _made_once(code, maker) else None
    negated = inst.mnemonic == "s_andn2_b64"
    if inst.mnemonic in ("s_and_b64", "s_andn2_b64") and operands[0] == "exec":
        return _masked(code, maker, operands[1], negated)
    if inst.mnemonic == "v_cmp_ne_u32_e64" and operands[0] == "1":
        numbers = sources(code, maker, min(regs.registers(operands[1])))
        selects = [code.at(number) for number in numbers]
        if len(selects) == 1 and selects[0].mnemonic == "v_cndmask_b32_e64":
            (select,) = selects
            if select.operands[1:3] == ("0", "1"):
                return _masked(code, select.pc, select.operands[3], True)
    return None


def _selects_all_or_none(inst: Instruction) -> bool:
    return inst.mnemonic == "s_cselect_b64" and inst.operands[1:] in (("-1", "0"), ("0", "-1"))


def _all_or_none(code: KernelCode, pc: int, operand: str) -> bool:
    """Whether a pair of SGPRs holds such a mask at `pc`."""
    registers = regs.registers(operand) - frozenset(regs.EXEC)
    if len(registers) != 2:
        return False
    makers = [sources(code, pc, register) for register in registers]
    return makers[0] == makers[1] != set() and all(
        _selects_all_or_none(code.at(maker)) for maker in makers[0]
    )


def _masked(code: KernelCode, pc: int, mask: str, negated: bool) -> tuple[int, bool] | None:
    registers = regs.registers(mask)
    inner = _condition(code, pc, min(registers)) if registers else None
    return inner and (inner[0], inner[1] != negated)


def _made_once(code: KernelCode, maker: int) -> bool:
    """Whether an instruction makes one result in the life of a wave, however often it runs."""
    return not _repeats(code, maker) or _of_arguments(code, maker)


def _of_arguments(code: KernelCode, maker: int) -> bool:
    """Whether s_cselect follows a comparison of kernel arguments and constants, which stay."""
    if not _selects_all_or_none(code.at(maker)):
        return False
    comparisons = [code.at(pc) for pc in sources(code, maker, regs.SCC)]
    if len(comparisons) != 1 or not comparisons[0].mnemonic.startswith("s_cmp"):
        return False
    (compare,) = comparisons
    compared = [register for operand in compare.operands for register in regs.registers(operand)]
    return all(len(_arguments(code, compare.pc, register)) == 1 for register in compared)


def _arguments(code: KernelCode, pc: int, register: int) -> set[int | None]:
    """Offsets of what `register` may hold at `pc` in the kernel arguments; None: something else."""
    found: set[int | None] = {None} if _is_written(code, regs.registers(_KERNARG)) else set()
    for maker in sources(code, pc, register):
        inst = code.at(maker)
        offset = _OFFSET.fullmatch(inst.operands[2]) if len(inst.operands) > 2 else None
        loaded = sorted(regs.registers(inst.operands[0]))
        is_load = inst.mnemonic.startswith("s_load_dword") and inst.operands[1] == _KERNARG
        if is_load and offset and register in loaded:  # not a copy of what was loaded
            found.add(int(offset[0], 16) + 4 * loaded.index(register))
        else:
            found |= {None, -maker}
    return found


def _is_written(code: KernelCode, registers: frozenset[int] | set[int]) -> bool:
    return any(regs.use(inst).writes & registers for inst in code.instructions)


def _repeats(code: KernelCode, pc: int) -> bool:
    """Whether an instruction may run again after it has."""
    seen: set[int] = set()
    todo = list(code.successors[pc])
    while todo:
        at = todo.pop()
        if at == pc:
            return True
        if at not in seen:
            seen.add(at)
            todo += code.successors[at]
    return False
