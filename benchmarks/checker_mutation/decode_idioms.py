"""Code of attention over a cache of which some mutants show nothing, recognised by what it does."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from amdattn.device import manifest
from amdattn.ops.cache_attention.kernels import DECODE
from benchmarks.checker_mutation import decode_turns, registers as regs
from benchmarks.checker_mutation.code import Instruction
from benchmarks.checker_mutation.decode_columns import bound, is_nested, step
from benchmarks.checker_mutation.generate import Mutant
from benchmarks.checker_mutation.kernel import KernelCode
from benchmarks.checker_mutation.makers import sources
from benchmarks.checker_mutation.masks import compared, makers, shrinks

_UPPER_HALF = (
    "the mask already has every active lane: the columns of this step are not in the lower half of"
    " the rotated columns, which ends at half of the most columns of a head at the latest"
)
NESTED_COLUMNS = (
    "the disabled lanes have no column in this step of the row, and so none in later ones; only "
    "the loads and stores of those follow, and then the mask of the rows is restored"
)
ROWS_THERE = (
    "the additional lanes are of rows that do not exist: they take the first row's Q, and nobody "
    "stores the result"
)
KEPT_FOR_NOBODY = (
    "the additional lanes store values of rows that do not exist: these have a place in a part, "
    "and nobody loads it"
)
COLUMNS_OF_O = (
    "the additional lanes load columns of V after the head's, in rows that exist: they contribute "
    "only to columns of O that are not stored"
)
_COLUMNS = re.compile(r"_d(\d+)_")
_CROSSES_LANES = ("v_readfirstlane", "v_readlane", "ds_", "s_barrier")


def argument(kernel: str, code: KernelCode, mutant: Mutant) -> str:
    """Why nothing can be seen of a mutant; "" if nothing of this file says so."""
    inst = code.at(mutant.pc)
    if mutant.kind == "EXEC" and inst.mnemonic == "s_and_saveexec_b64":
        most = _COLUMNS.search(kernel)
        if most and _is_in_the_upper_half(code, inst, int(most[1])):
            return _UPPER_HALF
    if mutant.kind == "EXEC" and _takes_the_first_row(code, inst):
        return ROWS_THERE
    if mutant.kind == "EXEC" and _is_for_columns_of_v(code, inst):
        return COLUMNS_OF_O
    if mutant.kind == "EXEC" and _keeps_a_part(code, inst):
        return KEPT_FOR_NOBODY
    if mutant.kind == "EXEC" and is_nested(code, inst):
        return NESTED_COLUMNS
    return decode_turns.argument(code, mutant)


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


def _is_for_columns_of_v(code: KernelCode, inst: Instruction) -> bool:
    """`if (column < head_dim_v) ...`, where nothing is done but computing where these are."""
    one = step(code, inst)
    return (
        one is not None
        and one.bound == {(True, offset_of("head_dim_v"))}
        and all(
            i.mnemonic.startswith(("v_", "s_nop")) and not i.mnemonic.startswith(_CROSSES_LANES)
            for i in _until_restored(code, inst)
        )
    )


def _keeps_a_part(code: KernelCode, inst: Instruction) -> bool:
    """`if (row < group * queries) ...`, where nothing is stored but to parts of results."""
    if inst.mnemonic != "s_and_saveexec_b64":
        return False
    found = compared(code, inst, "v_cmp_gt_i32", "v_cmp_lt_i32")
    bounds = _makers(code, found[0].pc, found[1]) if found else set()
    if len(bounds) != 1:
        return False
    product = code.at(bounds.pop())
    wanted = {frozenset({(True, offset_of(name))}) for name in ("group", "seqlen_q")}
    if product.mnemonic != "s_mul_i32" or wanted != {
        bound(code, product.pc, operand) for operand in product.operands[1:]
    }:
        return False
    masked = list(_until_restored(code, inst))
    memory = [i for i in masked if regs.is_vmem(i) or regs.is_ds(i)]
    return any(map(regs.is_store, memory)) and all(
        i.mnemonic.startswith(("global_load", "global_store"))
        and i.operands[2].startswith("s[")
        and "sc1" in i.modifiers
        for i in memory
    )


@functools.cache
def offset_of(argument: str) -> int:
    """Of one of the arguments, which all kernels of the family have alike."""
    offsets = {
        offset
        for row in manifest.kernels()
        if row.op == DECODE
        for name, offset, *_ in row.kernarg.fields
        if name == argument
    }
    (offset,) = offsets
    return int(offset)


def _takes_the_first_row(code: KernelCode, inst: Instruction) -> bool:
    """`row = query < queries ? row : 0; if (query < queries) ...`, where there are only loads of Q.

    None of their addresses is made of the row but by that choice.
    """
    if inst.mnemonic != "s_and_saveexec_b64":
        return False
    found = compared(code, inst, "v_cmp_gt_i32", "v_cmp_lt_i32")
    if found is None:
        return False
    compare, _, query = found
    rows = _makers(code, compare.pc, query)
    masked = list(_until_restored(code, inst))
    if not rows or any(
        i.mnemonic.startswith(_CROSSES_LANES) or regs.is_store(i) or regs.is_atomic(i)
        for i in masked
    ):
        return False
    loads = [i for i in masked if regs.is_vmem(i)]
    addresses = [(i.pc, one) for i in loads for one in regs.registers(i.operands[1])]
    seen: set[int] = set()
    chosen = False
    while addresses:
        at, register = addresses.pop()
        for pc in sources(code, at, register) - seen:
            seen.add(pc)
            made = code.at(pc)
            if pc in rows:
                return False
            if _chooses(code, made, compare.pc):
                chosen = True
            elif regs.is_valu(made):
                addresses += [(pc, one) for one in regs.use(made).reads if one >= regs.VGPR]
    return chosen


def _chooses(code: KernelCode, inst: Instruction, compare: int) -> bool:
    """0 for the lanes of which a comparison does not hold."""
    if not inst.mnemonic.startswith("v_cndmask_b32") or inst.operands[1] != "0":
        return False
    return makers(code, inst.pc, inst.operands[3]) == {compare}


def _until_restored(code: KernelCode, save: Instruction) -> Iterator[Instruction]:
    """What runs under the mask of an instruction."""
    seen, todo = set[int](), list(code.successors[save.pc])
    while todo:
        pc = todo.pop()
        inst = code.at(pc)
        if pc in seen or inst.text == f"s_or_b64 exec, exec, {save.operands[0]}":
            continue
        seen.add(pc)
        yield inst
        todo += code.successors[pc]


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
