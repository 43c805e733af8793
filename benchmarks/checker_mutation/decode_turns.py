"""Keys of attention over a cache that no query sees, of which values are replaced by zeros.

`if (key < seen) { if (key of the lane < seen) v = 0; ... }` stands behind the main path, once for
each chunk of keys that the loop over turns is unrolled to.
"""

from __future__ import annotations

import re

from benchmarks.checker_mutation.code import Instruction
from benchmarks.checker_mutation.generate import Mutant
from benchmarks.checker_mutation.kernel import KernelCode

_LATER_TURN = (
    "no wave comes here: this hides keys of a later turn, which are at least a tile behind the "
    "first ones, and less than 16 of these are seen by no query; where more are, they are new "
    "ones, which other code attends to"
)
_COUNTS = re.compile(r"v_(accvgpr_read_b32|mov_b32|add_u32|cmp_lt_i32)|s_(nop|waitcnt)")
_HIDES = re.compile(r"v_cndmask_b32_e\d+ (v\d+), \1, 0, vcc")
_FEWEST = 16  # of words of V that a chunk has


def argument(code: KernelCode, mutant: Mutant) -> str:
    """Why nothing can be seen of a wait; "" if nothing of this file says so."""
    if not mutant.kind.startswith("wait"):
        return ""
    guard = _guard(code, mutant.pc)
    return _LATER_TURN if guard is not None and _is_later(code, guard) else ""


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
