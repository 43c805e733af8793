"""Code of attention over a cache of which some mutants show nothing, recognised by what it does."""

from __future__ import annotations

import re

from benchmarks.checker_mutation import registers as regs
from benchmarks.checker_mutation.code import Instruction
from benchmarks.checker_mutation.decode_columns import is_nested
from benchmarks.checker_mutation.generate import Mutant
from benchmarks.checker_mutation.kernel import KernelCode
from benchmarks.checker_mutation.makers import sources
from benchmarks.checker_mutation.masks import compared, shrinks

_UPPER_HALF = (
    "the mask has every lane that is there: the columns of this step are in the upper half of what "
    "is turned, which ends at half of the most columns of a head at the latest"
)
NESTED_COLUMNS = (
    "the lanes that stay away have no column in this step of the row, and so they have none in the "
    "later ones, which only these loads and stores follow; then the mask of the rows is restored"
)
_COLUMNS = re.compile(r"_d(\d+)_")


def argument(kernel: str, code: KernelCode, mutant: Mutant) -> str:
    """Why nothing can be seen of a mutant; "" if nothing of this file says so."""
    inst = code.at(mutant.pc)
    if mutant.kind == "EXEC" and inst.mnemonic == "s_and_saveexec_b64":
        most = _COLUMNS.search(kernel)
        if most and _is_in_the_upper_half(code, inst, int(most[1])):
            return _UPPER_HALF
    if mutant.kind == "EXEC" and is_nested(code, inst):
        return NESTED_COLUMNS
    return ""


def _is_in_the_upper_half(code: KernelCode, inst: Instruction, columns: int) -> bool:
    """`half <= (column | constant)` for all lanes, of half a number of columns."""
    found = compared(code, inst, "v_cmp_le_i32", "v_cmp_ge_i32")
    if found is None:
        return False
    compare, half, column = found
    halved = [code.at(pc) for pc in _makers(code, compare.pc, half)]
    placed = [code.at(pc) for pc in _makers(code, compare.pc, column)]
    return (
        bool(halved and placed)
        and all(_is_halving(i) for i in halved)
        and all(
            i.mnemonic.startswith("v_or_b32") and _number(i.operands[1]) >= columns // 2
            for i in placed
        )
        and shrinks(code, compare.pc, inst.pc)
    )


def _is_halving(inst: Instruction) -> bool:
    """Of a scalar register, or of what lanes have."""
    if inst.mnemonic.startswith("v_lshrrev_b32"):
        return inst.operands[1] == "1"
    return inst.mnemonic == "s_lshr_b32" and inst.operands[2] == "1"


def _makers(code: KernelCode, pc: int, operand: str) -> set[int]:
    """Of what a register holds."""
    read = regs.registers(operand)
    return sources(code, pc, min(read)) if len(read) == 1 else set()


def _number(operand: str) -> int:
    """A constant; 0: a register."""
    return int(operand, 0) if re.fullmatch(r"0x[0-9a-f]+|\d+", operand) else 0
