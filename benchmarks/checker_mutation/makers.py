"""Which instructions made what a register holds."""

from __future__ import annotations

from benchmarks.checker_mutation import registers as regs
from benchmarks.checker_mutation.code import Instruction
from benchmarks.checker_mutation.kernel import KernelCode


def sources(code: KernelCode, pc: int, register: int) -> set[int]:
    """Where the value that `register` has at `pc` is made; copies are followed."""
    return _traced(code, pc, register)[0]


def initial(code: KernelCode, pc: int, register: int) -> set[int]:
    """The registers of a wave that begins whose value `register` may have at `pc`."""
    return _traced(code, pc, register)[1]


def _traced(code: KernelCode, pc: int, register: int) -> tuple[set[int], set[int]]:
    found: set[int] = set()
    begun = {register} if pc == code.entry else set[int]()
    seen: set[tuple[int, int]] = set()
    todo = [(before, register) for before in code.predecessors[pc] if before in code.reachable]
    while todo:
        at, wanted = todo.pop()
        if (at, wanted) in seen:
            continue
        seen.add((at, wanted))
        inst = code.at(at)
        if wanted in regs.use(inst).writes:
            copied = _copied_from(inst, wanted)
            if copied is None:
                found.add(at)
                continue
            wanted = copied
        if at == code.entry:
            begun.add(wanted)
        todo += [(before, wanted) for before in code.predecessors[at] if before in code.reachable]
    return found, begun


# A register that is wanted for something else in between is kept among the accumulators.
_COPIES = (
    *("s_mov_b32", "s_mov_b64", "v_mov_b32_e32", "v_mov_b64"),
    *("v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_accvgpr_mov_b32"),
)


def _copied_from(inst: Instruction, register: int) -> int | None:
    if not inst.mnemonic.startswith(_COPIES):
        return None
    source = sorted(regs.registers(inst.operands[1]))
    target = sorted(regs.registers(inst.operands[0]))
    return source[target.index(register)] if len(source) == len(target) else None
