"""Who tells other workgroups of data: one wave for its workgroup, or each wave for itself."""

from __future__ import annotations

from benchmarks.checker_mutation import registers as regs
from benchmarks.checker_mutation.code import Instruction
from benchmarks.checker_mutation.kernel import KernelCode
from benchmarks.checker_mutation.makers import sources

_EXEC = frozenset(regs.EXEC)
_LANE = "63"  # which bits of the work-item's number are that of the lane


def of_each_wave(code: KernelCode, inst: Instruction) -> bool:
    """Whether the first lane of every wave does this: `if (lane == 0)`.

    Then no wave is told of by another one, and no barrier before it has to wait for the others'
    stores: each wave waits for its own.
    """
    guard = _guard(code, inst)
    if guard is None or guard.mnemonic != "s_and_saveexec_b64":
        return False
    masks = regs.registers(guard.operands[1])
    compares = {pc for mask in masks for pc in sources(code, guard.pc, mask)}
    if len(compares) != 1:
        return False
    compare = code.at(compares.pop())
    if not compare.mnemonic.startswith("v_cmp_eq_u32") or compare.operands[1] != "0":
        return False
    lanes = regs.registers(compare.operands[2])
    makers = [code.at(pc) for lane in lanes for pc in sources(code, compare.pc, lane)]
    return bool(makers) and all(
        maker.mnemonic == "v_and_b32_e32" and maker.operands[1] == _LANE for maker in makers
    )


def _guard(code: KernelCode, inst: Instruction) -> Instruction | None:
    """What made the mask that an instruction runs under, on the one way to it."""
    pc = inst.pc
    seen = {pc}
    while True:
        before = [other for other in code.predecessors[pc] if other in code.reachable]
        if len(before) != 1 or before[0] in seen:
            return None
        (pc,) = before
        seen.add(pc)
        if _EXEC & regs.use(code.at(pc)).writes:
            return code.at(pc)
