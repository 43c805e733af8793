"""A kernel of a code object: instructions, branches, entry.

What mutation and its independent analysis work on.
"""

from __future__ import annotations

import copy
import hashlib
import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from amdattn.compiler import DEFAULT_ARCH
from benchmarks.checker_mutation import registers as regs
from benchmarks.checker_mutation.code import (
    NO_FALL_THROUGH,
    CodeError,
    Elf,
    Instruction,
    disassemble,
)
from benchmarks.checker_mutation.far_branches import far_branches

_KD_ENTRY_OFFSET, _KD_PRELOAD = 16, 58  # fields of the kernel descriptor
# A device that preloads kernarg starts behind a prologue of this size, which loads it for others.
_PRELOAD_PROLOGUE_BYTES = 256
_ON_EXEC = frozenset({"s_cbranch_execz", "s_cbranch_execnz"})
_EXEC = min(regs.EXEC)


class Place(NamedTuple):
    """Of a kernel: address and bytes, offset in the file, address where it is entered."""

    start: int
    size: int
    file_offset: int
    entry: int


def _locate(image: bytes, symbol: str) -> Place:
    elf = Elf(image)
    start, size, file_offset = elf.symbol(symbol)
    descriptor, _, kd_offset = elf.symbol(symbol + ".kd")
    (relative,) = struct.unpack_from("<q", image, kd_offset + _KD_ENTRY_OFFSET)
    (preload,) = struct.unpack_from("<H", image, kd_offset + _KD_PRELOAD)
    entry = descriptor + relative + (_PRELOAD_PROLOGUE_BYTES if preload & 0x7F else 0)
    return Place(start, size, file_offset, entry)


