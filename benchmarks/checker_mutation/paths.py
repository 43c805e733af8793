"""Paths that a wave can take where a mask that it was given before decides a branch.

Unlike `uniform`: the mask has several makers, of which some are constants. The compiler puts what
ends a wave behind a branch that others share, and hands it "all lanes" or "none" for it.
"""

from __future__ import annotations

from benchmarks.checker_mutation import registers as regs
from benchmarks.checker_mutation.code import Instruction
from benchmarks.checker_mutation.kernel import KernelCode

_VCC = min(regs.VCC)
_CONSTANTS = {"-1": True, "0": False}
_ON_MASK = {"s_and_b64": False, "s_andn2_b64": True}  # with EXEC: whether it is negated
_BRANCHES = {"s_cbranch_vccnz": True, "s_cbranch_vccz": False}
_MOST_STATES = 200_000  # of a search that gives up, and takes the path to be there

# Masks that are known, by their first register: all lanes or none.
_Known = frozenset[tuple[int, bool]]


class Paths:
    """Of a kernel whose waves have active lanes at every branch on VCC."""

    def __init__(self, code: KernelCode) -> None:
        self._code = code
        self._masks = frozenset({_VCC}) | {
            mask
            for inst in code.instructions
            if inst.mnemonic in _ON_MASK and inst.operands[:2] == ("vcc", "exec")
            for mask in (_pair(inst.operands[2]),)
            if mask is not None
        }
        self._found: dict[tuple[int, int], bool] = {}

    def lead(self, start: int, end: int) -> bool:
        """Whether a wave may come from one address to another."""
        if (start, end) not in self._found:
            self._found[start, end] = self._search(start, end)
        return self._found[start, end]

    def _search(self, start: int, end: int) -> bool:
        code, nothing = self._code, _Known()
        todo = [(pc, nothing) for pc in code.successors[start]]
        seen = set(todo)
        while todo:
            pc, known = todo.pop()
            if pc == end or len(seen) > _MOST_STATES:
                return True
            inst = code.at(pc)
            following, known = self._following(inst, known), self._behind(inst, known)
            new = {(other, known) for other in following} - seen
            seen |= new
            todo += new
        return False

    def _following(self, inst: Instruction, known: _Known) -> tuple[int, ...]:
        lanes = dict(known).get(_VCC)
        if lanes is None or inst.mnemonic not in _BRANCHES or inst.target is None:
            return self._code.successors[inst.pc]
        return (inst.target if _BRANCHES[inst.mnemonic] == lanes else inst.end,)

    def _behind(self, inst: Instruction, known: _Known) -> _Known:
        """What is known after an instruction."""
        made: bool | None = None
        if inst.mnemonic == "s_mov_b64":
            made = _value(inst.operands[1], known)
        elif inst.mnemonic in _ON_MASK and inst.operands[:2] == ("vcc", "exec"):
            lanes = _value(inst.operands[2], known)
            made = None if lanes is None else lanes != _ON_MASK[inst.mnemonic]
        elif inst.mnemonic == "s_or_b64":
            both = [_value(operand, known) for operand in inst.operands[1:]]
            made = True if True in both else None
        writes = regs.use(inst).writes
        kept = frozenset(k for k in known if not {k[0], k[0] + 1} & writes)
        target = _pair(inst.operands[0]) if made is not None else None
        return kept | {(target, made)} if target in self._masks and made is not None else kept


def _value(operand: str, known: _Known) -> bool | None:
    """Whether a mask has all lanes or none."""
    if operand in _CONSTANTS:
        return _CONSTANTS[operand]
    mask = _pair(operand)
    return None if mask is None else dict(known).get(mask)


def _pair(operand: str) -> int | None:
    """The first of two registers."""
    registers = regs.registers(operand)
    return min(registers) if len(registers) == 2 and max(registers) < min(regs.EXEC) else None
