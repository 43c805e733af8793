"""Steps over the columns of a row: `if (first column of the lane | constant < bound) ...`, nested.

The lanes of a later step are among those of an earlier one: columns only grow.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

from benchmarks.checker_mutation import registers as regs
from benchmarks.checker_mutation.code import Instruction
from benchmarks.checker_mutation.kernel import KernelCode
from benchmarks.checker_mutation.makers import initial, sources
from benchmarks.checker_mutation.masks import compared, makers
from benchmarks.checker_mutation.uniform import Taken

_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
_KERNARG = regs.registers("s[0:1]")  # what a wave begins with
_ALL_BITS = 0xFFFFFFFF
_IS_TAKEN = {"s_cbranch_execnz": True, "s_cbranch_execz": False}  # with a lane


@dataclass(frozen=True, slots=True)
class Step:
    """One step, from the instruction that masks it.

    Attributes
    ----------
    bound : frozenset of (argument or not, offset or address)
        What columns are compared with: a kernel argument, or what these instructions make.
    first : frozenset of int
        Makers of the lane's first column.
    number : int
        What this step adds to it.
    """

    save: Instruction
    bound: frozenset[tuple[bool, int]]
    first: frozenset[int]
    number: int

    def holds(self, later: Step) -> bool:
        """Whether all lanes of another step are lanes of this one, if they were there."""
        alike = (self.bound, self.first) == (later.bound, later.first)
        return bool(self.bound and self.first) and alike and self.number <= later.number


def step(code: KernelCode, save: Instruction | None) -> Step | None:
    """The step that `s_and_saveexec_b64 mask, vcc` masks, if it does."""
    if save is None or save.mnemonic != "s_and_saveexec_b64":
        return None
    found = compared(code, save, "v_cmp_gt_i32", "v_cmp_lt_i32")
    if found is None:
        return None
    compare, limit, column = found
    if not column.startswith("v") or not regs.registers(limit):
        return None
    first, number = sources(code, compare.pc, min(regs.registers(column))), 0
    made = code.at(min(first)) if len(first) == 1 else None
    if made is not None and made.mnemonic.startswith("v_or_b32") and _number(made.operands[1]):
        register = min(regs.registers(made.operands[2]), default=-1)
        number, first = _number(made.operands[1]), sources(code, made.pc, register)
        if _bits(code, made.pc, register) & number:
            return None
    return Step(save, bound(code, compare.pc, limit), frozenset(first), number)


def is_nested(code: KernelCode, inst: Instruction) -> bool:
    """Whether only later steps follow `s_or_b64 exec, exec, mask` until an outer mask is restored.

    Then those who were in the step of that mask are enough. Code of a step may stand twice: behind
    lanes that were in the step before, and where there were none.
    """
    if not _restores(inst) or _restores(code.at(inst.end)):
        return False
    restored = [step(code, code.at(pc)) for pc in makers(code, inst.pc, inst.operands[2])]
    earlier = [one for one in restored if one is not None]
    if not earlier or len(earlier) < len(restored):
        return False
    todo, seen = [inst.end], set[int]()
    while todo:
        pc = todo.pop()
        if pc not in code.index:
            return False
        compare = code.at(pc)
        if pc in seen or _restores(compare):
            continue
        seen.add(pc)
        if compare.mnemonic == "s_branch":
            todo += code.successors[pc]
            continue
        later = step(code, code.at(compare.end))
        if later is None or not compare.mnemonic.startswith("v_cmp"):
            return False
        if not all(one.holds(later) for one in earlier):
            return False
        todo += _ends(code, later.save)
    return bool(seen)


def _restores(inst: Instruction) -> bool:
    return inst.text.startswith("s_or_b64 exec, exec,")


def _ends(code: KernelCode, save: Instruction) -> list[int]:
    """Addresses behind those that restore what an instruction saved, on all paths."""
    found: list[int] = []
    seen, todo = set[int](), list(code.successors[save.pc])
    while todo:
        pc = todo.pop()
        if pc in seen:
            continue
        seen.add(pc)
        inst = code.at(pc)
        if _restores(inst) and inst.operands[2] == save.operands[0]:
            found.append(inst.end)
        else:
            todo += code.successors[pc]
    return found


def first_steps(code: KernelCode) -> Taken:
    """Branches that go the way of lanes, as the first columns of a row are less than any bound.

    Rows and keys have lanes of all columns or none, of which one has column 0.
    """
    found: defaultdict[tuple[object, ...], list[Step]] = defaultdict(list)
    for inst in code.instructions:
        if inst.pc in code.reachable and (one := step(code, inst)) is not None and one.bound:
            found[one.bound, one.first].append(one)
    taken: dict[int, bool] = {}
    for steps in found.values():
        if {one.number for one in steps} > {0}:
            for one in steps:
                branch = code.at(one.save.end)
                if one.number == 0 and branch.mnemonic in _IS_TAKEN:
                    taken[branch.pc] = _IS_TAKEN[branch.mnemonic]
    return taken


def bound(code: KernelCode, pc: int, operand: str) -> frozenset[tuple[bool, int]]:
    """What a register holds: arguments of the kernel by offset, anything else by its makers."""
    (register,) = regs.registers(operand)
    found = set()
    for at in sources(code, pc, register):
        offset = _argument(code, code.at(at), register)
        found.add((False, at) if offset is None else (True, offset))
    return frozenset(found) if len(found) == 1 else frozenset()


def _argument(code: KernelCode, load: Instruction, register: int) -> int | None:
    """The offset of what is loaded of the kernel's arguments."""
    if not load.mnemonic.startswith("s_load_dword") or not _NUMBER.fullmatch(load.operands[2]):
        return None
    loaded = sorted(regs.registers(load.operands[0]))
    begun = {
        (frozenset(sources(code, load.pc, one)), frozenset(initial(code, load.pc, one)))
        for one in regs.registers(load.operands[1])
    }
    if begun != {(frozenset[int](), frozenset({one})) for one in _KERNARG}:
        return None
    nth = loaded.index(register) if register in loaded else 0 if len(loaded) == 1 else None
    return None if nth is None else int(load.operands[2], 0) + 4 * nth


def _bits(code: KernelCode, pc: int, register: int, depth: int = 4) -> int:
    """Which bits of a register can be set at `pc`."""
    found = 0
    for at in sources(code, pc, register) if depth else ():
        inst = code.at(at)
        first, *rest = inst.operands[1:]
        of = min(regs.registers(rest[0]), default=-1) if rest else -1
        if inst.mnemonic.startswith("v_and_b32") and _number(first):
            found |= _number(first)
        elif inst.mnemonic == "v_bfe_u32" and _number(rest[-1]):
            found |= (1 << _number(rest[-1])) - 1
        elif inst.mnemonic.startswith("v_lshlrev_b32") and _number(first) and of >= 0:
            found |= _bits(code, at, of, depth - 1) << _number(first) & _ALL_BITS
        elif inst.mnemonic.startswith("v_lshrrev_b32") and _number(first) and of >= 0:
            found |= _bits(code, at, of, depth - 1) >> _number(first)
        else:
            return _ALL_BITS
    return found or _ALL_BITS


def _number(operand: str) -> int:
    """A constant; 0: a register."""
    return int(operand, 0) if _NUMBER.fullmatch(operand) else 0