class KernelCode:
    """The instructions of one kernel.

    Parameters
    ----------
    image : bytes
        The code object, or bare instructions.
    symbol : str
        "" for bare instructions.
    arch : str
        Of bare instructions; a code object names its own.

    Attributes
    ----------
    arch : str
        The processor that the code is for.
    start, end, entry : int
        ELF addresses; `entry` is where a device that preloads kernarg begins.
    instructions : tuple of Instruction
        In order of address.
    successors : dict
        Addresses that may follow an instruction, by its address. A branch on EXEC goes one way
        where EXEC cannot be zero.
    same_paths : bool
        Of changed code: basic blocks are as they were, but for instructions in one of them.
    """

    def __init__(self, image: bytes, symbol: str, arch: str = DEFAULT_ARCH) -> None:
        self.image = image
        self.symbol = symbol
        self.arch = Elf(image).arch if symbol else arch
        place = _locate(image, symbol) if symbol else Place(0, len(image), 0, 0)
        self.start, size, self._file_offset, self.entry = place
        self.end = self.start + size
        self.same_paths = True
        self._taken: Mapping[int, bool] = {}
        self._set(tuple(disassemble(self.bytes_at(self.start, size), self.start, self.arch)))

    def assuming(self, taken: Mapping[int, bool]) -> KernelCode:
        """The same kernel in waves of which these branches are always taken, or never."""
        other = copy.copy(self)
        other._taken = taken
        other._set(self.instructions)
        return other

    def leading(self, past: Mapping[int, int]) -> KernelCode:
        """The same kernel, of which these branches lead to other addresses if they are taken."""
        other = copy.copy(self)
        other.successors = dict(self.successors)
        for pc, target in past.items():
            other.successors[pc] = (self.at(pc).end, target)
        other.predecessors = _predecessors(other.successors)
        other.reachable = other._reachable()
        return other

    def changed(self, pc: int, encoding: bytes) -> KernelCode:
        """The same kernel with other instructions, of the same length in all, from `pc` on."""
        other = copy.copy(self)
        other.image = self.patched(pc, encoding)
        first, end = self.index[pc], pc + len(encoding)
        last = self.index[end] if end in self.index else len(self.instructions)
        new, old = disassemble(encoding, pc, self.arch), self.instructions[first:last]
        instructions = (*self.instructions[:first], *new, *self.instructions[last:])
        other.same_paths = (
            len(new) == len(old)
            and not any(i.is_branch for i in (*new, *old))
            and not any(i.pc in self.targets for i in old[1:])
            and _masks_alike(new, old)
        )
        if other.same_paths:
            other._replace(first, old, new, instructions)
        else:
            other._set(instructions)
        return other

    def _set(self, instructions: tuple[Instruction, ...]) -> None:
        """Take these instructions and find out where they lead."""
        self.instructions = instructions
        self.index = {inst.pc: i for i, inst in enumerate(self.instructions)}
        near = {inst.target for inst in self.instructions if inst.target is not None}
        try:
            self._far = far_branches(self.instructions, near | {self.entry})
        except CodeError as error:
            raise CodeError(f"{self.symbol} {error}") from None
        self.targets = near | set(self._far.values())
        self.successors = {inst.pc: self._successors(inst) for inst in self.instructions}
        for pc, taken in self._taken.items():
            target = self.at(pc).target
            assert target is not None
            self.successors[pc] = (target if taken else self.at(pc).end,)
        for pc in self._never_without_lanes():
            self.successors[pc] = (self._with_lanes(self.at(pc)),)
        self.predecessors = _predecessors(self.successors)
        self.reachable = self._reachable()

    def _replace(
        self,
        first: int,
        old: tuple[Instruction, ...],
        new: list[Instruction],
        instructions: tuple[Instruction, ...],
    ) -> None:
        """Take these instructions, of which the new ones take the place of the old ones."""
        self.instructions = instructions
        if [i.pc for i in old] == [i.pc for i in new]:
            return
        self.index, self.successors = dict(self.index), dict(self.successors)
        self.predecessors = dict(self.predecessors)
        before, behind = self.predecessors[old[0].pc], self.successors[old[-1].pc]
        for inst in old:
            del self.index[inst.pc], self.successors[inst.pc], self.predecessors[inst.pc]
        for i, inst in enumerate(new):
            self.index[inst.pc] = first + i
            self.successors[inst.pc] = (inst.end,)
            self.predecessors[inst.pc] = before
            before = [inst.pc]
        self.successors[new[-1].pc] = behind
        for pc in behind:
            self.predecessors[pc] = [
                new[-1].pc if other == old[-1].pc else other for other in self.predecessors[pc]
            ]
        if old[0].pc in self.reachable:
            self.reachable = self.reachable - {i.pc for i in old} | {i.pc for i in new}

    def at(self, pc: int) -> Instruction:
        """The instruction at an address."""
        return self.instructions[self.index[pc]]

    @property
    def digest(self) -> str:
        """Of the instructions: names this very code."""
        return hashlib.sha256(self.bytes_at(self.start, self.end - self.start)).hexdigest()[:16]

    def bytes_at(self, pc: int, size: int) -> bytes:
        """Bytes of the image at an address of the kernel."""
        at = self._file_offset + pc - self.start
        return self.image[at : at + size]

    def patched(self, pc: int, encoding: bytes) -> bytes:
        """The image with other bytes at an address of the kernel."""
        at = self._file_offset + pc - self.start
        if not self.start <= pc <= self.end - len(encoding):
            raise CodeError(f"{pc:#x} is outside {self.symbol}")
        return self.image[:at] + encoding + self.image[at + len(encoding) :]

    def blocks(self) -> dict[int, list[Instruction]]:
        """Reachable basic blocks by the address of their first instruction."""
        found: dict[int, list[Instruction]] = {}
        block: list[Instruction] | None = None
        for inst in self.instructions:
            if block is None or inst.pc in self.targets or inst.pc == self.entry:
                block = found[inst.pc] = []
            block.append(inst)
            if inst.is_branch:
                block = None
        return {pc: block for pc, block in found.items() if pc in self.reachable}

    def block_of(self, pc: int) -> int:
        """Address of the first instruction of the basic block that holds `pc`."""
        i = self.index[pc]
        while (
            i > 0
            and self.instructions[i].pc not in self.targets
            and self.instructions[i].pc != self.entry
            and not self.instructions[i - 1].is_branch
        ):
            i -= 1
        return self.instructions[i].pc

    def _successors(self, inst: Instruction) -> tuple[int, ...]:
        if inst.pc in self._far:
            return (self._far[inst.pc],)
        following = []
        if inst.mnemonic not in NO_FALL_THROUGH and inst.end in self.index:
            following.append(inst.end)
        if inst.target is not None and inst.target in self.index:
            following.append(inst.target)
        return tuple(following)

    def _reachable(self) -> frozenset[int]:
        seen: set[int] = set()
        todo = [self.entry]
        while todo:
            pc = todo.pop()
            if pc not in seen:
                seen.add(pc)
                todo += self.successors.get(pc, ())
        return frozenset(seen)

    @staticmethod
    def _with_lanes(inst: Instruction) -> int:
        """Where a branch on EXEC goes if some lane is active."""
        assert inst.target is not None
        return inst.end if inst.mnemonic == "s_cbranch_execz" else inst.target

    def _never_without_lanes(self) -> set[int]:
        """Branches on EXEC that go one way, as some lane is active on every path.

        Followed are EXEC itself and the pairs of SGPRs that hold a mask with a lane in it.
        """
        states: dict[int, frozenset[int]] = {self.entry: frozenset({_EXEC})}
        todo = [self.entry]
        while todo:
            pc = todo.pop()
            inst = self.at(pc)
            after = _masks_with_lanes(inst, states[pc])
            for following in self.successors[pc]:
                # Behind a branch on EXEC its emptiness is known.
                known = after
                if inst.mnemonic in _ON_EXEC:
                    lanes = following == self._with_lanes(inst)
                    if not lanes and _EXEC in after:
                        continue
                    known = after | {_EXEC} if lanes else after
                met = known & states[following] if following in states else known
                if states.get(following) != met:
                    states[following] = met
                    todo.append(following)
        return {
            pc
            for pc, masks in states.items()
            if self.at(pc).mnemonic in _ON_EXEC and _EXEC in masks
        }


