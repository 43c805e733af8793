"""Turns of attention over a cache.

Of keys that no query sees values are replaced by zeros, behind the main path and once for each
chunk of keys that the loop over turns is unrolled to: `if (key < seen) v = 0`, then lane by lane.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from benchmarks.checker_mutation import registers as regs
from benchmarks.checker_mutation.code import Instruction
from benchmarks.checker_mutation.generate import Mutant
from benchmarks.checker_mutation.kernel import KernelCode

_LATER_TURN = (
    "no wave reaches this: it hides keys of a later turn, which come at least a tile after the "
    "first ones, and fewer than 16 of the first ones are seen by no query; where there are more, "
    "they are new keys, which other code attends to"
)
_COUNTS = re.compile(r"v_(accvgpr_read_b32|mov_b32|add_u32|cmp_lt_i32)|s_(nop|waitcnt)")
_HIDES = re.compile(r"v_cndmask_b32_e\d+ (v\d+), \1, 0, vcc")
_FEWEST = 16  # of words of V that a chunk has
_LEAST = 3  # instructions of what ends a loop


def argument(code: KernelCode, mutant: Mutant) -> str:
    """Why nothing can be seen of a wait; "" if nothing of this file says so."""
    if not mutant.kind.startswith("wait"):
        return ""
    guard = _guard(code, mutant.pc)
    return _LATER_TURN if guard is not None and _is_later(code, guard) else ""


def past_the_end(code: KernelCode) -> dict[int, int]:
    """Branches around keys that are not there, and where these lead: out of the loop over keys.

    `if (key < end) attend(key); key += step; if (key < end) again`: steps are never negative, so
    that there is no key in the next turn either.
    """
    found: dict[int, int] = {}
    blocks = code.blocks()
    for branch in code.instructions:
        if branch.mnemonic == "s_cbranch_scc1" and branch.target in blocks:
            compare = code.instructions[code.index[branch.pc] - 1]
            end = _end_of_loop(compare, blocks[branch.target])
            if end is not None and branch.pc in code.reachable:
                found[branch.pc] = end
    return found


def _end_of_loop(before: Instruction, block: Sequence[Instruction]) -> int | None:
    """Where a block leads for a key that is not before the end, nor is what the block makes it."""
    if before.mnemonic != "s_cmp_ge_i32" or len(block) < _LEAST:
        return None
    *body, compare, branch = block
    key, end = before.operands
    following, same_end = compare.operands[:1], compare.operands[1:] == (end,)
    made = [i for i in body if i.operands[:1] == following]
    kept = regs.registers(f"{key} {end}")
    return (
        branch.target
        if branch.mnemonic == "s_cbranch_scc0"
        and (compare.mnemonic == "s_cmp_lt_i32" and same_end)
        and all(regs.is_salu(i) and not regs.use(i).writes & kept for i in body)
        and [(i.mnemonic, i.operands[1]) for i in made] == [("s_add_i32", key)]
        else None
    )


def _guard(code: KernelCode, pc: int) -> int | None:
    """The branch that leads to the block around an address, if it hides keys."""
    first = last = code.index[pc]
    while code.instructions[first].pc not in code.targets and _is_of_block(code, first - 1):
        first -= 1
    while _is_of_block(code, last + 1) and code.instructions[last + 1].pc not in code.targets:
        last += 1
    block = code.instructions[first : last + 1]
    before = code.predecessors[block[0].pc]
    if sum(map(_hides, block)) < _FEWEST or len(before) != 1:
        return None
    (branch,) = before
    return branch if code.at(branch).mnemonic.startswith("s_cbranch") else None


def _is_of_block(code: KernelCode, nth: int) -> bool:
    if not 0 <= nth < len(code.instructions):
        return False
    inst = code.instructions[nth]
    return _hides(inst) or _COUNTS.match(inst.mnemonic) is not None


def _hides(inst: Instruction) -> bool:
    return _HIDES.fullmatch(inst.text) is not None


def _is_later(code: KernelCode, guard: int) -> bool:
    """Whether a wave has been at another such branch before, and attended the keys of that one."""
    hiding = {code.index[inst.pc]: inst for inst in code.instructions if _hides(inst)}
    others = {
        found
        for nth, inst in hiding.items()
        if nth - 1 not in hiding and (found := _guard(code, inst.pc)) is not None
    } - {guard}
    return any(
        not _leads(code, (code.entry,), guard, around=other)
        and not _leads(code, tuple(code.successors[other]), guard, attending=False)
        for other in others
    )


def _leads(
    code: KernelCode,
    start: tuple[int, ...],
    end: int,
    *,
    around: int = -1,
    attending: bool = True,
) -> bool:
    """Whether a path leads from one place to another: not by a third one, or by no product."""
    seen, todo = {around}, list(start)
    while todo:
        pc = todo.pop()
        if pc == end:
            return True
        if pc in seen or (not attending and code.at(pc).mnemonic.startswith("v_mfma")):
            continue
        seen.add(pc)
        todo += code.successors[pc]
    return False
