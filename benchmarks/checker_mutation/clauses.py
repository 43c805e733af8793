"""Clauses of memory instructions that overwrite what they read.

A clause is a run of scalar, or of vector, memory instructions with nothing between. Devices that
retry page faults (XNACK) may issue it again, so that none of several may write a register that one
of them reads, itself included. Only code objects for "xnack-" are free of it. From the text of the
instructions, apart from the virtual device's check of the same rule.
"""

from __future__ import annotations

import struct

from benchmarks.checker_mutation import registers as regs
from benchmarks.checker_mutation.code import Instruction
from benchmarks.checker_mutation.kernel import KernelCode

_E_FLAGS, _XNACK_MASK, _XNACK_OFF = 48, 0x300, 0x200  # of an ELF64 code object


def overwrites(code: KernelCode, at: int, size: int) -> frozenset[tuple[int, int]]:
    """(writer, reader) of the clauses that `size` bytes at `at` are in or next to.

    Followed from one instruction to the next, as each of a clause leads to the one behind it.
    """
    if not _may_retry(code):
        return frozenset()
    first, last = code.index[at], code.index[at]
    while last + 1 < len(code.instructions) and code.instructions[last].end < at + size:
        last += 1
    while first > 0 and _unit(code.instructions[first - 1]):
        first -= 1
    while last + 1 < len(code.instructions) and _unit(code.instructions[last + 1]):
        last += 1
    found: set[tuple[int, int]] = set()
    clause: list[Instruction] = []
    for inst in code.instructions[first : last + 1]:
        if clause and _unit(inst) != _unit(clause[0]):
            found |= _within(clause)
            clause = []
        if _unit(inst):
            clause.append(inst)
    return frozenset(found | _within(clause))


def _within(clause: list[Instruction]) -> set[tuple[int, int]]:
    if len(clause) < 2:
        return set()
    uses = [(inst.pc, regs.use(inst)) for inst in clause]
    return {(w, r) for w, writer in uses for r, reader in uses if writer.writes & reader.reads}


def _unit(inst: Instruction) -> str:
    """Which unit's clauses an instruction may be in; "" if in none."""
    if regs.is_smem(inst):
        return "" if "time" in inst.mnemonic else "scalar"
    return "vector" if regs.is_vmem(inst) and not regs.is_cache_control(inst) else ""


def _may_retry(code: KernelCode) -> bool:
    if not code.symbol:
        return True
    (flags,) = struct.unpack_from("<I", code.image, _E_FLAGS)
    return bool(flags & _XNACK_MASK != _XNACK_OFF)