def _predecessors(successors: dict[int, tuple[int, ...]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {pc: [] for pc in successors}
    for pc, following in successors.items():
        for other in following:
            found[other].append(pc)
    return found


def _masks_alike(new: Iterable[Instruction], old: Iterable[Instruction]) -> bool:
    """Whether the same masks have lanes behind both: none is made, or only s_nop are elsewhere."""
    if not any(map(_on_masks, (*new, *old))):
        return True
    texts = [[i.text for i in both if i.mnemonic != "s_nop"] for both in (new, old)]
    return texts[0] == texts[1]


def _on_masks(inst: Instruction) -> bool:
    """Whether `_masks_with_lanes` may do anything at an instruction but forget what it writes."""
    return regs.is_salu(inst) and inst.mnemonic not in ("s_waitcnt", "s_nop", "s_barrier")


def _masks_with_lanes(inst: Instruction, masks: frozenset[int]) -> frozenset[int]:
    """Pairs of SGPRs, by the first, that are not zero after `inst`, if `masks` are not before."""
    use = regs.use(inst)
    kept = frozenset(mask for mask in masks if not {mask, mask + 1} & use.writes)
    if not inst.operands or not regs.is_salu(inst):
        return kept
    operands = [min(regs.registers(operand), default=None) for operand in inst.operands]
    target = operands[0]
    if "saveexec" in inst.mnemonic and target is not None and _EXEC in masks:
        kept |= {target}
    if target is None or not use.writes & {target}:
        return kept
    if inst.mnemonic == "s_mov_b64" and (operands[1] in masks or inst.operands[1] == "-1"):
        kept |= {target}
    if inst.mnemonic == "s_or_b64" and (operands[1] in masks or operands[2] in masks):
        kept |= {target}
    return kept
