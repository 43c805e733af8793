"""Branches further than 16 bits of dwords reach, which the compiler makes of an address.

LLVM writes each as the same four instructions on one pair of registers. Nothing else that jumps to
an address in registers can be followed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from benchmarks.checker_mutation import registers as regs
from benchmarks.checker_mutation.code import CodeError, Instruction

_INDIRECT = frozenset({"s_setpc_b64", "s_swappc_b64", "s_cbranch_g_fork", "s_cbranch_join"})
_SEQUENCE = ("s_getpc_b64", "s_add_u32", "s_addc_u32", "s_setpc_b64")
_LITERAL = 255  # as a source: the dword that follows the instruction


def far_branches(instructions: Sequence[Instruction], entries: Collection[int]) -> dict[int, int]:
    """Where jumps to addresses in registers go, by the address of the jump.

    Parameters
    ----------
    entries : collection of int
        What is reached otherwise than from the instruction before: targets of branches, and the
        entry of the kernel.

    Raises
    ------
    CodeError
        A jump that is not the last of such four instructions, or four that do not add a constant to
        the program counter, or that lead to no instruction, or that are entered behind the first.
    """
    found: dict[int, int] = {}
    inner: list[Instruction] = []
    starts = {inst.pc for inst in instructions}
    for i, jump in enumerate(instructions):
        if jump.mnemonic not in _INDIRECT:
            continue
        sequence = instructions[max(0, i + 1 - len(_SEQUENCE)) : i + 1]
        target = _target(sequence)
        if target not in starts:
            raise CodeError(f"{_where(jump)}: {target:#x} is no instruction of the kernel")
        found[jump.pc] = target
        inner += sequence[1:]
    reached = {*entries, *found.values()}
    for inst in inner:
        if inst.pc in reached:
            raise CodeError(
                f"{_where(inst)}: a branch leads to it, so that the address may be another"
            )
    return found


def _target(sequence: Sequence[Instruction]) -> int:
    """Where the last of these instructions jumps to."""
    jump = sequence[-1]
    if tuple(inst.mnemonic for inst in sequence) != _SEQUENCE:
        raise CodeError(f"{_where(jump)}: only what {', '.join(_SEQUENCE)} make is followed")
    base, low, high, _ = sequence
    pair = base.operands[0]
    halves = [{register} for register in sorted(regs.registers(pair))]
    for half, inst in zip(halves, (low, high), strict=True):
        if any(regs.registers(operand) != half for operand in inst.operands[:2]):
            raise CodeError(f"{_where(jump)}: {inst.text} does not change {pair}")
    if jump.operands[0] != pair:
        raise CodeError(f"{_where(jump)}: the address is made in {pair}")
    return (base.end + _constant(low) + (_constant(high) << 32)) % (1 << 64)


def _constant(inst: Instruction) -> int:
    """What an addition has as second source, as 32 bits."""
    source = inst.word >> 8 & 0xFF
    if source == _LITERAL:
        return int.from_bytes(inst.encoding[4:], "little")
    if 128 <= source <= 192:
        return source - 128
    if 193 <= source <= 208:
        return 192 - source & 0xFFFFFFFF
    raise CodeError(f"{_where(inst)}: {inst.operands[-1]} is no constant")


def _where(inst: Instruction) -> str:
    return f"jumps to a computed address by way of {inst.pc:#x}, {inst.text}"
