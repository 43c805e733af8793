"""Which lanes EXEC can have between two instructions, and masks that were saved there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from benchmarks.checker_mutation import registers as regs
from benchmarks.checker_mutation.code import Instruction
from benchmarks.checker_mutation.kernel import KernelCode
from benchmarks.checker_mutation.makers import sources

_EXEC = frozenset(regs.EXEC)
_NARROWS = ("s_and_saveexec_b64", "s_and_b64")
_WIDENS = ("s_or_b64", "s_or_saveexec_b64", "s_andn2_saveexec_b64")


def maker(code: KernelCode, pc: int, operand: str) -> Instruction | None:
    """The one instruction that can have made what a pair of registers holds at `pc`."""
    found = makers(code, pc, operand)
    return code.at(found.pop()) if len(found) == 1 else None


def makers(code: KernelCode, pc: int, operand: str) -> set[int]:
    """The instructions that can have; none: it is no pair."""
    pair = regs.registers(operand)
    return {at for one in pair for at in sources(code, pc, one)} if len(pair) == 2 else set()


def compared(
    code: KernelCode, mask: Instruction, straight: str, mirrored: str
) -> tuple[Instruction, str, str] | None:
    """The comparison that made the second operand of an instruction, and what it compares.

    Its operands are in the order of `straight`, whichever of the two it is.
    """
    compare = maker(code, mask.pc, mask.operands[1])
    if compare is None or not compare.mnemonic.startswith((straight, mirrored)):
        return None
    first, second = compare.operands[1:]
    if compare.mnemonic.startswith(mirrored):
        first, second = second, first
    return compare, first, second


def restored_at_once(code: KernelCode, inst: Instruction) -> bool:
    """Whether the s_or_b64 behind this one restores all that EXEC and the mask here can have.

    Right behind it, or where a branch leads that is always taken.

    Behind the instruction that saved the outer mask lanes only leave EXEC, and masks are saved
    that are restored later.
    """
    outer = code.instructions[code.index[inst.pc] + 1]
    if outer.mnemonic == "s_branch" and outer.target in code.index:
        outer = code.at(outer.target)
    if any(i.mnemonic != "s_or_b64" or i.operands[:2] != ("exec", "exec") for i in (inst, outer)):
        return False
    saved = maker(code, outer.pc, outer.operands[2])
    return (
        saved is not None
        and saved.mnemonic == "s_and_saveexec_b64"  # others go on with lanes they do not save
        and shrinks(code, saved.pc, inst.pc)
        and _is_saved(code, saved.pc, inst.pc, inst.operands[2])
    )


def shrinks(code: KernelCode, start: int, end: int) -> bool:
    """Whether EXEC has at `end` only lanes that it had at `start`, the last time it was there."""
    behind = _reached(code.successors, start, start)
    before = _reached(code.predecessors, end, start)
    return all(
        _stays_inside(code, start, inst)
        for inst in map(code.at, behind & before - {start})
        if _EXEC & regs.use(inst).writes
    )


def _reached(neighbours: Mapping[int, Iterable[int]], start: int, until: int) -> set[int]:
    """From one address on, up to another."""
    seen: set[int] = set()
    todo = list(neighbours[start])
    while todo:
        pc = todo.pop()
        if pc not in seen:
            seen.add(pc)
            if pc != until:
                todo += neighbours[pc]
    return seen


def _stays_inside(code: KernelCode, start: int, inst: Instruction) -> bool:
    """Whether what an instruction makes EXEC has no lane that it had not at `start`."""
    if inst.mnemonic == "s_and_b64":
        return "exec" in inst.operands[1:]
    if inst.mnemonic in _NARROWS or inst.text.startswith("s_andn2_b64 exec, exec,"):
        return True
    mask = inst.operands[-1]
    return inst.mnemonic in _WIDENS and _is_saved(code, start, inst.pc, mask)


def _is_saved(code: KernelCode, start: int, pc: int, mask: str, depth: int = 2) -> bool:
    """Whether a mask at `pc` is one that was saved behind `start`, or a part of one."""
    wanted = regs.registers(mask) - _EXEC
    if not wanted or depth == 0:
        return False
    seen: set[int] = set()
    todo = list(code.predecessors[pc])
    while todo:
        at = todo.pop()
        if at in seen or at not in code.reachable:
            continue
        if at == start:
            return False
        seen.add(at)
        inst = code.at(at)
        if not wanted & regs.use(inst).writes:
            todo += code.predecessors[at]
            continue
        if not _has_lanes_of(code, start, inst, depth):
            return False
        if inst.mnemonic == "s_or_b64":  # of which a part may be what was there before
            todo += code.predecessors[at]
    return True


def _has_lanes_of(code: KernelCode, start: int, inst: Instruction, depth: int) -> bool:
    """Whether the mask that an instruction makes has only lanes that were there at `start`."""
    parts = inst.operands[1:]
    if inst.mnemonic == "s_xor_b64" and parts[0] == "exec":
        return _is_saved(code, start, inst.pc, parts[1], depth - 1)
    if inst.mnemonic == "s_or_b64":  # of a loop: lanes that have ended before, and those that do
        new = [part for part in parts if part != inst.operands[0]]
        return all(_is_saved(code, start, inst.pc, part, depth - 1) for part in new)
    is_none = inst.mnemonic == "s_mov_b64" and parts[0] == "0"
    return is_none or "saveexec" in inst.mnemonic or inst.mnemonic.startswith("v_cmp_")
